//! `cargo xtask bench-c`: what an add costs in C.
//!
//! Each figure is of a process of its own, which adds for a slice of time. Rounds are interleaved: each measures every contender
//! once, so that ratios are of slices that follow each other. An add is a few instructions, and where in a line of 64 bytes its branches
//! happen to lie makes up to a factor of two for whoever has bad luck. So from round to round all loops begin elsewhere.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use comfy_table::{CellAlignment, Table, presets};
use xshell::{Shell, cmd};

use crate::cargo;
use crate::stats::{largest, least, median};
use crate::tools::{Tool, are_here};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// How often everything is measured, each time with the loops in another place
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How long a contender adds, each time
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    milliseconds: u32,
}

const CRATE: &str = "crates/thiscpu-capi";
/// The first is what the others are compared with. As `bench/add.c` calls them.
const CONTENDERS: [&str; 6] =
    ["librseq-style", "word", "counter", "word-call", "counter-call", "atomic"];

/// Of each contender, a round after the other.
type Figures = [Vec<f64>; CONTENDERS.len()];

/// Where loops begin, in instructions from a multiple of 64 bytes.
const PLACES: [u32; 8] = [0, 8, 16, 24, 32, 40, 48, 56];

/// The program, as one compiler made it.
struct Program {
    name: String,
    /// In each of the places.
    paths: Vec<PathBuf>,
}

pub(crate) fn run(sh: &Shell, arguments: &Arguments) -> Result<()> {
    let tools = ["gcc", "clang"].map(|program| Tool { program, package: program });
    let compilers: Vec<_> = tools
        .into_iter()
        .filter(|&tool| are_here(sh, "bench-c", &[tool]).unwrap_or(false))
        .map(|tool| tool.program)
        .collect();
    ensure!(!compilers.is_empty(), "there is no compiler for C");
    cmd!(sh, "cargo build --quiet --release --package thiscpu-capi").run()?;
    let programs = compile(sh, &compilers)?;
    let cpus = cpus(sh)?;
    println!(
        "Nanoseconds of an add, medians of {} rounds of {} ms each; and medians of the ratios of each round to that of {},\n\
         smallest to largest. Threads are pinned to CPUs {}.\n",
        arguments.rounds,
        arguments.milliseconds,
        CONTENDERS[0],
        cpus.join(", "),
    );
    for threads in (0..2.min(cpus.len())).map(|last| last + 1) {
        let on = cpus[..threads].join(",");
        let plural = if threads == 1 { "" } else { "s" };
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN);
        let header = CONTENDERS.map(str::to_owned);
        table.set_header([format!("{threads} thread{plural}")].into_iter().chain(header));
        let mut all: Figures = Default::default();
        for program in &programs {
            eprintln!("{}, {threads} thread{plural}", program.name);
            let figures = measure(sh, program, &on, arguments)?;
            table.add_row(row(&program.name, &figures));
            all.iter_mut().zip(&figures).for_each(|(all, figures)| all.extend(figures));
        }
        table.add_row(row("all of them", &all));
        table.column_iter_mut().skip(1).for_each(|it| it.set_cell_alignment(CellAlignment::Right));
        println!("{table}\n");
    }
    Ok(())
}

/// With each compiler, linked both ways.
fn compile(sh: &Shell, compilers: &[&str]) -> Result<Vec<Program>> {
    let built = cargo::target_directory(sh).join("release");
    let here = built.join("bench-c");
    sh.create_dir(&here)?;
    // By the name that the program is to find.
    sh.copy_file(built.join("libthiscpu_capi.so"), here.join("libthiscpu.so"))?;
    let soname = here.join(format!("libthiscpu.so.{}", crate::install::interface()));
    sh.copy_file(built.join("libthiscpu_capi.so"), soname)?;
    let mut programs = Vec::new();
    for compiler in compilers {
        for linked in ["shared", "static"] {
            let libraries: Vec<OsString> = match linked {
                "shared" => vec![
                    "-L".into(),
                    here.clone().into(),
                    "-lthiscpu".into(),
                    "-Wl,-rpath,$ORIGIN".into(),
                ],
                _ => vec![
                    built.join("libthiscpu_capi.a").into(),
                    "-lgcc_s".into(),
                    "-lm".into(),
                    "-ldl".into(),
                ],
            };
            let mut paths = Vec::new();
            for place in PLACES {
                let path = here.join(format!("add-{compiler}-{linked}-{place}"));
                let place = format!("-DPLACE={place}");
                cmd!(sh, "{compiler} -O2 -std=c11 -pthread -I {CRATE}/include {place}")
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

/// The CPUs that may be used.
fn cpus(sh: &Shell) -> Result<Vec<String>> {
    let status = sh.read_file("/proc/self/status")?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    parse(list.context("the kernel says on which CPUs this may run")?.trim())
}

/// The numbers of a list such as `0-3,8`.
fn parse(list: &str) -> Result<Vec<String>> {
    let mut cpus = Vec::new();
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        cpus.extend((first.parse::<u32>()?..=last.parse()?).map(|cpu| cpu.to_string()));
    }
    Ok(cpus)
}

fn measure(sh: &Shell, program: &Program, cpus: &str, arguments: &Arguments) -> Result<Figures> {
    let mut figures: Figures = Default::default();
    let milliseconds = arguments.milliseconds.to_string();
    for round in 0..arguments.rounds as usize {
        let path = &program.paths[round % PLACES.len()];
        for at in 0..CONTENDERS.len() {
            // Every other round the other way round, and the next time in the same place again.
            let turned = !(round + round / PLACES.len()).is_multiple_of(2);
            let at = if turned { CONTENDERS.len() - 1 - at } else { at };
            let contender = CONTENDERS[at];
            let said = cmd!(sh, "{path} {contender} {cpus} {milliseconds}").quiet().read()?;
            figures[at].push(said.parse().with_context(|| format!("{contender} said `{said}`"))?);
        }
    }
    Ok(figures)
}

fn row(name: &str, figures: &Figures) -> Vec<String> {
    let [base, ..] = figures;
    let cell = |own: &Vec<f64>| {
        let ratios: Vec<_> = own.iter().zip(base).map(|(own, base)| own / base).collect();
        let [time, ratio] = [median(own), median(&ratios)].map(Option::unwrap_or_default);
        let [low, high] = [least(&ratios), largest(&ratios)].map(Option::unwrap_or_default);
        match std::ptr::eq(own, base) {
            true => format!("{time:.2}"),
            false => format!("{time:.2}: {ratio:.2} ({low:.2} to {high:.2})"),
        }
    };
    [name.to_owned()].into_iter().chain(figures.iter().map(cell)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(parse("0-2,7").unwrap(), ["0", "1", "2", "7"]);
        assert!(parse("all").is_err());
    }

    #[test]
    fn ratios_are_of_rounds() {
        let figures = CONTENDERS.map(|it| match it {
            "librseq-style" => vec![1.0, 2.0, 4.0],
            _ => vec![2.0, 2.0, 2.0],
        });
        let cells = row("gcc", &figures);
        assert_eq!(cells[..3], ["gcc", "2.00", "2.00: 1.00 (0.50 to 2.00)"]);
    }
}
