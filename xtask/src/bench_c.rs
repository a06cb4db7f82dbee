//! `cargo xtask bench-c`: measure an add in C.
//!
//! Each figure comes from a process of its own, which adds for a slice of time. Each round measures
//! every contender once, so ratios compare slices that follow each other. An add is a few
//! instructions, and the place of its branches in a cache line changes its time by up to a factor
//! of two. So the loops begin at another place in each round.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use thiscpu_test_support::cpus;
use thiscpu_test_support::stats::{Spread, median, paired_ratios};
use xshell::{Shell, cmd};

use crate::cargo;
use crate::table::table;
use crate::tools::{Tool, are_here};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Measure this many times, each time with the loops at another place
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Let a contender add for so long in each round
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    milliseconds: u32,
}

const CRATE: &str = "crates/thiscpu-capi";
/// The contenders, by their names in `bench/add.c`. The others are compared with the first.
const CONTENDERS: [&str; 6] =
    ["librseq-style", "word", "counter", "word-call", "counter-call", "atomic"];

/// The times of each contender, in the order of rounds.
type Figures = [Vec<f64>; CONTENDERS.len()];

/// Where loops begin, in bytes from a multiple of 64.
const OFFSETS: [u32; 8] = [0, 8, 16, 24, 32, 40, 48, 56];

/// The program of one compiler.
struct Program {
    name: String,
    /// One for each offset.
    paths: Vec<PathBuf>,
}

pub(crate) fn run(sh: &Shell, arguments: &Arguments) -> Result<()> {
    let tools = ["gcc", "clang"].map(|program| Tool { program, package: program });
    let compilers: Vec<_> = tools
        .into_iter()
        .filter(|&tool| are_here(sh, "bench-c", &[tool]).unwrap_or(false))
        .map(|tool| tool.program)
        .collect();
    ensure!(
        !compilers.is_empty(),
        "bench-c needs gcc or clang; run `apt-get install -y gcc clang`"
    );
    cmd!(sh, "cargo build --quiet --release --package thiscpu-capi").run()?;
    let programs = compile(sh, &compilers)?;
    let cpus: Vec<_> = cpus::allowed().iter().map(usize::to_string).collect();
    println!(
        "Nanoseconds of an add: the median of {} rounds of {} ms each.\n\
         Then the median of the ratios to {} in each round (smallest to largest).\n\
         Threads are pinned to CPUs {}.\n",
        arguments.rounds,
        arguments.milliseconds,
        CONTENDERS[0],
        cpus.join(", "),
    );
    for threads in (0..2.min(cpus.len())).map(|last| last + 1) {
        let on = cpus[..threads].join(",");
        let plural = if threads == 1 { "" } else { "s" };
        let on_threads = format!("{threads} thread{plural}");
        let mut rows = Vec::new();
        let mut all: Figures = Default::default();
        for program in &programs {
            eprintln!("{}, {on_threads}", program.name);
            let figures = measure(sh, program, &on, arguments)?;
            rows.push(row(&program.name, &figures));
            all.iter_mut().zip(&figures).for_each(|(all, figures)| all.extend(figures));
        }
        rows.push(row("all programs", &all));
        let heads = [&[&*on_threads], &CONTENDERS[..]].concat();
        println!("{}\n", table(&heads, rows));
    }
    Ok(())
}

/// Compiles the program with each compiler, linked statically and dynamically.
fn compile(sh: &Shell, compilers: &[&str]) -> Result<Vec<Program>> {
    let built = cargo::target_directory(sh).join("release");
    let directory = built.join("bench-c");
    sh.create_dir(&directory)?;
    // By the names that the linker and the loader look for.
    sh.copy_file(built.join("libthiscpu_capi.so"), directory.join("libthiscpu.so"))?;
    let soname = directory.join(format!("libthiscpu.so.{}", crate::install::interface()));
    sh.copy_file(built.join("libthiscpu_capi.so"), soname)?;
    let mut programs = Vec::new();
    for compiler in compilers {
        for linked in ["shared", "static"] {
            let libraries: [OsString; 4] = match linked {
                "shared" => {
                    let path = directory.clone().into();
                    ["-L".into(), path, "-lthiscpu".into(), "-Wl,-rpath,$ORIGIN".into()]
                }
                _ => {
                    let archive = built.join("libthiscpu_capi.a").into();
                    [archive, "-lgcc_s".into(), "-lm".into(), "-ldl".into()]
                }
            };
            let mut paths = Vec::new();
            for offset in OFFSETS {
                let path = directory.join(format!("add-{compiler}-{linked}-{offset}"));
                let define = format!("-DPLACE={offset}");
                cmd!(sh, "{compiler} -O2 -std=c11 -pthread -I {CRATE}/include {define}")
                    .arg(format!("{CRATE}/bench/add.c"))
                    .arg("-o")
                    .arg(&path)
                    .args(&libraries)
                    .quiet()
                    .run()?;
                paths.push(path);
            }
            programs.push(Program { name: format!("{compiler}, {linked}"), paths });
        }
    }
    Ok(programs)
}

fn measure(sh: &Shell, program: &Program, cpus: &str, arguments: &Arguments) -> Result<Figures> {
    let mut figures: Figures = Default::default();
    let milliseconds = arguments.milliseconds.to_string();
    for round in 0..arguments.rounds as usize {
        let path = &program.paths[round % OFFSETS.len()];
        for at in 0..CONTENDERS.len() {
            // Every other round is in reverse order, so each offset has both orders.
            let reversed = !(round + round / OFFSETS.len()).is_multiple_of(2);
            let at = if reversed { CONTENDERS.len() - 1 - at } else { at };
            let contender = CONTENDERS[at];
            let output = cmd!(sh, "{path} {contender} {cpus} {milliseconds}").quiet().read()?;
            let time = output.parse();
            figures[at]
                .push(time.with_context(|| format!("{contender}: not a number: `{output}`"))?);
        }
    }
    Ok(figures)
}

fn row(name: &str, figures: &Figures) -> Vec<String> {
    let [base, ..] = figures;
    let cell = |own: &Vec<f64>| {
        let time = median(own).unwrap_or_default();
        match Spread::of(&paired_ratios(own, base)).filter(|_| !std::ptr::eq(own, base)) {
            None => format!("{time:.2}"),
            Some(Spread { median, min, max }) => {
                format!("{time:.2}: {median:.2} ({min:.2} to {max:.2})")
            }
        }
    };
    [name.to_owned()].into_iter().chain(figures.iter().map(cell)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_within_rounds() {
        let figures = CONTENDERS.map(|it| match it {
            "librseq-style" => vec![1.0, 2.0, 4.0],
            _ => vec![2.0, 2.0, 2.0],
        });
        let cells = row("gcc", &figures);
        assert_eq!(cells[..3], ["gcc", "2.00", "2.00: 1.00 (0.50 to 2.00)"]);
    }
}
