//! Processes that share no CPU, by their affinity or by cpuset cgroups.

use std::path::{Path, PathBuf};
use std::{fs, io};

use super::pin;

/// A way to keep processes apart.
pub(crate) enum Apart {
    /// Each process has the affinity of one CPU.
    ByAffinity,
    /// Each process is in a cpuset of one CPU.
    ByCpuset([Cpuset; 2]),
}

/// A cgroup with one CPU. A drop removes it, which needs that its processes have ended.
pub(crate) struct Cpuset(PathBuf);

impl Apart {
    /// Returns the ways that this machine has.
    pub(crate) fn ways() -> Vec<Apart> {
        let cpusets = Cpuset::new(0).and_then(|first| Ok([first, Cpuset::new(1)?]));
        let by_cpuset = cpusets.map(Apart::ByCpuset);
        [Apart::ByAffinity].into_iter().chain(by_cpuset).collect()
    }

    /// Confines this process, which has one thread, to the CPU of its side: 0 or 1.
    pub(crate) fn enter(&self, side: usize) {
        match self {
            Apart::ByAffinity => pin::pin(side),
            Apart::ByCpuset(cpusets) => {
                fs::write(cpusets[side].0.join("cgroup.procs"), "0").expect("a cpuset");
            }
        }
    }
}

/// Checks that this process may make cpusets of two CPUs.
pub(crate) fn can_make() -> Result<(), String> {
    pin::two_cpus()?;
    Cpuset::new(0).map(drop).map_err(|error| format!("needs cpuset cgroups: {error}"))
}

impl Cpuset {
    /// Makes a cpuset of CPU number `nth`, if this process may.
    fn new(nth: usize) -> io::Result<Cpuset> {
        // Version 1 of cgroups has a directory for each controller.
        Cpuset::below("/sys/fs/cgroup/cpuset", nth)
            .or_else(|_| Cpuset::below("/sys/fs/cgroup", nth))
    }

    fn below(root: &str, nth: usize) -> io::Result<Cpuset> {
        let root = Path::new(root);
        let cpuset = Cpuset(root.join(format!("thiscpu-test-{}-{nth}", std::process::id())));
        fs::create_dir(&cpuset.0)?;
        let nodes = fs::read_to_string(root.join("cpuset.mems"))
            .or_else(|_| fs::read_to_string(root.join("cpuset.mems.effective")))?;
        let cpu = pin::cpus()[nth % pin::cpus().len()];
        fs::write(cpuset.0.join("cpuset.cpus"), cpu.to_string())?;
        fs::write(cpuset.0.join("cpuset.mems"), nodes.trim())?;
        Ok(cpuset)
    }
}

impl Drop for Cpuset {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}
