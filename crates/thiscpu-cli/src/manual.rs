//! What packages install beside the program: completions and man pages.

use std::path::Path;

use anyhow::{Context as _, Result};
use clap::CommandFactory as _;

use crate::{Cli, output};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Prints a completion script for `shell`.
pub(crate) fn completions(shell: clap_complete::Shell) -> Result<()> {
    let mut script = Vec::new();
    // The generators offer hidden commands too.
    let all = Cli::command();
    let visible = all.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let mut command = clap::Command::new("thiscpu").version(VERSION).subcommands(visible);
    clap_complete::generate(shell, &mut command, "thiscpu", &mut script);
    output::print(&String::from_utf8(script)?).map(drop)
}

/// Writes a man page for the program and one for each command into `directory`.
pub(crate) fn pages(directory: &Path) -> Result<()> {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    for command in with_subcommands(command) {
        let page = clap_mangen::Man::new(command).source(format!("thiscpu {VERSION}"));
        page.generate_to(directory)
            .with_context(|| format!("cannot write man pages to {}", directory.display()))?;
    }
    Ok(())
}

/// Returns a command and all its subcommands that are not hidden.
fn with_subcommands(command: clap::Command) -> Vec<clap::Command> {
    let visible = command.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    visible.flat_map(with_subcommands).chain([command.clone()]).collect()
}
