//! What cargo builds, and where.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use xshell::{Cmd, Shell};

/// Returns the directory that cargo builds in, unless a configuration file names another.
pub(crate) fn target_directory(sh: &Shell) -> PathBuf {
    sh.current_dir().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// Runs a `cargo build` or `cargo test --no-run`, and returns the paths of its executables.
pub(crate) fn executables(cargo: Cmd<'_>) -> Result<Vec<PathBuf>> {
    let failed = format!("{cargo}");
    let messages = cargo.arg("--message-format=json-render-diagnostics").quiet().read()?;
    // Each line is an object; only that of a program names an executable.
    let executables = messages.lines().filter_map(|line| {
        let (_, rest) = line.split_once("\"executable\":\"")?;
        rest.split_once('"').map(|(path, _)| PathBuf::from(path))
    });
    let executables: Vec<_> = executables.collect();
    ensure!(!executables.is_empty(), "`{failed}` has built no program");
    Ok(executables)
}
