//! `thiscpu-aborts`: abort each section of the library at each of its instructions.
//!
//! A breakpoint stands at an instruction of a section's copy while an operation runs. When the
//! operation reaches it, the kernel aborts the section, and the breakpoint's handler causes a
//! conflict: another operation on the same lane, a move to another CPU, a flip of the gate. Then
//! the operation continues. It must have happened exactly once, on top of the conflict. Without a
//! conflict nothing would be shown: a value that was loaded too early would still be right.
//!
//! Every inlined copy in this program is driven, in both tiers that have sections. A copy that no
//! operation executes fails the run. Build the program with the release profile: other profiles may
//! leave copies that are never called.

mod copies;
mod cpus;
mod driver;
#[cfg(feature = "c")]
mod inlined;
mod lane;
mod memory;
mod ops;
mod point;
mod report;
mod run_case;
mod subject;
mod subjects;
mod trap;

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitCode};

use anyhow::Result;
use clap::Parser;
use thiscpu::Tier;

use cpus::Cpus;
use memory::Memory;

/// The exit status when an operation did not happen exactly once, or a copy was not driven.
const FAILED: u8 = 1;
/// The exit status when nothing can be driven here; also clap's.
const REFUSED: u8 = 2;

/// Abort each section of thiscpu at each of its instructions, under conflicts
///
/// Exit status: 0 if every operation happened exactly once, 1 if not, 2 if this machine cannot run
/// sections. THISCPU_TIER restricts the run to one tier.
#[derive(Debug, Parser)]
#[command(name = "thiscpu-aborts", version)]
struct Arguments {
    /// Only the section of this name, or all whose names contain it, such as `pop` or `u64::`
    #[arg(default_value = "")]
    filter: String,
    /// Print the names of the sections in this program, and drive nothing
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let forced = std::env::var_os("THISCPU_TIER").is_some_and(|tier| !tier.is_empty());
    let result = match arguments.list {
        true => list(),
        false if forced => in_this_process(&arguments.filter),
        false => in_each_tier(&arguments.filter),
    };
    result.unwrap_or_else(|error| {
        eprintln!("thiscpu-aborts: {error:#}");
        ExitCode::from(REFUSED)
    })
}

fn list() -> Result<ExitCode> {
    let copies = copies::all()?;
    let names: std::collections::BTreeSet<_> = copies.iter().map(|copy| &copy.name).collect();
    names.iter().for_each(|name| println!("{name}"));
    Ok(ExitCode::SUCCESS)
}

/// Runs this program again for each tier that has sections, because a process has one tier.
fn in_each_tier(filter: &str) -> Result<ExitCode> {
    let this = std::env::current_exe()?;
    let mut codes = Vec::new();
    for tier in [Tier::RseqCid, Tier::RseqCpu] {
        let mut command = Command::new(&this);
        let status = command.arg(filter).env("THISCPU_TIER", tier.name()).status()?;
        if let Some(signal) = status.signal() {
            println!("FAILED {tier}: killed by signal {signal}");
        }
        codes.push(status.code().map_or(FAILED, |code| code as u8));
    }
    // A tier that this machine lacks is no failure, unless it lacks both.
    let worst = codes.iter().copied().filter(|&code| code != REFUSED).max();
    Ok(ExitCode::from(worst.unwrap_or(REFUSED)))
}

fn in_this_process(filter: &str) -> Result<ExitCode> {
    let tier = thiscpu::tier()?;
    anyhow::ensure!(tier != Tier::Atomic, "the atomic tier has no sections");
    let (memory, cpus) = (Memory::open()?, Cpus::find()?);
    let passed = match driver::run(memory, cpus, filter) {
        Ok(report) => {
            print!("{}", report.text(tier.name()));
            report.has_passed()
        }
        Err(error) => {
            println!("FAILED {tier}: {error:#}");
            false
        }
    };
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}
