//! What this process runs on, for people and programs that want to know.

use crate::error::Error;
use crate::lanes::{region, table};
use crate::sys::rseq::Registrar;
use crate::sys::startup;
use crate::sys::topology::{self, CpuSet};
use crate::tier::Tier;

/// Which mode this process is in, and why. Made by [`report`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// What the process runs on.
    pub tier: Tier,
    /// Whether `THISCPU_TIER` asked for it.
    pub forced: bool,
    /// What stands in the way of each better tier, the best first; empty if nothing does.
    pub obstacles: Vec<(Tier, &'static str)>,
    /// Who registers threads with rseq.
    pub registrar: Registrar,
    /// The size of the registration as its owner states it, in bytes; 0 if there is none.
    pub rseq_size: u32,
    /// How much of it the kernel fills in, in bytes; 0 if it does not say (before Linux 6.3).
    pub rseq_feature_size: u32,
    /// Whether the kernel gives `mm_cid`.
    pub mm_cid: bool,
    /// Whether membarrier can fence sections; else its error number.
    pub membarrier: Result<(), i32>,
    /// The CPUs that this machine can ever have.
    pub cpus_possible: CpuSet,
    /// The CPUs that are switched on, or `None` if the system does not say.
    pub cpus_online: Option<CpuSet>,
    /// The CPUs that the calling thread may run on.
    pub cpus_allowed: CpuSet,
    /// The NUMA nodes that are switched on.
    pub nodes: CpuSet,
    /// How many lanes are in use: CPUs (or, with `mm_cid`, CPUs in use at once) that were seen.
    pub lanes_in_use: usize,
    /// How many lanes there can be.
    pub lanes_max: usize,
    /// What a [`Counter`](crate::Counter) takes in itself, in bytes.
    pub counter_bytes: usize,
    /// What a counter takes for each lane in use, and once more for what lanes share, in bytes.
    pub counter_bytes_per_lane: usize,
}

/// Finds out what this process runs on and why. Makes some system calls and allocates.
///
/// # Errors
///
/// As [`tier`](crate::tier()).
///
/// ```
/// let report = thiscpu::report()?;
/// println!("{}: {} lanes in use", report.tier, report.lanes_in_use);
/// # Ok::<(), thiscpu::Error>(())
/// ```
pub fn report() -> Result<Report, Error> {
    let tier = startup::tier()?;
    let choice = startup::choose()?;
    let obstacles = [(Tier::RseqCid, choice.why_not_cid), (Tier::RseqCpu, choice.why_not_rseq)];
    Ok(Report {
        tier,
        forced: choice.forced,
        obstacles: obstacles.into_iter().filter(|(_, why)| !why.is_empty()).collect(),
        registrar: choice.registration.registrar,
        rseq_size: choice.registration.size,
        rseq_feature_size: choice.registration.feature_size,
        mm_cid: choice.registration.has_mm_cid(),
        membarrier: choice.fence,
        cpus_possible: topology::possible(),
        cpus_online: topology::online(),
        cpus_allowed: topology::affinity(0).unwrap_or_else(CpuSet::empty),
        nodes: topology::nodes(),
        lanes_in_use: table::in_use(),
        lanes_max: region::lanes_max(),
        counter_bytes: size_of::<crate::Counter>(),
        counter_bytes_per_lane: crate::counter::bytes_per_lane(tier),
    })
}
