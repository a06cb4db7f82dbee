//! `thiscpu-aborts`: aborts each section of the library at each of its instructions, and shows that the
//! op then happens exactly once.
//!
//! A breakpoint stands at an instruction of a section's copy while an op runs. When the op comes there
//! the kernel aborts the section, and the breakpoint's handler does something that conflicts: another
//! op on the same lane, a move to another CPU, a flip of the gate. Then the op goes on, and must have
//! happened exactly once, on top of that. Without the conflict nothing would be shown: a value that
//! was loaded too early would still be the right one.
//!
//! Every inlined copy in this program is driven, in both tiers that have sections, and one that no op
//! comes through fails the run. Build it with the release profile: others may leave copies in that
//! nobody calls.

mod all;
mod copies;
mod cpus;
mod drive;
#[cfg(feature = "c")]
mod inlined;
mod lane;
mod memory;
mod ops;
mod point;
mod report;
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

/// Exit status when something did not happen exactly once, or was not driven.
const FAILED: u8 = 1;
/// Exit status when nothing was driven, because it cannot be here; clap's too.
const REFUSED: u8 = 2;

/// Aborts each section of thiscpu at each of its instructions, while something conflicts
///
/// Exits with 0 if all ops happened exactly once, with 1 if not, and with 2 if there are no sections
/// to abort on this machine. THISCPU_TIER restricts it to one tier.
#[derive(Debug, Parser)]
#[command(name = "thiscpu-aborts", version)]
struct Arguments {
    /// Only the sections whose names contain this, such as `u64::` or `pop`
    #[arg(default_value = "")]
    filter: String,
    /// Prints the names of the sections in this program, and drives nothing
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
    let copies = copies::all(&Memory::open()?)?;
    let names: std::collections::BTreeSet<_> = copies.iter().map(|copy| &copy.name).collect();
    names.iter().for_each(|name| println!("{name}"));
    Ok(ExitCode::SUCCESS)
}

/// Runs this program once more for each tier that has sections, because a process has one.
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
    // A tier that this machine does not have is not a failure; that it has none is nothing to go by.
    let worst = codes.iter().copied().filter(|&code| code != REFUSED).max();
    Ok(ExitCode::from(worst.unwrap_or(REFUSED)))
}

fn in_this_process(filter: &str) -> Result<ExitCode> {
    let tier = thiscpu::tier()?;
    anyhow::ensure!(tier != Tier::Atomic, "the atomic tier has no sections");
    let (memory, cpus) = (Memory::open()?, Cpus::find()?);
    let fine = match all::run(memory, cpus, filter) {
        Ok(report) => {
            print!("{}", report.text(tier.name()));
            report.is_fine()
        }
        Err(error) => {
            println!("FAILED {tier}: {error:#}");
            false
        }
    };
    Ok(if fine { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}
