//! `cargo xtask lint`: rules that compilers do not check.

mod layers;
mod modules;

use anyhow::{Result, ensure};
use xshell::Shell;

pub(crate) fn run(sh: &Shell) -> Result<()> {
    let findings = layers::check(sh)?;
    findings.iter().for_each(|finding| println!("{finding}"));
    ensure!(findings.is_empty(), "{} findings", findings.len());
    Ok(())
}
