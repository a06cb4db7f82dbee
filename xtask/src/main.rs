//! The tasks of thiscpu's developers; see `cargo xtask --help`.

mod aborts;
mod app_bench;
mod arch;
mod arguments;
mod bench_c;
mod cargo;
mod degraded;
mod header;
mod install;
mod lint;
mod litmus;
mod model;
mod mutants;
mod table;
mod template;
mod tools;
mod vm;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use xshell::Shell;

/// Check beyond the tests, and measure
///
/// docs/testing.md says what each check can and cannot see.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Abort each section at each of its instructions, and check every copy in shipped binaries
    Aborts(aborts::Arguments),
    /// Run the library's code on a modelled machine, at random and exhaustively
    Model(model::Arguments),
    /// Break the library on purpose, and check that each break is caught
    Mutants(mutants::Arguments),
    /// Run the tests without rseq, without membarrier, and under valgrind
    Degraded(degraded::Arguments),
    /// Run tests and torture on emulated machines with many CPUs and CPU hotplug
    Vm(vm::Arguments),
    /// Write the C headers from their sources, or check them
    Header(header::Arguments),
    /// Check what the design assumes of arm64's memory model
    Litmus(litmus::Arguments),
    /// Check imports of layers, the tables of Rust and C, and the prose of code and documents
    Lint(lint::Arguments),
    /// Build and install the library for C and C++, the program, and the preloaded malloc
    Install(install::Arguments),
    /// Run applications on this and other allocators, and compare results, time and memory
    AppBench(app_bench::Arguments),
    /// Measure an add in C, inlined and called, against one in the manner of librseq
    BenchC(bench_c::Arguments),
}

fn main() -> ExitCode {
    match run(Arguments::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> anyhow::Result<()> {
    let sh = Shell::new()?;
    // Tasks use paths in the workspace; cargo names the directory of this package.
    sh.change_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    match task {
        Task::Install(arguments) => install::run(&sh, &arguments),
        Task::Header(arguments) => header::run(&sh.current_dir(), &arguments),
        Task::Aborts(arguments) => aborts::run(&sh, &arguments),
        Task::Litmus(arguments) => litmus::run(&sh, &arguments),
        Task::Lint(arguments) => lint::run(&sh, &arguments),
        Task::Model(arguments) => model::run(&sh, &arguments),
        Task::Mutants(arguments) => mutants::run(&sh, &arguments),
        Task::Degraded(arguments) => degraded::run(&sh, &arguments),
        Task::Vm(arguments) => vm::run(&sh, &arguments),
        Task::AppBench(arguments) => app_bench::run(&sh, &arguments),
        Task::BenchC(arguments) => bench_c::run(&sh, &arguments),
    }
}
