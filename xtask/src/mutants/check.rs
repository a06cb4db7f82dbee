//! What can catch a mutant.

use std::fmt;
use std::process::{Child, Command, Output, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::tree::Tree;
use crate::model;

/// A check, and which part of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Check {
    kind: Kind,
    filter: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// `cargo xtask aborts`
    Aborts,
    /// `cargo test -p thiscpu-capi --test capi`
    Capi,
    /// `cargo test -p thiscpu-malloc --test guard`
    Guard,
    /// `cargo test -p thiscpu --test guarantees`
    Guarantees,
    /// `cargo test -p thiscpu-malloc`, its integration tests
    Malloc,
    /// `cargo test -p thiscpu-metrics`, without its documentation's
    Metrics,
    /// `cargo xtask model`
    Model,
    /// `cargo test -p thiscpu-malloc-preload --test preload`
    Preload,
    /// `cargo test -p thiscpu --lib`
    Unit,
}

/// What a check said.
pub(super) enum Verdict {
    Passes,
    /// With what failed first, and how.
    Fails(String),
    /// It did not end, which says nothing.
    Hangs,
    /// There is nothing to run.
    DoesNotBuild(String),
}

/// How long a check may take before it counts as hanging. They take some seconds; on a loaded machine,
/// and where forked children have to be waited for, some minutes.
const PATIENCE: Duration = Duration::from_secs(600);

impl Verdict {
    pub(super) fn is_caught(&self) -> bool {
        matches!(self, Verdict::Fails(_))
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Passes => f.write_str("NOT CAUGHT"),
            Verdict::Fails(first) => write!(f, "caught, {first}"),
            Verdict::Hangs => f.write_str("NOT CAUGHT, it does not end"),
            Verdict::DoesNotBuild(why) => write!(f, "DOES NOT BUILD: {why}"),
        }
    }
}

impl FromStr for Check {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Check> {
        let (kind, filter) = text.split_once(' ').unwrap_or((text, ""));
        let kind = match kind {
            "aborts" => Kind::Aborts,
            "capi" => Kind::Capi,
            "guard" => Kind::Guard,
            "guarantees" => Kind::Guarantees,
            "malloc" => Kind::Malloc,
            "metrics" => Kind::Metrics,
            "model" => Kind::Model,
            "preload" => Kind::Preload,
            "unit" => Kind::Unit,
            _ => bail!(
                "there is no check `{kind}`; there are aborts, capi, guard, guarantees, malloc, \
                 metrics, model, preload and unit"
            ),
        };
        Ok(Check { kind, filter: filter.to_owned() })
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Aborts => "aborts",
            Kind::Capi => "capi",
            Kind::Guard => "guard",
            Kind::Guarantees => "guarantees",
            Kind::Malloc => "malloc",
            Kind::Metrics => "metrics",
            Kind::Model => "model",
            Kind::Preload => "preload",
            Kind::Unit => "unit",
        };
        write!(f, "{kind} {}", self.filter)
    }
}

impl Check {
    pub(super) fn is_aborts(&self) -> bool {
        self.kind == Kind::Aborts
    }

    /// Builds and runs this check in `tree`.
    pub(super) fn run(&self, tree: &Tree) -> Result<Verdict> {
        let built = self.command(tree, true).output().context("cargo cannot be run")?;
        if !built.status.success() {
            return Ok(Verdict::DoesNotBuild(first_line(&built, "error")));
        }
        let mut run = self.command(tree, false);
        let Some(output) = output_in_time(run.stdout(Stdio::piped()).stderr(Stdio::piped()))?
        else {
            return Ok(Verdict::Hangs);
        };
        if output.status.success() {
            return Ok(Verdict::Passes);
        }
        Ok(Verdict::Fails(format!("{}: {}", first_line(&output, "FAILED"), message(&output))))
    }

    fn command(&self, tree: &Tree, only_build: bool) -> Command {
        let mut command = Command::new("cargo");
        command.current_dir(&tree.path).env("RUST_BACKTRACE", "0");
        // Built beside what the checked tree is built, which has the dependencies; but programs of the
        // same name would take each other's place, and so would shared objects.
        let target = match self.kind {
            Kind::Aborts | Kind::Capi | Kind::Preload => tree.path.join("target"),
            Kind::Model => tree.origin.join("target/model"),
            Kind::Guard | Kind::Guarantees | Kind::Malloc | Kind::Metrics | Kind::Unit => {
                tree.origin.join("target")
            }
        };
        command.env("CARGO_TARGET_DIR", target);
        match self.kind {
            // The driver first, because the task would say in its own way that it does not build.
            Kind::Aborts if only_build => command.args([
                "build",
                "--release",
                "--package",
                "thiscpu-aborts",
                "--features",
                "c",
            ]),
            Kind::Aborts => command.args(["xtask", "aborts"]).args(self.filter.split_whitespace()),
            Kind::Capi => command.args(["test", "--package", "thiscpu-capi", "--test", "capi"]),
            Kind::Guard => command.args(["test", "--package", "thiscpu-malloc", "--test", "guard"]),
            Kind::Malloc => command.args(["test", "--package", "thiscpu-malloc", "--tests"]),
            Kind::Metrics => command.args(["test", "--package", "thiscpu-metrics", "--tests"]),
            Kind::Model => command
                .args(["test", "--profile", "model", "--package", "thiscpu", "--test", "model"])
                .env("RUSTFLAGS", model::FLAGS),
            Kind::Preload => {
                command.args(["test", "--package", "thiscpu-malloc-preload", "--test", "preload"])
            }
            Kind::Guarantees => {
                command.args(["test", "--package", "thiscpu", "--test", "guarantees"])
            }
            Kind::Unit => command.args(["test", "--package", "thiscpu", "--lib"]),
        };
        match self.kind {
            Kind::Aborts => {}
            _ if only_build => drop(command.arg("--no-run")),
            _ => drop(command.args(["--", &self.filter])),
        }
        command
    }
}

/// The message of the first panic in the program under test.
fn message(output: &Output) -> String {
    let text = text(output);
    let mut lines = text.lines().skip_while(|line| !line.contains("panicked at")).skip(1);
    lines.next().unwrap_or("no panic").trim().to_owned()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// The first line with `word` in it.
fn first_line(output: &Output, word: &str) -> String {
    text(output).lines().find(|line| line.contains(word)).unwrap_or("no word why").trim().to_owned()
}

/// What `command` wrote, if it ends in time; else it is killed, with all that it started.
fn output_in_time(command: &mut Command) -> Result<Option<Output>> {
    use std::os::unix::process::CommandExt as _;
    let child = command.process_group(0).spawn().context("cargo cannot be run")?;
    let group = child.id().to_string();
    let output = std::thread::spawn(|| Child::wait_with_output(child));
    let begun = Instant::now();
    while !output.is_finished() {
        if begun.elapsed() > PATIENCE {
            Command::new("kill").args(["-KILL", "--", &format!("-{group}")]).status()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let output = output.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    Ok(Some(output?))
}
