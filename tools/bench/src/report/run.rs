//! The facts of a run: when, by which command, with which build, on which machine.

use std::env;

use anyhow::{Context as _, Result};
use jiff::{Timestamp, Unit};
use serde::{Deserialize, Serialize};
use sysinfo::{CpuRefreshKind, MemoryRefreshKind, RefreshKind, System};

use crate::{contenders::allocators, plan::Plan};

/// The variable that forces a tier, and so belongs to the command.
const TIER: &str = "THISCPU_TIER";

/// All facts of a run but its figures.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Run {
    /// When it began, in RFC 3339, to the second.
    pub(super) date: String,
    /// The command that repeats it in a checkout of this project.
    pub(super) command: String,
    pub(super) rounds: u32,
    pub(super) seconds_per_slice: f64,
    pub(super) cases: usize,
    /// The reasons why contenders could not run.
    pub(super) unavailable: Vec<String>,
    pub(super) machine: Machine,
    pub(super) build: Build,
}

/// The program that measured.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Build {
    /// Its version, and the library's.
    pub(super) thiscpu: String,
    pub(super) is_optimized: bool,
    /// The other allocators that are built in, with their versions.
    pub(super) allocators: Vec<String>,
}

/// The facts that the machine tells. Those that it does not tell are empty.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Machine {
    /// The model of the first CPU.
    pub(super) cpu: String,
    pub(super) cpus_allowed: usize,
    pub(super) cpus_online: usize,
    pub(super) memory_bytes: u64,
    /// The kernel's release.
    pub(super) kernel: String,
    pub(super) architecture: String,
    /// The tier that the library ran on.
    pub(super) tier: String,
}

impl Machine {
    /// Asks the kernel and the library; fails if the library cannot run here.
    pub(super) fn ask() -> Result<Self, thiscpu::Error> {
        let info = thiscpu::system_info()?;
        let wanted = RefreshKind::nothing()
            .with_cpu(CpuRefreshKind::nothing())
            .with_memory(MemoryRefreshKind::nothing().with_ram());
        let system = System::new_with_specifics(wanted);
        let cpu = system.cpus().first().map(|cpu| cpu.brand().trim().to_owned());
        Ok(Self {
            cpu: cpu.unwrap_or_default(),
            cpus_allowed: info.cpus_allowed.len(),
            cpus_online: info.cpus_online.as_deref().map_or(0, thiscpu::CpuSet::len),
            memory_bytes: system.total_memory(),
            kernel: System::kernel_version().unwrap_or_default(),
            architecture: std::env::consts::ARCH.to_owned(),
            tier: info.tier.to_string(),
        })
    }
}

impl Run {
    pub(super) fn new(plan: &Plan, arguments: impl IntoIterator<Item = String>) -> Result<Self> {
        let now = Timestamp::now().round(Unit::Second).context("cannot tell the time")?;
        let build = Build {
            thiscpu: env!("CARGO_PKG_VERSION").to_owned(),
            is_optimized: !cfg!(debug_assertions),
            allocators: allocators::versions(),
        };
        let tier = env::var(TIER).ok();
        Ok(Self {
            date: now.to_string(),
            command: command(&build, tier.as_deref(), arguments),
            rounds: plan.rounds,
            seconds_per_slice: plan.seconds,
            cases: plan.cases.len(),
            unavailable: plan.unavailable.clone(),
            machine: Machine::ask()?,
            build,
        })
    }
}

/// Returns the shell command that builds the same program and runs it with these arguments.
fn command(
    build: &Build,
    tier: Option<&str>,
    arguments: impl IntoIterator<Item = String>,
) -> String {
    let tier = tier.map(|tier| format!("{TIER}={} ", quoted(tier))).unwrap_or_default();
    let profile = if build.is_optimized { " --release" } else { "" };
    // The C library's is in every build.
    let has_others = build.allocators.len() > 1;
    let features = if has_others { " --features other-allocators" } else { "" };
    let arguments: String =
        arguments.into_iter().map(|argument| format!(" {}", quoted(&argument))).collect();
    format!("{tier}cargo run{profile} -p {}{features} --{arguments}", env!("CARGO_PKG_NAME"))
}

/// Quotes a word for the shell. It fails only on NUL, which no argument of a process has.
fn quoted(word: &str) -> String {
    shlex::try_quote(word).map_or_else(|_| word.to_owned(), |word| word.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(is_optimized: bool, allocators: &[&str]) -> Build {
        let allocators = allocators.iter().map(|&name| name.to_owned()).collect();
        Build { thiscpu: "0.1.0".to_owned(), is_optimized, allocators }
    }

    #[test]
    fn machine_tells_its_facts() {
        let machine = Machine::ask().unwrap();
        assert!(machine.cpus_allowed >= 1);
        assert!(machine.memory_bytes > 1 << 20);
        assert!(machine.kernel.starts_with(|c: char| c.is_ascii_digit()), "{machine:?}");
        assert!(!machine.tier.is_empty());
    }

    #[test]
    fn command_makes_the_same_build_and_quotes_its_arguments() {
        let arguments = ["bench", "add", "--report", "a dir;"].map(str::to_owned);
        let with_others = build(true, &["glibc 2", "mimalloc 3"]);
        assert_eq!(
            command(&with_others, Some("atomic"), arguments),
            "THISCPU_TIER=atomic cargo run --release -p thiscpu-bench \
             --features other-allocators -- bench add --report 'a dir;'"
        );
        let plain = build(false, &["glibc 2"]);
        assert_eq!(
            command(&plain, None, ["bench".to_owned()]),
            "cargo run -p thiscpu-bench -- bench"
        );
    }
}
