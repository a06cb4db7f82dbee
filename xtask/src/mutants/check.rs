//! The checks that catch mutants.

use std::fmt;
use std::process::{Command, Output};
use std::str::FromStr;

use anyhow::{Context as _, Result, anyhow};
use clap::ValueEnum as _;

use super::tree::Tree;
use crate::arguments::display_as_argument;
use crate::model;

/// A check, and which part of it: a filter of names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Check {
    kind: Kind,
    filter: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
enum Kind {
    /// `cargo xtask aborts`
    Aborts,
    Capi,
    Cli,
    Export,
    Guard,
    Guarantees,
    Malloc,
    Metrics,
    MetricsCapi,
    /// `cargo xtask model`
    Model,
    Preload,
    Top,
    Tower,
    Unit,
}

display_as_argument!(Kind);

impl Kind {
    /// Returns the package of its tests, and cargo's option for those tests.
    fn tests(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Kind::Aborts => ("thiscpu-aborts", &[]),
            Kind::Capi => ("thiscpu-capi", &["--test", "capi"]),
            Kind::Cli => {
                ("thiscpu-cli", &["--test", "run", "--test", "doctor", "--test", "segment"])
            }
            Kind::Export => ("thiscpu-export", &["--tests"]),
            Kind::Guard => ("thiscpu-malloc", &["--test", "guard"]),
            Kind::Guarantees => ("thiscpu", &["--test", "guarantees"]),
            Kind::Malloc => ("thiscpu-malloc", &["--tests"]),
            Kind::Metrics => ("thiscpu-metrics", &["--tests"]),
            Kind::MetricsCapi => ("thiscpu-metrics-capi", &["--test", "metrics"]),
            Kind::Model => ("thiscpu", &["--test", "model"]),
            Kind::Preload => ("thiscpu-malloc-preload", &["--test", "preload"]),
            Kind::Top => ("thiscpu-top", &["--tests"]),
            Kind::Tower => ("thiscpu-tower", &["--test", "tower"]),
            Kind::Unit => ("thiscpu", &["--lib"]),
        }
    }
}

/// The result of a check.
pub(super) enum Verdict {
    Passes,
    /// Its filter chooses no test.
    TestsNothing,
    /// The first failure.
    Fails(String),
    /// It did not end, which proves nothing.
    Hangs,
    DoesNotBuild(String),
}

/// The time in seconds after which a check hangs.
///
/// Checks take some seconds; they take minutes on a busy machine and where they wait for forked
/// children.
const PATIENCE_S: &str = "600";
/// The exit statuses of `timeout` for a command that it ended or had to kill.
const TIMED_OUT: i32 = 124;
const KILLED: i32 = 137;

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Passes => f.write_str("NOT CAUGHT"),
            Verdict::TestsNothing => f.write_str("NOT CAUGHT, no test has such a name"),
            Verdict::Fails(first) => write!(f, "caught, {first}"),
            Verdict::Hangs => f.write_str("NOT CAUGHT, it hangs"),
            Verdict::DoesNotBuild(reason) => write!(f, "DOES NOT BUILD: {reason}"),
        }
    }
}

impl FromStr for Check {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Check> {
        let (kind, filter) = text.split_once(' ').unwrap_or((text, ""));
        let kind = Kind::from_str(kind, false).map_err(|_| {
            let names: Vec<_> = Kind::value_variants().iter().map(Kind::to_string).collect();
            anyhow!("unknown check `{kind}`; known: {}", names.join(", "))
        })?;
        Ok(Check { kind, filter: filter.to_owned() })
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.filter)
    }
}

impl Check {
    pub(super) fn is_aborts(&self) -> bool {
        self.kind == Kind::Aborts
    }

    /// Builds and runs this check in `tree`.
    pub(super) fn run(&self, tree: &Tree) -> Result<Verdict> {
        let built = self.command(tree, true).output().context("cannot run cargo")?;
        if !built.status.success() {
            return Ok(Verdict::DoesNotBuild(first_line(&built, "error")));
        }
        let output = self.command(tree, false).output().context("cannot run cargo")?;
        let is_proof = || self.is_aborts() || has_passed_tests(&text(&output));
        Ok(match output.status.code() {
            Some(0) if is_proof() => Verdict::Passes,
            Some(0) => Verdict::TestsNothing,
            Some(TIMED_OUT | KILLED) => Verdict::Hangs,
            _ => {
                let first = first_line(&output, "FAILED");
                Verdict::Fails(format!("{first}: {}", message(&output)))
            }
        })
    }

    fn command(&self, tree: &Tree, only_build: bool) -> Command {
        // It ends a check that hangs, with all processes in its group.
        let mut command = Command::new("timeout");
        let patience = if only_build { "0" } else { PATIENCE_S };
        command
            .args(["--kill-after=5", patience, "cargo"])
            .current_dir(&tree.path)
            .env("RUST_BACKTRACE", "0")
            .env("THISCPU_TEST_LEVEL", "full");
        // Tests share the checked tree's target directory, which has the dependencies. Programs and
        // shared objects cannot: those of the mutant would replace those of the checked tree.
        let target = match self.kind {
            Kind::Aborts | Kind::Capi | Kind::Cli | Kind::Export | Kind::Preload | Kind::Top => {
                tree.path.join("target")
            }
            Kind::Model => tree.origin.join("target/model"),
            _ => tree.origin.join("target"),
        };
        command.env("CARGO_TARGET_DIR", target);
        let (package, tests) = self.kind.tests();
        if self.kind == Kind::Aborts {
            // Builds the driver first, because the task reports a failed build as a failure of its
            // own.
            let build = ["build", "--release", "--package", package, "--features", "c"];
            match only_build {
                true => command.args(build),
                false => command.args(["xtask", "aborts"]).args(self.filter.split_whitespace()),
            };
            return command;
        }
        command.arg("test");
        if self.kind == Kind::Model {
            command.args(["--profile", "model"]).env("RUSTFLAGS", model::FLAGS);
        }
        command.args(["--package", package]).args(tests);
        match only_build {
            true => command.arg("--no-run"),
            false => command.args(["--", &self.filter]),
        };
        command
    }
}

/// Returns whether a test passed, by the summaries that test programs print.
fn has_passed_tests(text: &str) -> bool {
    text.lines().any(|line| line.starts_with("test result: ") && !line.contains(" 0 passed"))
}

/// Returns the message of the first panic in the program under test.
fn message(output: &Output) -> String {
    let text = text(output);
    let mut lines = text.lines().skip_while(|line| !line.contains("panicked at")).skip(1);
    lines.next().unwrap_or("no panic").trim().to_owned()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// Returns the first line that contains `word`.
fn first_line(output: &Output, word: &str) -> String {
    text(output).lines().find(|line| line.contains(word)).unwrap_or("no reason").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tests_that_ran_are_proof() {
        assert!(!has_passed_tests("running 0 tests\ntest result: ok. 0 passed; 0 failed"));
        assert!(has_passed_tests("test result: ok. 0 passed; 0\ntest result: ok. 10 passed; 0"));
    }
}
