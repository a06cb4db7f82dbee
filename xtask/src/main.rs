//! What a developer of thiscpu runs besides cargo itself: `cargo xtask --help`.

mod tools;

use clap::{Parser, Subcommand};

/// Checks that go further than the tests; docs/proof.md says what each can and cannot see.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().task {}
}
