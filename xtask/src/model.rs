//! `cargo xtask model`: run the library's code under model checkers.

use anyhow::{Context as _, Result};
use xshell::{Shell, cmd};

/// The flags of a build for model checkers. Code for the real machine is unused in it.
pub(crate) const FLAGS: &str = "--cfg thiscpu_model -A dead_code";

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Multiply the number of runs of each random test
    #[arg(long, default_value_t = 1)]
    runs: usize,
    /// Try every order with up to this many preemptions; each test has its own default
    #[arg(long)]
    preemptions: Option<usize>,
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
    let filter = &arguments.filter;
    cmd!(sh, "cargo test --profile model --package thiscpu --test model -- {filter...}")
        .quiet()
        .run()
        .context("a model test failed or does not build")
}
