//! What a developer of thiscpu runs besides cargo itself: `cargo xtask --help`.

mod aborts;
mod app_bench;
mod arch;
mod bench_c;
mod cargo;
mod degraded;
mod header;
mod install;
mod lint;
mod model;
mod mutants;
mod stats;
mod template;
mod tools;
mod vm;

use clap::{Parser, Subcommand};
use xshell::Shell;

/// Checks that go further than the tests; docs/testing.md says what each can and cannot see.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Aborts each section at each of its instructions, and looks at every copy in what is shipped
    Aborts(aborts::Arguments),
    /// Runs the library's own code on a modelled machine, at random and exhaustively
    Model(model::Arguments),
    /// Breaks the library on purpose, in many ways, and shows that each is caught
    Mutants(mutants::Arguments),
    /// Runs the tests in processes without rseq, without membarrier, and under valgrind
    Degraded(degraded::Arguments),
    /// Runs tests and torture on emulated machines with many CPUs that come and go
    Vm(vm::Arguments),
    /// Makes the C header from the sources of its functions, or looks whether it is theirs
    Header(header::Arguments),
    /// Check imports between layers, and the prose of code and documents
    Lint,
    /// Builds the library for C and C++ and installs it
    Install(install::Arguments),
    /// Runs real programs on the preloaded allocator and on others: same results, time, peak memory
    AppBench(app_bench::Arguments),
    /// Measures what an add costs in C, inlined and called, against one in the manner of librseq
    BenchC(bench_c::Arguments),
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let sh = Shell::new()?;
    // Cargo names the directory of this package; tasks speak of the workspace's.
    sh.change_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    match arguments.task {
        Task::Install(arguments) => install::run(&sh, &arguments),
        Task::Header(arguments) => header::run(&sh.current_dir(), &arguments),
        Task::Aborts(arguments) => aborts::run(&sh, &arguments),
        Task::Lint => lint::run(&sh),
        Task::Model(arguments) => model::run(&sh, &arguments),
        Task::Mutants(arguments) => mutants::run(&sh, &arguments),
        Task::Degraded(arguments) => degraded::run(&sh, &arguments),
        Task::Vm(arguments) => vm::run(&sh, &arguments),
        Task::AppBench(arguments) => app_bench::run(&sh, &arguments),
        Task::BenchC(arguments) => bench_c::run(&sh, &arguments),
    }
}
