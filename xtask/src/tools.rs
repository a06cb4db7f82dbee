//! Programs that a task needs and that a machine may lack.

use anyhow::{Result, bail};
pub(crate) use thiscpu_test_support::in_ci;
use xshell::{Shell, cmd};

/// A program and the Debian package that has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tool {
    pub(crate) program: &'static str,
    pub(crate) package: &'static str,
}

/// The compiler and linker of C for AArch64.
pub(crate) const CROSS_GCC: Tool = Tool {
    program: "aarch64-linux-gnu-gcc",
    package: "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
};

/// Returns whether all of `tools` are installed.
///
/// If not, prints that `task` is skipped, and the command that installs the missing ones. Fails
/// then in CI, where no check may be skipped unnoticed.
pub(crate) fn are_here(sh: &Shell, task: &str, tools: &[Tool]) -> Result<bool> {
    let missing: Vec<&Tool> = tools.iter().filter(|tool| !is_here(sh, tool.program)).collect();
    if missing.is_empty() {
        return Ok(true);
    }
    let programs: Vec<_> = missing.iter().map(|tool| tool.program).collect();
    let mut packages: Vec<_> = missing.iter().map(|tool| tool.package).collect();
    packages.dedup();
    skip(task, &programs.join(", "), &packages.join(" "))?;
    Ok(false)
}

/// Prints that `task` is skipped because something of `packages` is missing; fails in CI.
pub(crate) fn skip(task: &str, missing: &str, packages: &str) -> Result<()> {
    let message = format!("{task}: {missing} not found; run `apt-get install -y {packages}`");
    if in_ci() {
        bail!("{message}");
    }
    eprintln!("skipped {message}");
    Ok(())
}

fn is_here(sh: &Shell, program: &str) -> bool {
    let find = "command -v \"$1\"";
    cmd!(sh, "sh -c {find} sh {program}").quiet().ignore_stdout().ignore_stderr().run().is_ok()
}
