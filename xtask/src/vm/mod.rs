//! `cargo xtask vm`: emulated machines with many CPUs, which go offline and come back during the
//! run.
//!
//! They show behavior, never speed: processors are emulated, on the few CPUs that this machine has.

mod apt;
mod boot;
mod console;
mod initramfs;
mod machine;
mod programs;
mod steps;

use std::path::PathBuf;

use anyhow::{Result, ensure};
use xshell::Shell;

use self::apt::Apt;
use self::machine::{Kernel, Machine};
pub(crate) use self::programs::SYSROOT_COMPILER;
use crate::arch::Arch;
use crate::tools;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only machines of this architecture
    arch: Option<Arch>,
    /// Only machines with this kernel
    #[arg(long)]
    kernel: Option<Kernel>,
    /// Only machines with this number of CPUs
    #[arg(long)]
    cpus: Option<usize>,
    /// Run `thiscpu-torture` for this many seconds in each tier
    #[arg(long, default_value_t = 3)]
    seconds: u32,
    /// Run all tests instead of a selection, which takes hours
    #[arg(long)]
    full: bool,
    /// Stop a machine after this many minutes [default: 20, with --full 600]
    #[arg(long)]
    minutes: Option<u64>,
}

/// Returns the sysroot with Debian's standard library for arm64, which is downloaded once.
///
/// Only [`SYSROOT_COMPILER`] can use it.
pub(crate) fn sysroot(sh: &Shell) -> Result<PathBuf> {
    let directory = sh.current_dir().join("target/vm");
    sh.create_dir(&directory)?;
    programs::sysroot(sh, &Apt::new(sh, directory.join("apt")))
}

pub(crate) fn run(sh: &Shell, arguments: &Arguments) -> Result<()> {
    let machines: Vec<&Machine> = machine::ALL.iter().filter(|m| arguments.includes(m)).collect();
    ensure!(
        !machines.is_empty(),
        "no such machine; known: {}",
        machine::ALL.map(|machine| machine.to_string()).join("; ")
    );
    let directory = sh.current_dir().join("target/vm");
    sh.create_dir(&directory)?;
    let apt = Apt::new(sh, directory.join("apt"));
    let mut failed = Vec::new();
    for arch in Arch::ALL {
        let machines: Vec<_> = machines.iter().filter(|machine| machine.arch == arch).collect();
        if machines.is_empty()
            || !tools::are_here(sh, &format!("vm {arch}"), &machine::tools(arch))?
        {
            continue;
        }
        let programs = programs::build(sh, &apt, arch)?;
        for machine in machines {
            let outcome = run_machine(sh, &apt, machine, &programs, arguments, &directory);
            if let Err(error) = outcome {
                eprintln!("{machine}: {error:#}");
                failed.push(machine.to_string());
            }
        }
    }
    ensure!(failed.is_empty(), "failed: {}", failed.join("; "));
    Ok(())
}

fn run_machine(
    sh: &Shell,
    apt: &Apt,
    machine: &Machine,
    programs: &[PathBuf],
    arguments: &Arguments,
    directory: &std::path::Path,
) -> Result<()> {
    let steps = steps::of(machine, arguments);
    let kernel = machine.kernel_image(sh, apt)?;
    let initramfs = initramfs::build(sh, apt, machine, programs, &steps, directory)?;
    let minutes = arguments.minutes.unwrap_or(if arguments.full { 600 } else { 20 });
    boot::run(
        &machine.qemu(&kernel, &initramfs),
        &directory.join(machine.file_name()).with_extension("log"),
        console::Reader::new(machine.to_string(), &steps),
        60 * minutes,
    )
}

impl Arguments {
    fn includes(&self, machine: &Machine) -> bool {
        self.arch.is_none_or(|arch| arch == machine.arch)
            && self.kernel.is_none_or(|kernel| kernel == machine.kernel)
            && self.cpus.is_none_or(|cpus| cpus == machine.cpus)
    }
}
