//! What this process runs on, for people and programs that want to know.

use crate::error::Error;
use crate::lanes::{region, table};
use crate::sys::cpu_set::CpuSet;
use crate::sys::degradation::{Degradation, degradations, shared_lane_calls};
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
    /// Why each better tier was not available at the start, the best first; empty if all were.
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
    /// The CPUs that this machine can ever have. Boxed, as all sets here, because it is large.
    pub cpus_possible: Box<CpuSet>,
    /// The CPUs that are online, or `None` if the system does not say.
    pub cpus_online: Option<Box<CpuSet>>,
    /// The CPUs that the calling thread may run on.
    pub cpus_allowed: Box<CpuSet>,
    /// The NUMA nodes that are online.
    pub nodes: Box<CpuSet>,
    /// The things that are slower than they could be, since when, and why; see [`degradations`].
    pub degradations: Vec<Degradation>,
    /// How many calls used the shared lane for lack of another; see [`shared_lane_calls`].
    pub shared_lane_calls: u64,
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
    let choice = startup::survey(tier);
    let obstacles = [(Tier::RseqCid, *choice.why_not_cid), (Tier::RseqCpu, *choice.why_not_rseq)];
    Ok(SystemInfo {
        tier,
        forced: choice.forced,
        obstacles: obstacles.into_iter().filter(|(_, why)| !why.is_empty()).collect(),
        registrar: choice.registration.registrar,
        rseq_size: choice.registration.size,
        rseq_feature_size: choice.registration.feature_size,
        mm_cid: choice.registration.has_mm_cid(),
        membarrier: choice.fence,
        cpus_possible: boxed(topology::possible),
        cpus_online: boxed_if_known(topology::online),
        cpus_allowed: boxed(|| topology::affinity(0).unwrap_or_else(CpuSet::empty)),
        nodes: boxed(topology::nodes),
        degradations: degradations().collect(),
        shared_lane_calls: shared_lane_calls(),
        lanes_in_use: table::in_use(),
        lanes_max: region::lanes_max(),
        counter_bytes: size_of::<crate::Counter>(),
        counter_bytes_per_lane: crate::counter::bytes_per_lane(tier),
    })
}

/// Returns a set on the heap.
///
/// Not inlined, as the function below, so that the stack holds one set at a time.
#[inline(never)]
fn boxed(make: fn() -> CpuSet) -> Box<CpuSet> {
    Box::new(make())
}

#[inline(never)]
fn boxed_if_known(make: fn() -> Option<CpuSet>) -> Option<Box<CpuSet>> {
    make().map(Box::new)
}
