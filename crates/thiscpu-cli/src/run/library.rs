//! Where the allocator to preload is.

use std::{
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};

use super::elf;

const NAME: &str = "libthiscpu_malloc.so";

/// The library as `LD_PRELOAD` wants it: by a path that holds in any directory.
pub(super) fn find(asked: Option<&Path>) -> Result<PathBuf> {
    let path = match asked {
        Some(path) => path
            .canonicalize()
            .with_context(|| format!("--library {} cannot be found", path.display()))?,
        None => find_nearby()?,
    };
    elf::read(&path).with_context(|| format!("{} cannot be preloaded", path.display()))?;
    if path.as_os_str().as_bytes().iter().any(|byte| b": \t\n".contains(byte)) {
        bail!(
            "{} cannot be preloaded: in LD_PRELOAD colons and blanks separate \
             names; move it, or name another place by --library",
            path.display()
        );
    }
    Ok(path)
}

/// Beside this program, where cargo puts both, or where an installed program has its libraries.
fn find_nearby() -> Result<PathBuf> {
    let here = std::env::current_exe().context("this program cannot find itself; use --library")?;
    let here = here.parent().context("this program is nowhere; use --library")?;
    let places = [here.join(NAME), here.join("../lib").join(NAME)];
    match places.iter().find_map(|place| place.canonicalize().ok()) {
        Some(found) => Ok(found),
        None => bail!(
            "the allocator is neither {} nor {}; build it with `cargo build \
             --release -p thiscpu-malloc-preload`, or say where it is by --library",
            places[0].display(),
            places[1].display()
        ),
    }
}
