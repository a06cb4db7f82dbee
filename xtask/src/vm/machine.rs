//! The emulated machines.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use xshell::Shell;

use super::apt::Apt;
use super::programs::SYSROOT_COMPILER;
use crate::arch::Arch;
use crate::arguments::display_as_argument;
use crate::tools::{CROSS_GCC, Tool};

/// A kernel of Debian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kernel {
    /// Without `mm_cid`: its best tier is `rseq-cpu`
    #[value(name = "6.1")]
    V6_1,
    /// With `mm_cid`: its best tier is `rseq-cid`
    #[value(name = "6.12")]
    V6_12,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    pub(crate) arch: Arch,
    pub(crate) kernel: Kernel,
    pub(crate) cpus: usize,
    nodes: usize,
    memory_mib: usize,
}

const fn x86(kernel: Kernel, cpus: usize, nodes: usize) -> Machine {
    Machine { arch: Arch::X86_64, kernel, cpus, nodes, memory_mib: 4096 }
}

pub(crate) const ALL: [Machine; 5] = [
    x86(Kernel::V6_1, 16, 2),
    x86(Kernel::V6_12, 16, 2),
    x86(Kernel::V6_1, 64, 4),
    x86(Kernel::V6_12, 64, 4),
    Machine { arch: Arch::Aarch64, kernel: Kernel::V6_1, cpus: 8, nodes: 1, memory_mib: 2048 },
];

/// Returns the tools that emulation of an architecture needs.
pub(crate) fn tools(arch: Arch) -> Vec<Tool> {
    let tool = |program, package| Tool { program, package };
    let mut tools = match arch {
        Arch::X86_64 => vec![tool("qemu-system-x86_64", "qemu-system-x86")],
        Arch::Aarch64 => vec![
            tool("qemu-system-aarch64", "qemu-system-arm"),
            tool(SYSROOT_COMPILER, "rustc-web"),
            CROSS_GCC,
        ],
    };
    tools.extend([tool("cpio", "cpio"), tool("apt-get", "apt"), tool("dpkg-deb", "dpkg")]);
    tools
}

impl Machine {
    /// Returns the tiers that its kernel offers.
    pub(crate) fn tiers(&self) -> &'static [&'static str] {
        match self.kernel {
            Kernel::V6_1 => &["rseq-cpu", "atomic"],
            Kernel::V6_12 => &["rseq-cid", "rseq-cpu", "atomic"],
        }
    }

    pub(crate) fn file_name(&self) -> String {
        format!("{}-{}-{}", self.arch, self.kernel, self.cpus).replace('.', "_")
    }

    /// Returns the path of the kernel's image; downloads it if necessary.
    pub(crate) fn kernel_image(&self, sh: &Shell, apt: &Apt) -> Result<PathBuf> {
        let (newest, backports) = match (self.kernel, self.arch) {
            (Kernel::V6_1, Arch::X86_64) => ("linux-image-amd64", false),
            (Kernel::V6_1, Arch::Aarch64) => ("linux-image-arm64", false),
            (Kernel::V6_12, Arch::X86_64) => ("linux-image-cloud-amd64", true),
            (Kernel::V6_12, Arch::Aarch64) => ("linux-image-cloud-arm64", true),
        };
        let boot = apt.kernel(newest, self.arch, backports)?.join("boot");
        let is_image = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz-"))
        };
        let files = sh.read_dir(&boot)?;
        files
            .into_iter()
            .find(is_image)
            .with_context(|| format!("no kernel image in {}", boot.display()))
    }

    /// Returns the command that emulates it.
    pub(crate) fn qemu(&self, kernel: &Path, initramfs: &Path) -> Command {
        let mut qemu = Command::new(format!("qemu-system-{}", self.arch));
        // KVM is not used, because it is hard to tell beforehand whether it works.
        qemu.args(["-accel", "tcg,thread=multi", "-cpu", "max", "-nographic", "-no-reboot"]);
        qemu.arg("-m").arg(format!("{}M", self.memory_mib));
        let own = match self.arch {
            // QEMU before 8.0 corrupts the flags after some cmpxchg16b, and an interrupt at that
            // moment crashes the kernel. The kernel works without the instruction; processes still
            // have it.
            Arch::X86_64 => "console=ttyS0 clearcpuid=cx16",
            Arch::Aarch64 => "console=ttyAMA0",
        };
        if self.arch == Arch::Aarch64 {
            qemu.args(["-M", "virt,gic-version=3"]);
        }
        let cores = self.cpus / self.nodes;
        qemu.arg("-smp").arg(format!("{},sockets={},cores={cores}", self.cpus, self.nodes));
        for node in 0..self.nodes {
            let (first, size) = (node * cores, self.memory_mib / self.nodes);
            qemu.arg("-object").arg(format!("memory-backend-ram,id=m{node},size={size}M"));
            qemu.arg("-numa").arg(format!(
                "node,nodeid={node},cpus={first}-{},memdev=m{node}",
                first + cores - 1
            ));
        }
        qemu.arg("-kernel").arg(kernel).arg("-initrd").arg(initramfs);
        qemu.arg("-append").arg(format!("{own} quiet panic=-1"));
        qemu
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} CPUs, kernel {}", self.arch, self.cpus, self.kernel)
    }
}

display_as_argument!(Kernel);
