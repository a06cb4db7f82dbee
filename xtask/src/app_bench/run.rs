//! One run of a program: its directory, environment and results.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use super::allocator::Allocator;
use super::measure::{self, Cost};
use crate::tools::Tool;

/// What a program needs and does.
#[derive(Clone, Copy)]
pub(super) struct Parts {
    /// Debian's, by their paths, because PATH may have others.
    pub(super) tools: &'static [Tool],
    /// Writes the inputs of its runs into an empty directory.
    pub(super) prepare: fn(inputs: &Path, Scale) -> Result<()>,
    pub(super) run: fn(&Run<'_>) -> Result<Cost>,
}

/// The amount of work of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    /// Enough to compare results.
    Quick,
    /// A second or two.
    Full,
}

impl Scale {
    pub(super) fn of(self, quick: u32, full: u32) -> u32 {
        match self {
            Scale::Quick => quick,
            Scale::Full => full,
        }
    }
}

pub(super) struct Run<'a> {
    /// The directory of its inputs, which it does not change.
    pub(super) inputs: PathBuf,
    /// Its working directory.
    pub(super) directory: PathBuf,
    pub(super) scale: Scale,
    allocator: &'a Allocator,
}

impl<'a> Run<'a> {
    /// Creates a run in `directory`, which is emptied.
    pub(super) fn new(
        directory: PathBuf,
        inputs: PathBuf,
        scale: Scale,
        allocator: &'a Allocator,
    ) -> Result<Run<'a>> {
        if directory.exists() {
            fs::remove_dir_all(&directory)?;
        }
        fs::create_dir_all(directory.join(RESULTS))?;
        Ok(Run { inputs, directory, scale, allocator })
    }

    /// Returns the directory of the results, which must be equal on all allocators.
    pub(super) fn results(&self) -> PathBuf {
        self.directory.join(RESULTS)
    }

    /// Returns a command on the allocator, in this run's directory and a fixed environment.
    ///
    /// Its output is a result.
    pub(super) fn command(&self, program: &str) -> Result<Command> {
        let mut command = self.client(program)?;
        command.envs(self.allocator.variables());
        Ok(command)
    }

    /// Returns a command on the system's allocator, for parts of a run that are not measured.
    pub(super) fn client(&self, program: &str) -> Result<Command> {
        let mut command = plain(program, &self.directory);
        // A tier that the user forces is forced here too.
        command.envs(std::env::vars_os().filter(|(name, _)| name == "THISCPU_TIER"));
        let result = |name| {
            let path = self.results().join(name);
            OpenOptions::new().create(true).append(true).open(path)
        };
        command.stdin(Stdio::null()).stdout(result("stdout")?).stderr(result("stderr")?);
        Ok(command)
    }

    /// Runs a command, which must succeed, and returns its cost.
    pub(super) fn measure(&self, command: &mut Command) -> Result<Cost> {
        let (status, cost) = measure::run(command).with_context(|| format!("{command:?}"))?;
        ensure!(status.success(), "{command:?}: {status}; {}", self.last_errors());
        Ok(cost)
    }

    /// Returns the last lines that the commands wrote to standard error.
    pub(super) fn last_errors(&self) -> String {
        let text = fs::read(self.results().join("stderr")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<_> = text.lines().rev().take(ERROR_LINES).collect();
        match lines.is_empty() {
            true => "no message".to_owned(),
            false => lines.into_iter().rev().collect::<Vec<_>>().join("\n    "),
        }
    }

    pub(super) fn input(&self, name: &str) -> Result<File> {
        let path = self.inputs.join(name);
        File::open(&path).with_context(|| path.display().to_string())
    }
}

/// Returns a command in `directory` and in a fixed environment.
pub(super) fn plain(program: &str, directory: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(directory).env_clear();
    command.envs([("PATH", "/usr/bin:/bin"), ("LC_ALL", "C"), ("TZ", "UTC")]);
    // Files that a program leaves behind if it is killed are removed with the directory.
    command.envs([("HOME", directory), ("TMPDIR", directory)]);
    command
}

/// The directory of results in a run's directory.
pub(super) const RESULTS: &str = "results";

/// The number of lines that are shown of a failed command.
const ERROR_LINES: usize = 10;
