//! What the figures were measured on.

use serde::Serialize;
use sysinfo::{CpuRefreshKind, MemoryRefreshKind, RefreshKind, System};

/// The machine, as far as it tells. An empty text is what it did not tell.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    /// The model of the first CPU.
    pub(crate) cpu: String,
    /// How many CPUs the process may run on.
    pub(crate) cpus_allowed: usize,
    /// How many are online.
    pub(crate) cpus_online: usize,
    /// How much memory there is.
    pub(crate) memory_bytes: u64,
    /// The kernel's release.
    pub(crate) kernel: String,
    /// The instruction set.
    pub(crate) architecture: &'static str,
    /// What the library ran on.
    pub(crate) tier: String,
}

impl Machine {
    /// Asks the kernel, and the library.
    ///
    /// # Errors
    ///
    /// When the library cannot run here.
    pub(crate) fn ask() -> Result<Self, thiscpu::Error> {
        let report = thiscpu::system_info()?;
        let wanted = RefreshKind::nothing()
            .with_cpu(CpuRefreshKind::nothing())
            .with_memory(MemoryRefreshKind::nothing().with_ram());
        let system = System::new_with_specifics(wanted);
        let cpu = system.cpus().first().map(|cpu| cpu.brand().trim().to_owned());
        Ok(Self {
            cpu: cpu.unwrap_or_default(),
            cpus_allowed: report.cpus_allowed.len(),
            cpus_online: report.cpus_online.as_ref().map_or(0, thiscpu::CpuSet::len),
            memory_bytes: system.total_memory(),
            kernel: System::kernel_version().unwrap_or_default(),
            architecture: std::env::consts::ARCH,
            tier: report.tier.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_tells() {
        let machine = Machine::ask().unwrap();
        assert!(machine.cpus_allowed >= 1);
        assert!(machine.memory_bytes > 1 << 20);
        assert!(machine.kernel.starts_with(|c: char| c.is_ascii_digit()), "{machine:?}");
        assert!(!machine.tier.is_empty());
    }
}
