//! `cargo xtask programs`: real programs on each allocator, preloaded: whether they do the same, in what time and memory.
//!
//! Each program first runs on the system's allocator, and what it writes then is what each later run has to write. In
//! each round each allocator has its turn, in another order than in the round before.

mod allocator;
mod gcc;
mod git;
mod measure;
mod program;
mod random;
mod redis;
mod report;
mod results;
mod run;
mod scripts;
mod trial;
mod xz;

use anyhow::Result;
use clap::ValueEnum;
use xshell::Shell;

use self::allocator::{Allocator, Choice};
use self::program::{Program, Scale};
use self::trial::Trial;
use crate::tools;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only this allocator, or these [default: all]
    #[arg(long = "allocator", value_name = "NAME")]
    allocators: Vec<Choice>,
    /// Only this program, or these [default: all]
    #[arg(long = "program", value_name = "NAME")]
    programs: Vec<Program>,
    /// How many times each program runs on each allocator
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// One round with little to do, which shows whether results are the same, and no times
    #[arg(long, conflicts_with = "rounds")]
    quick: bool,
}

pub(crate) fn run(sh: &Shell, arguments: &Arguments) -> Result<()> {
    let mut allocators = Vec::new();
    for choice in all_if_none(&arguments.allocators) {
        allocators.extend(Allocator::find(sh, choice)?);
    }
    let mut programs = Vec::new();
    for program in all_if_none(&arguments.programs) {
        if tools::are_here(sh, &format!("programs: {program}"), program.tools())? {
            programs.push(program);
        }
    }
    let (scale, rounds) = match arguments.quick {
        true => (Scale::Quick, 1),
        false => (Scale::Full, arguments.rounds),
    };
    let directory = sh.create_dir("target/programs")?.canonicalize()?;
    let mut trial = Trial::new(directory, scale);
    trial.prepare(&programs);
    let series = trial.rounds(&programs, &allocators, rounds);
    match scale {
        Scale::Full => print!("{}", report::tables(&series)),
        Scale::Quick => println!("runs with the same results: {}", report::runs(&series)),
    }
    trial.verdict(&programs)
}

/// Each of `chosen` once, or all there are.
fn all_if_none<T: ValueEnum + Copy + PartialEq>(chosen: &[T]) -> Vec<T> {
    let is_chosen = |one: &&T| chosen.is_empty() || chosen.contains(one);
    T::value_variants().iter().filter(is_chosen).copied().collect()
}
