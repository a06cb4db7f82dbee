//! `cargo xtask lint`: rules that compilers do not check.

mod layers;
mod links;
mod modules;
mod parity;
mod prose;
mod public;

use std::path::PathBuf;

use anyhow::{Result, ensure};
use xshell::{Shell, cmd};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only findings in files whose paths begin so
    paths: Vec<String>,
}

pub(crate) fn run(sh: &Shell, arguments: &Arguments) -> Result<()> {
    let (layers, prose) = (layers::check(sh)?, prose::check(sh)?);
    let findings = [layers, prose, links::check(sh)?, parity::check(sh)?].concat();
    let is_wanted = |finding: &&String| {
        arguments.paths.is_empty() || arguments.paths.iter().any(|path| finding.starts_with(path))
    };
    let findings: Vec<_> = findings.iter().filter(is_wanted).collect();
    findings.iter().for_each(|finding| println!("{finding}"));
    ensure!(findings.is_empty(), "{} findings", findings.len());
    Ok(())
}

/// Returns the files with prose that git tracks or would add, without symbolic links.
fn files(sh: &Shell) -> Result<Vec<PathBuf>> {
    let patterns = "*.rs *.c *.h *.hpp *.cpp *.md *.toml *.sh *.py *.yml .ci/run".split(' ');
    let files = cmd!(sh, "git ls-files --cached --others --exclude-standard {patterns...}")
        .quiet()
        .read()?;
    let files = files.lines().map(PathBuf::from);
    Ok(files
        .filter(|file| sh.path_exists(file) && !sh.current_dir().join(file).is_symlink())
        .collect())
}
