//! git: commits versions of some thousand files, shows the changes, packs all objects, and reads
//! them.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use thiscpu_test_support::random::Random;

use super::measure::Cost;
use super::run::{Parts, Run, Scale};
use crate::tools::Tool;

const GIT: &str = "/usr/bin/git";

pub(super) const PARTS: Parts =
    Parts { tools: &[Tool { program: GIT, package: "git" }], prepare, run };

const VERSIONS: u32 = 3;

/// Writes a directory for each version; some lines of each file change with each version.
fn prepare(inputs: &Path, scale: Scale) -> Result<()> {
    for version in 0..VERSIONS {
        let tree = inputs.join(version.to_string());
        for number in 0..scale.of(60, 800) {
            let directory = tree.join(format!("part{}", number % 40));
            fs::create_dir_all(&directory)?;
            let file = File::create(directory.join(format!("file{number}.txt")))?;
            text(BufWriter::new(file), number, version)?;
        }
    }
    Ok(())
}

/// Writes a file, most of whose lines are equal in all versions.
///
/// The first file is a long one.
fn text(mut file: impl Write, number: u32, version: u32) -> Result<()> {
    let mut random = Random(u64::from(number));
    let long = if number == 0 { 60_000 } else { 0 };
    for line in 0..long + 20 + random.below(60) {
        write!(file, "{line}:")?;
        for _ in 0..2 + random.below(8) {
            write!(file, " {}", random.word())?;
        }
        if random.below(12) < u64::from(version) {
            write!(file, " as of version {version}")?;
        }
        writeln!(file)?;
    }
    Ok(file.flush()?)
}

/// Runs the commands.
///
/// The objects are results, but not the packs: how two threads share the work decides which object
/// is stored as a difference to which.
fn run(run: &Run) -> Result<Cost> {
    let mut cost = run.measure(git(run)?.args(["init", "--quiet", "--bare"]))?;
    for version in 0..VERSIONS {
        let tree = run.inputs.join(version.to_string());
        let message = format!("Version {version}");
        for step in [&["add", "--all"][..], &["commit", "--quiet", "--message", &message]] {
            cost = cost + run.measure(git(run)?.env("GIT_WORK_TREE", &tree).args(step))?;
        }
    }
    let steps: [&[&str]; 5] = [
        &["log", "--patch", "--stat", "--find-renames"],
        &["repack", "-a", "-d", "-f", "-q"],
        &["gc", "--quiet", "--prune=now"],
        &["cat-file", "--batch-all-objects", "--batch"],
        &["fsck", "--strict", "--no-progress"],
    ];
    for step in steps {
        cost = cost + run.measure(git(run)?.args(step))?;
    }
    Ok(cost)
}

/// Returns git in this run's repository, without settings, with a fixed identity and date.
fn git(run: &Run) -> Result<Command> {
    let mut git = run.command(GIT)?;
    git.env("GIT_DIR", run.directory.join("repository"));
    git.envs([("GIT_CONFIG_NOSYSTEM", "1"), ("GIT_CONFIG_GLOBAL", "/dev/null")]);
    for role in ["AUTHOR", "COMMITTER"] {
        git.env(format!("GIT_{role}_NAME"), "Nobody");
        git.env(format!("GIT_{role}_EMAIL"), "nobody@example.org");
        git.env(format!("GIT_{role}_DATE"), "1700000000 +0000");
    }
    // Without waiting for the disk, and without work in the background.
    git.args(["-c", "core.fsync=none", "-c", "gc.auto=0", "-c", "pack.threads=2"]);
    Ok(git)
}
