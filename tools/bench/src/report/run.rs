//! What is said once of a run: when, by which command, of which build, on which machine.

use std::env;

use crate::{figures, plan::Plan};
use anyhow::{Context as _, Result};
use jiff::{Timestamp, Unit};
use serde::Serialize;

use crate::report::machine::Machine;

/// The setting that changes what thiscpu runs on, and so belongs to the command.
const TIER: &str = "THISCPU_TIER";

/// Everything about a run but its figures.
#[derive(Debug, Serialize)]
pub(crate) struct Run {
    /// When it began, in RFC 3339, to the second.
    pub(crate) date: String,
    /// What repeats it, from a checkout of this project.
    pub(crate) command: String,
    /// How many rounds were asked for.
    pub(crate) rounds: u32,
    /// How long a slice is.
    pub(crate) seconds_per_slice: f64,
    /// How many cases it has in all.
    pub(crate) cases: usize,
    /// Who could not take part, and why.
    pub(crate) unavailable: Vec<String>,
    pub(crate) machine: Machine,
    pub(crate) build: Build,
}

/// The program.
#[derive(Debug, Serialize)]
pub(crate) struct Build {
    /// Its version, and the library's.
    pub(crate) thiscpu: &'static str,
    /// Whether its times mean something.
    pub(crate) is_optimised: bool,
    /// The allocators of others that are in it, with their versions.
    pub(crate) allocators: Vec<String>,
}

impl Run {
    pub(crate) fn new(plan: &Plan, arguments: impl IntoIterator<Item = String>) -> Result<Self> {
        let now = Timestamp::now().round(Unit::Second).context("cannot tell the time")?;
        let build = Build {
            thiscpu: env!("CARGO_PKG_VERSION"),
            is_optimised: !cfg!(debug_assertions),
            allocators: figures::versions(),
        };
        let tier = env::var(TIER).ok();
        Ok(Self {
            date: now.to_string(),
            command: command(&build, tier.as_deref(), arguments),
            rounds: plan.rounds,
            seconds_per_slice: plan.seconds,
            cases: plan.cases.len(),
            unavailable: plan.unavailable.clone(),
            machine: Machine::ask()?,
            build,
        })
    }
}

/// The command by which the build is made and run with these arguments, as a shell wants it.
fn command(
    build: &Build,
    tier: Option<&str>,
    arguments: impl IntoIterator<Item = String>,
) -> String {
    let mut words = Vec::new();
    if let Some(tier) = tier {
        words.push(format!("{TIER}={}", quoted(tier)));
    }
    words.extend(["cargo", "run"].map(str::to_owned));
    if build.is_optimised {
        words.push("--release".to_owned());
    }
    words.extend(["-p", env!("CARGO_PKG_NAME")].map(str::to_owned));
    // The C library's is always there.
    if build.allocators.len() > 1 {
        words.extend(["--features", "other-allocators"].map(str::to_owned));
    }
    words.push("--".to_owned());
    words.extend(arguments.into_iter().map(|argument| quoted(&argument)));
    words.join(" ")
}

/// No argument of a process has a zero in it, which is all that cannot be quoted.
fn quoted(word: &str) -> String {
    shlex::try_quote(word).map_or_else(|_| word.to_owned(), |word| word.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(is_optimised: bool, allocators: &[&str]) -> Build {
        let allocators = allocators.iter().map(|&name| name.to_owned()).collect();
        Build { thiscpu: "0.1.0", is_optimised, allocators }
    }

    #[test]
    fn the_command_makes_the_same_build_and_quotes_its_arguments() {
        let arguments = ["bench", "add", "--report", "a dir;"].map(str::to_owned);
        let with_peers = build(true, &["glibc 2", "mimalloc 3"]);
        assert_eq!(
            command(&with_peers, Some("atomic"), arguments),
            "THISCPU_TIER=atomic cargo run --release -p thiscpu-bench --features other-allocators -- \
             bench add --report 'a dir;'"
        );
        let plain = build(false, &["glibc 2"]);
        assert_eq!(
            command(&plain, None, ["bench".to_owned()]),
            "cargo run -p thiscpu-bench -- bench"
        );
    }
}
