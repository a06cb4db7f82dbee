//! `cargo xtask app-bench`: run applications on each preloaded allocator, and compare results, time
//! and memory.
//!
//! Each program first runs on the system's allocator, and its output then is the expected output of
//! each later run. Each round runs all allocators, in another order than the round before.

mod allocator;
mod cxx;
mod gcc;
mod git;
mod java;
mod measure;
mod mimalloc;
mod postgres;
mod program;
mod redis;
mod report;
mod results;
mod run;
mod rust;
mod scripts;
mod series;
mod server;
mod trial;
mod xz;

use std::fmt::Display;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use xshell::Shell;

use self::allocator::{Allocator, Choice};
use self::program::Program;
use self::run::Scale;
use self::trial::Trial;
use crate::tools;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only these allocators [default: all]
    #[arg(long = "allocator", value_name = "NAME")]
    allocators: Vec<Choice>,
    /// Only these programs [default: all]
    #[arg(long = "program", value_name = "NAME")]
    programs: Vec<Program>,
    /// Run each program on each allocator this often
    ///
    /// The default is 5, and 15 with --hardened or --profiled.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Start no further round that would end after this many minutes; one always runs
    #[arg(long, default_value_t = 9)]
    minutes: u64,
    /// Measure the cost of hardening: only thiscpu and thiscpu-hardened, in turns
    #[arg(long, conflicts_with_all = ["allocators", "quick"])]
    hardened: bool,
    /// Measure the cost of heap profiles: only thiscpu and thiscpu-profiled, in turns
    #[arg(long, conflicts_with_all = ["allocators", "quick"])]
    profiled: bool,
    /// Run one round with small inputs, and compare results only
    #[arg(long, conflicts_with = "rounds")]
    quick: bool,
}

pub(crate) fn run(sh: &Shell, arguments: &Arguments) -> Result<()> {
    let mut missing: Vec<String> = Vec::new();
    let variants = [
        (arguments.hardened, Choice::ThiscpuHardened),
        (arguments.profiled, Choice::ThiscpuProfiled),
    ];
    let variants = variants.into_iter().filter_map(|(is_asked, one)| is_asked.then_some(one));
    let mut requested: Vec<_> = variants.collect();
    let compares_variants = !requested.is_empty();
    match compares_variants {
        true => requested.insert(0, Choice::Thiscpu),
        false => requested.clone_from(&arguments.allocators),
    }
    let find = |choice| Allocator::find(sh, choice);
    let allocators = installed(&requested, &mut missing, find)?;
    let find = |program: Program| {
        let task = format!("app-bench: {program}");
        Ok(tools::are_here(sh, &task, program.parts().tools)?.then_some(program))
    };
    let programs = installed(&arguments.programs, &mut missing, find)?;
    let (scale, rounds) = match arguments.quick {
        true => (Scale::Quick, 1),
        false => (Scale::Full, arguments.rounds.unwrap_or(if compares_variants { 15 } else { 5 })),
    };
    let directory = sh.create_dir("target/app-bench")?.canonicalize()?;
    let mut trial = Trial::new(directory, scale);
    trial.prepare(&programs);
    let limit = Duration::from_secs(arguments.minutes.saturating_mul(60));
    let (series, rounds) = trial.rounds(&programs, &allocators, rounds, limit);
    match scale {
        Scale::Full => {
            print!("{}{}", report::heading(&allocators, rounds), report::tables(&series, rounds));
        }
        Scale::Quick => {
            let runs: usize = series.iter().map(|one| one.costs.len()).sum();
            println!("runs with equal results: {runs}");
        }
    }
    trial.verdict(&programs)?;
    // Figures without the missing programs or allocators are not those that were requested.
    let is_whole = scale == Scale::Quick || missing.is_empty();
    ensure!(is_whole, "not measured, because missing: {}", missing.join(", "));
    Ok(())
}

/// Returns the results of `find` for `chosen`, or for all values if there are none.
///
/// Adds those to `missing` that are not installed.
fn installed<T: ValueEnum + PartialEq + Copy + Display, R>(
    chosen: &[T],
    missing: &mut Vec<String>,
    find: impl Fn(T) -> Result<Option<R>>,
) -> Result<Vec<R>> {
    let is_chosen = |one: &&T| chosen.is_empty() || chosen.contains(one);
    let mut found = Vec::new();
    for &one in T::value_variants().iter().filter(is_chosen) {
        match find(one)? {
            Some(one) => found.push(one),
            None => missing.push(one.to_string()),
        }
    }
    Ok(found)
}
