//! Processes that share no CPU, by their affinity or by cpuset cgroups.

use std::fs;
use std::path::{Path, PathBuf};

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
        let cpusets = Cpuset::new(0).zip(Cpuset::new(1));
        let by_cpuset = cpusets.map(|(first, second)| Apart::ByCpuset([first, second]));
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

impl Cpuset {
    /// Makes a cpuset of CPU number `nth`, if this process may.
    fn new(nth: usize) -> Option<Cpuset> {
        let name = format!("thiscpu-test-{}-{nth}", std::process::id());
        // Version 1 of cgroups has a directory for each controller.
        ["/sys/fs/cgroup/cpuset", "/sys/fs/cgroup"].iter().find_map(|root| {
            let cpuset = Cpuset(Path::new(root).join(&name));
            fs::create_dir(&cpuset.0).ok()?;
            let nodes = fs::read_to_string(Path::new(root).join("cpuset.mems"));
            let nodes = nodes
                .or_else(|_| fs::read_to_string(Path::new(root).join("cpuset.mems.effective")));
            let set = |file: &str, value: &str| fs::write(cpuset.0.join(file), value).ok();
            set("cpuset.cpus", &pin::cpus()[nth % pin::cpus().len()].to_string())?;
            set("cpuset.mems", nodes.ok()?.trim())?;
            Some(cpuset)
        })
    }
}

impl Drop for Cpuset {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}
