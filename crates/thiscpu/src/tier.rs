//! The tiers: what a process can run on.

use core::fmt;

/// The mechanism that a process runs on.
///
/// Guarantees are equal on all tiers; only speed differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tier {
    /// Sections, on lanes indexed by `mm_cid` (Linux 6.3): no more lanes than CPUs used at once.
    RseqCid,
    /// Sections, on lanes indexed by `cpu_id` (Linux 5.10).
    RseqCpu,
    /// Ordinary atomics, on lanes indexed by the CPU that the thread was seen on.
    Atomic,
}

impl Tier {
    /// All tiers, the best first.
    pub const ALL: [Tier; 3] = [Tier::RseqCid, Tier::RseqCpu, Tier::Atomic];

    /// Returns the name that `THISCPU_TIER` takes: `rseq-cid`, `rseq-cpu` or `atomic`.
    pub fn name(self) -> &'static str {
        match self {
            Tier::RseqCid => "rseq-cid",
            Tier::RseqCpu => "rseq-cpu",
            Tier::Atomic => "atomic",
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
