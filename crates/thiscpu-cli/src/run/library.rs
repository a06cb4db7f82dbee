//! Finds the allocator library to preload.

use std::{
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};

use super::elf;

const NAME: &str = "libthiscpu_malloc.so";

/// Returns the library's absolute path, as `LD_PRELOAD` needs it.
pub(super) fn find(requested: Option<&Path>) -> Result<PathBuf> {
    let path = match requested {
        // Links stay, because they are a way to a library whose own path has blanks.
        Some(path) => path
            .metadata()
            .and_then(|_| std::path::absolute(path))
            .with_context(|| format!("cannot find --library {}", path.display()))?,
        None => find_nearby()?,
    };
    elf::read(&path).with_context(|| format!("cannot preload {}", path.display()))?;
    if path.as_os_str().as_bytes().iter().any(|byte| b": \t\n".contains(byte)) {
        bail!(
            "cannot preload {}: its path has a colon or a blank, which separate names in \
             LD_PRELOAD; move it, or pass a link to it by --library PATH",
            path.display()
        );
    }
    Ok(path)
}

/// Looks beside this program, where cargo puts both, and then in `../lib`, as installed.
fn find_nearby() -> Result<PathBuf> {
    let unknown = "cannot determine this program's directory; pass --library PATH";
    let program = std::env::current_exe().context(unknown)?;
    let directory = program.parent().context(unknown)?;
    let places = [directory.join(NAME), directory.join("../lib").join(NAME)];
    match places.iter().find_map(|place| place.canonicalize().ok()) {
        Some(found) => Ok(found),
        None => bail!(
            "cannot find the allocator at {} or {}; build it with `cargo build --release -p \
             thiscpu-malloc-preload`, or pass --library PATH",
            places[0].display(),
            places[1].display()
        ),
    }
}
