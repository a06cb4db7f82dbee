//! Programs that a task needs and a machine may lack.

use anyhow::{Result, bail};
use xshell::{Shell, cmd};

/// A program and the Debian package that has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tool {
    pub(crate) program: &'static str,
    pub(crate) package: &'static str,
}

/// Whether all of `tools` are here. If not, says what is skipped and the one command that installs
/// what is missing; in CI, where a check must not be skipped unseen, that is an error.
pub(crate) fn are_here(sh: &Shell, what: &str, tools: &[Tool]) -> Result<bool> {
    let missing: Vec<&Tool> = tools.iter().filter(|tool| !is_here(sh, tool.program)).collect();
    if missing.is_empty() {
        return Ok(true);
    }
    let programs: Vec<_> = missing.iter().map(|tool| tool.program).collect();
    let mut packages: Vec<_> = missing.iter().map(|tool| tool.package).collect();
    packages.dedup();
    say_missing(what, &programs.join(", "), &packages.join(" "))?;
    Ok(false)
}

/// Says that `what` is skipped, because something of `packages` is missing; in CI an error, as above.
pub(crate) fn say_missing(what: &str, missing: &str, packages: &str) -> Result<()> {
    let message = format!("{what}: {missing} not found; apt-get install -y {packages}");
    if in_ci() {
        bail!("{message}");
    }
    eprintln!("skipped {message}");
    Ok(())
}

fn is_here(sh: &Shell, program: &str) -> bool {
    let found = "command -v \"$1\"";
    cmd!(sh, "sh -c {found} sh {program}").quiet().ignore_stdout().ignore_stderr().run().is_ok()
}

/// Whether this is a run of CI, where what cannot be checked is a failure.
pub(crate) fn in_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false")
}
