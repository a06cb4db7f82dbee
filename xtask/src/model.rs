//! `cargo xtask model`: this library's own code under model checkers.

use anyhow::{Context as _, Result};
use xshell::{Shell, cmd};

/// What turns a build into one for model checkers. What only the real machine uses is unused then.
pub(crate) const FLAGS: &str = "--cfg thiscpu_model -A dead_code";

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Multiplies how often each random test is run
    #[arg(long, default_value_t = 1)]
    runs: usize,
    /// The number of preemptions up to which every order is tried; each test has its own default
    #[arg(long)]
    preemptions: Option<usize>,
    /// Only the tests whose names contain this
    filter: Option<String>,
}

pub(crate) fn run(sh: &Shell, arguments: &Arguments) -> Result<()> {
    let _flags = sh.push_env("RUSTFLAGS", FLAGS);
    // Apart, because other flags build everything anew.
    let _target = sh.push_env("CARGO_TARGET_DIR", "target/model");
    let _runs = sh.push_env("THISCPU_MODEL_RUNS", arguments.runs.to_string());
    let _preemptions =
        arguments.preemptions.map(|bound| sh.push_env("LOOM_MAX_PREEMPTIONS", bound.to_string()));
    let filter = &arguments.filter;
    cmd!(sh, "cargo test --profile model --package thiscpu --test model -- {filter...}")
        .quiet()
        .run()
        .context("a model found a history that nothing explains, or could not be built")
}
