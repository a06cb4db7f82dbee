//! The tiers: what a process can run on.

use core::fmt;

/// What this process runs on. The promises are the same on each; only speed differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tier {
    /// Sections, with lanes chosen by `mm_cid` (Linux 6.3): no more lanes than CPUs in use at once.
    RseqCid,
    /// Sections, with lanes chosen by `cpu_id`.
    RseqCpu,
    /// Ordinary atomics, on lanes chosen by the CPU that the thread was seen on.
    Atomic,
}

impl Tier {
    /// All tiers, the best first.
    pub const ALL: [Tier; 3] = [Tier::RseqCid, Tier::RseqCpu, Tier::Atomic];

    /// The name, as `THISCPU_TIER` takes it.
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
