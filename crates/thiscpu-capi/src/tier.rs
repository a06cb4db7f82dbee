//! The tier of the process.

use std::ffi::{CStr, c_char};

use thiscpu::Tier;

use crate::ffi::{OutParam, catch};
use crate::inline_abi;
use crate::status::Status;

/// The tier of this process: the mechanism by which it accesses per-CPU data.
///
/// Values and guarantees are the same on all tiers; only speed differs.
///
/// The environment variable `THISCPU_TIER` selects one by its name: `rseq-cid`, `rseq-cpu` or
/// `atomic`. If it is unset, the process gets the best one that the system has.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThiscpuTier {
    /// Restartable sequences; lanes are indexed by the kernel's `mm_cid`.
    ///
    /// `mm_cid` is the kernel's concurrency id (Linux 6.3 and newer).
    RseqCid = 0,
    /// Restartable sequences; lanes are indexed by the CPU's number (Linux 5.10 and newer).
    RseqCpu,
    /// Atomic instructions, on any kernel.
    Atomic,
}

/// Determines the tier of this process and stores it in `*tier`.
///
/// The first use of any structure also determines the tier, which never changes afterwards. To
/// detect a wrong `THISCPU_TIER` early, call this function at the start of the program.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `UNKNOWN_TIER`, `TIER_UNAVAILABLE`.
/// - Blocks: only before the tier is known, while another thread determines it.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_get_tier(tier: *mut ThiscpuTier) -> Status {
    catch(|| {
        // SAFETY: the header requires that `tier` is null or valid for writes.
        let out = unsafe { OutParam::new(tier) }?;
        out.write(match thiscpu::tier()? {
            Tier::RseqCid => ThiscpuTier::RseqCid,
            Tier::RseqCpu => ThiscpuTier::RseqCpu,
            Tier::Atomic => ThiscpuTier::Atomic,
        });
        inline_abi::publish();
        Ok(())
    })
}

/// Returns the name of a tier, as the environment variable `THISCPU_TIER` takes it.
///
/// These names are `rseq-cid`, `rseq-cpu` and `atomic`. The result is never NULL and stays valid
/// forever. For a number that is not a tier, it says so.
///
/// - Blocks: never.
/// - Signal handlers: allowed.
#[unsafe(no_mangle)]
pub extern "C" fn thiscpu_tier_name(tier: i32) -> *const c_char {
    const NAMES: [(ThiscpuTier, &CStr); 3] = [
        (ThiscpuTier::RseqCid, c"rseq-cid"),
        (ThiscpuTier::RseqCpu, c"rseq-cpu"),
        (ThiscpuTier::Atomic, c"atomic"),
    ];
    let named = NAMES.iter().find(|(named, _)| *named as i32 == tier);
    named.map_or(c"not a tier", |(_, name)| name).as_ptr()
}
