//! What packages install beside the program: completions and man pages.

use std::path::Path;

use anyhow::{Context as _, Result};
use clap::CommandFactory as _;

use crate::{Cli, output};

/// Prints a completion script for `shell`.
pub(crate) fn completions(shell: clap_complete::Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "thiscpu", &mut script);
    output::print(&String::from_utf8(script)?).map(drop)
}

/// Writes a man page for the program and one for each command into `directory`.
pub(crate) fn pages(directory: &Path) -> Result<()> {
    clap_mangen::generate_to(Cli::command(), directory)
        .with_context(|| format!("cannot write man pages to {}", directory.display()))
}
