//! One run of a program: where it works, in what environment, and where its results go.

use std::fs::{self, File, OpenOptions};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use super::allocator::Allocator;
use super::measure::{self, Cost};

/// How much a program is given to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    /// Enough to see that it works.
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
    /// What it reads, and leaves as it is.
    pub(super) inputs: PathBuf,
    /// Where it works.
    pub(super) directory: PathBuf,
    pub(super) scale: Scale,
    allocator: &'a Allocator,
}

impl<'a> Run<'a> {
    /// A run in `directory`, which is made anew.
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

    /// The directory of what has to be the same under each allocator.
    pub(super) fn results(&self) -> PathBuf {
        self.directory.join(RESULTS)
    }

    /// A command that works in this run's directory, on the allocator, and in an environment that is otherwise
    /// the same everywhere. What it writes is a result.
    pub(super) fn command(&self, program: &str) -> Result<Command> {
        let mut command = self.client(program)?;
        command.envs(self.allocator.variables());
        Ok(command)
    }

    /// The same on the system's allocator: what takes part in a run and is not what it is about.
    pub(super) fn client(&self, program: &str) -> Result<Command> {
        let mut command = Command::new(program);
        command.current_dir(&self.directory).env_clear();
        command.envs([("PATH", "/usr/bin:/bin"), ("LC_ALL", "C"), ("TZ", "UTC")]);
        command.env("HOME", &self.directory);
        // What asks for a tier asks for it here, too.
        command.envs(std::env::vars_os().filter(|(name, _)| name == "THISCPU_TIER"));
        let result = |name| {
            let path = self.results().join(name);
            OpenOptions::new().create(true).append(true).open(path)
        };
        command.stdin(Stdio::null()).stdout(result("stdout")?).stderr(result("stderr")?);
        Ok(command)
    }

    /// Runs a command, which must succeed, and says what it took.
    pub(super) fn measure(&self, command: &mut Command) -> Result<Cost> {
        let (status, cost) = measure::run(command).with_context(|| format!("{command:?}"))?;
        ensure!(status.success(), "{command:?}: {status}; {}", self.complaint());
        Ok(cost)
    }

    /// What the commands wrote last to standard error.
    pub(super) fn complaint(&self) -> String {
        let text = fs::read(self.results().join("stderr")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<_> = text.lines().rev().take(COMPLAINT_LINES).collect();
        match lines.is_empty() {
            true => "it did not say why".to_owned(),
            false => lines.into_iter().rev().collect::<Vec<_>>().join("\n    "),
        }
    }

    /// An input to read from.
    pub(super) fn input(&self, name: &str) -> Result<File> {
        let path = self.inputs.join(name);
        File::open(&path).with_context(|| path.display().to_string())
    }
}

/// The directory, within a run's, of its results.
pub(super) const RESULTS: &str = "results";

/// How many lines are shown of what a failed command wrote.
const COMPLAINT_LINES: usize = 10;
