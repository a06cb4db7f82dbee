//! `cargo xtask model`: run the library's code under model checkers.

use anyhow::{Context as _, Result, ensure};
use xshell::{Cmd, Shell, cmd};

use crate::arguments::Part;

/// The flags of a build for model checkers. Code for the real machine is unused in it.
pub(crate) const FLAGS: &str =
    "--cfg thiscpu_model -A dead_code -A unused_imports -A unreachable_pub";

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Multiply the number of runs of each random test
    #[arg(long, default_value_t = 1)]
    runs: usize,
    /// Try every order with up to this many preemptions; each test has its own default
    #[arg(long)]
    preemptions: Option<usize>,
    /// Only part K of N of the tests, such as 2/3
    #[arg(long, value_name = "K/N", default_value_t)]
    part: Part,
    /// Only tests whose names contain this
    filter: Option<String>,
}

pub(crate) fn run(sh: &Shell, arguments: &Arguments) -> Result<()> {
    let _flags = sh.push_env("RUSTFLAGS", FLAGS);
    // A directory of its own, because other flags rebuild everything.
    let _target = sh.push_env("CARGO_TARGET_DIR", "target/model");
    let _runs = sh.push_env("THISCPU_MODEL_RUNS", arguments.runs.to_string());
    let _preemptions =
        arguments.preemptions.map(|bound| sh.push_env("LOOM_MAX_PREEMPTIONS", bound.to_string()));
    let list = tests(sh).arg("--list").args(&arguments.filter).read()?;
    let names = list.lines().filter_map(|line| line.strip_suffix(": test"));
    let names: Vec<_> = arguments.part.select(names).collect();
    ensure!(
        !names.is_empty(),
        "no test is left: the filter fits none, or there are fewer than parts"
    );
    tests(sh).arg("--exact").args(names).run().context("a model test failed or does not build")
}

fn tests(sh: &Shell) -> Cmd<'_> {
    cmd!(sh, "cargo test --profile model --package thiscpu --test model --").quiet()
}
