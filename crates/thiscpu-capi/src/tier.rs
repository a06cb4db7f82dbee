//! What this process runs on.

use thiscpu::Tier;

use crate::ffi::{call, place};
use crate::inline_abi;
use crate::status::Status;

/// What this process runs on. What is counted, and what a sum means, is the same on each; speed differs.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThiscpuTier {
    /// Restartable sequences, indexed by the number that the kernel gives each running thread (Linux 6.3).
    RseqCid = 0,
    /// Restartable sequences, indexed by CPU (Linux 5.10).
    RseqCpu,
    /// Ordinary atomic instructions.
    Atomic,
}

/// Finds out what this process runs on, which the first use of anything else does too; all later calls say the same. To be called
/// at the start of a program that wants to know a wrong `THISCPU_TIER` then, and not by the first `_create`.
///
/// Thread safe. Errors: `THISCPU_STATUS_NULL_POINTER`, `THISCPU_STATUS_UNKNOWN_TIER`, `THISCPU_STATUS_TIER_UNAVAILABLE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_get_tier(tier: *mut ThiscpuTier) -> Status {
    call(|| {
        // SAFETY: a caller's pointer is null or valid, as the header asks.
        let place = unsafe { place(tier) }?;
        place.put(match thiscpu::tier()? {
            Tier::RseqCid => ThiscpuTier::RseqCid,
            Tier::RseqCpu => ThiscpuTier::RseqCpu,
            Tier::Atomic => ThiscpuTier::Atomic,
        });
        inline_abi::publish();
        Ok(())
    })
}
