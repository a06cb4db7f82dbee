//! What this process runs on, for people and programs that want to know.

use crate::error::Error;
use crate::lanes::{region, table};
use crate::sys::cpu_set::CpuSet;
use crate::sys::rseq::Registrar;
use crate::sys::startup;
use crate::sys::topology;
use crate::tier::Tier;

/// What this process runs on, and why; returned by [`system_info`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SystemInfo {
    /// The tier that the process runs on.
    pub tier: Tier,
    /// Whether `THISCPU_TIER` forced the tier.
    pub forced: bool,
    /// Why each better tier is not available, the best first; empty if all are.
    pub obstacles: Vec<(Tier, &'static str)>,
    /// The party that registers threads with rseq.
    pub registrar: Registrar,
    /// The size of the registration as its owner states it, in bytes; 0 if there is none.
    pub rseq_size: u32,
    /// How much of it the kernel fills in, in bytes; 0 if it does not say (before Linux 6.3).
    pub rseq_feature_size: u32,
    /// Whether the kernel fills in `mm_cid`.
    pub mm_cid: bool,
    /// Whether membarrier can fence sections; if not, its error number.
    pub membarrier: Result<(), i32>,
    /// The CPUs that this machine can ever have.
    pub cpus_possible: CpuSet,
    /// The CPUs that are online, or `None` if the system does not say.
    pub cpus_online: Option<CpuSet>,
    /// The CPUs that the calling thread may run on.
    pub cpus_allowed: CpuSet,
    /// The NUMA nodes that are online.
    pub nodes: CpuSet,
    /// The number of lanes in use: CPUs seen so far or, with `mm_cid`, CPUs used at once.
    pub lanes_in_use: usize,
    /// The largest possible number of lanes.
    pub lanes_max: usize,
    /// The size of a [`Counter`](crate::Counter) itself, in bytes.
    pub counter_bytes: usize,
    /// The bytes of a counter in each lane in use, and once more in the shared lane.
    pub counter_bytes_per_lane: usize,
}

/// Returns what this process runs on, and why.
///
/// Makes some system calls and allocates.
///
/// # Errors
///
/// Returns the errors of [`tier()`](crate::tier()).
///
/// ```
/// let info = thiscpu::system_info()?;
/// println!("{}: {} lanes in use", info.tier, info.lanes_in_use);
/// # Ok::<(), thiscpu::Error>(())
/// ```
pub fn system_info() -> Result<SystemInfo, Error> {
    let tier = startup::tier()?;
    let choice = startup::choose()?;
    let obstacles = [(Tier::RseqCid, choice.why_not_cid), (Tier::RseqCpu, choice.why_not_rseq)];
    Ok(SystemInfo {
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
