//! Completions and man pages, which packages install beside a program.

use std::path::Path;

use anyhow::{Context as _, Result};
use clap::Command;
use clap_complete::Shell;

use crate::output;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Prints a completion script of a program for `shell`.
///
/// # Errors
///
/// If it cannot be written.
pub fn completions(name: &'static str, command: &Command, shell: Shell) -> Result<()> {
    let mut script = Vec::new();
    // The generators offer hidden commands and options too.
    let visible: Vec<_> =
        command.get_subcommands().filter(|command| !command.is_hide_set()).cloned().collect();
    let options: Vec<_> =
        command.get_arguments().filter(|option| !option.is_hide_set()).cloned().collect();
    let mut command = Command::new(name).version(VERSION).subcommands(visible).args(options);
    clap_complete::generate(shell, &mut command, name, &mut script);
    output::print(&String::from_utf8(script)?).map(drop)
}

/// Writes a man page of a program, and one for each command of it, into `directory`.
///
/// # Errors
///
/// If a page cannot be written.
pub fn pages(command: Command, directory: &Path) -> Result<()> {
    let mut command = command.disable_help_subcommand(true);
    let source = format!("{} {VERSION}", command.get_name());
    command.build();
    for command in with_subcommands(command) {
        let page = clap_mangen::Man::new(command).source(source.clone());
        page.generate_to(directory)
            .with_context(|| format!("cannot write man pages to {}", directory.display()))?;
    }
    Ok(())
}

/// Returns a command and all its subcommands that are not hidden.
fn with_subcommands(command: Command) -> Vec<Command> {
    let visible = command.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    visible.flat_map(with_subcommands).chain([command.clone()]).collect()
}
