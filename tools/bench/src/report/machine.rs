//! The machine that figures were measured on.

use serde::{Deserialize, Serialize};
use sysinfo::{CpuRefreshKind, MemoryRefreshKind, RefreshKind, System};

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
            cpus_online: info.cpus_online.as_ref().map_or(0, thiscpu::CpuSet::len),
            memory_bytes: system.total_memory(),
            kernel: System::kernel_version().unwrap_or_default(),
            architecture: std::env::consts::ARCH.to_owned(),
            tier: info.tier.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_tells_its_facts() {
        let machine = Machine::ask().unwrap();
        assert!(machine.cpus_allowed >= 1);
        assert!(machine.memory_bytes > 1 << 20);
        assert!(machine.kernel.starts_with(|c: char| c.is_ascii_digit()), "{machine:?}");
        assert!(!machine.tier.is_empty());
    }
}
