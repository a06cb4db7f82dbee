//! `cargo xtask app-bench`: run applications on each preloaded allocator, and compare results, time
//! and memory.
//!
//! Each program first runs on the system's allocator, and its output then is the expected output of
//! each later run. Each round runs all allocators, in another order than the round before.

mod allocator;
mod gcc;
mod git;
mod measure;
mod mimalloc;
mod program;
mod redis;
mod report;
mod results;
mod run;
mod scripts;
mod series;
mod trial;
mod xz;

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
    /// Run each program on each allocator this often [default: 5, with --hardened 15]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Start no further round that would end after so many minutes; there is always one
    #[arg(long, default_value_t = 9)]
    minutes: u64,
    /// Measure the cost of hardening: only thiscpu and thiscpu-hardened, in turns
    #[arg(long, conflicts_with_all = ["allocators", "quick"])]
    hardened: bool,
    /// Run one round with small inputs, and compare results only
    #[arg(long, conflicts_with = "rounds")]
    quick: bool,
}

pub(crate) fn run(sh: &Shell, arguments: &Arguments) -> Result<()> {
    let mut missing: Vec<String> = Vec::new();
    let allocators = allocators(sh, arguments, &mut missing)?;
    let programs = programs(sh, arguments, &mut missing)?;
    let (scale, rounds) = match arguments.quick {
        true => (Scale::Quick, 1),
        // Either takes less than ten minutes on an idle machine.
        false => (Scale::Full, arguments.rounds.unwrap_or(if arguments.hardened { 15 } else { 5 })),
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

/// Returns the requested allocators that are installed, and adds the others to `missing`.
fn allocators(
    sh: &Shell,
    arguments: &Arguments,
    missing: &mut Vec<String>,
) -> Result<Vec<Allocator>> {
    let requested = match arguments.hardened {
        true => &[Choice::Thiscpu, Choice::ThiscpuHardened][..],
        false => &arguments.allocators,
    };
    let mut found = Vec::new();
    for choice in all_if_none(requested) {
        match Allocator::find(sh, choice)? {
            Some(allocator) => found.push(allocator),
            None => missing.push(choice.to_string()),
        }
    }
    Ok(found)
}

/// Returns the requested programs that are installed, and adds the others to `missing`.
fn programs(sh: &Shell, arguments: &Arguments, missing: &mut Vec<String>) -> Result<Vec<Program>> {
    let mut found = Vec::new();
    for program in all_if_none(&arguments.programs) {
        match tools::are_here(sh, &format!("app-bench: {program}"), program.parts().tools)? {
            true => found.push(program),
            false => missing.push(program.to_string()),
        }
    }
    Ok(found)
}

/// Returns each of `chosen` once, or all values if there are none.
fn all_if_none<T: ValueEnum + Copy + PartialEq>(chosen: &[T]) -> Vec<T> {
    let is_chosen = |one: &&T| chosen.is_empty() || chosen.contains(one);
    T::value_variants().iter().filter(is_chosen).copied().collect()
}
