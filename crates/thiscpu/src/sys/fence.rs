//! The fence: after it, every section of this process that began before has committed or will
//! restart.
//!
//! Normally a fence is one `membarrier(PRIVATE_EXPEDITED_RSEQ)` (Linux 5.10). Callers that arrive
//! together share one call, provided that it begins after they arrived. A call that already runs is
//! of no use to them: it may have passed the CPU of a section that began later.

use super::Host;
use super::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence as memory_fence,
};
use super::degradation::{self, DegradationKind};
use super::lock::{Guard, Lock};
use super::machine::{Machine as _, spins};
use super::membarrier::FenceError;
use super::panic_reason::PanicReason;

/// The number of fences that have begun. Only the leader changes it.
static BEGUN: AtomicU64 = AtomicU64::new(0);
/// The number of the last fence that is done. Only the leader changes it.
static DONE: AtomicU64 = AtomicU64::new(0);
/// How many leaders have stepped down; followers sleep on it until one does.
static HANDOVERS: AtomicU32 = AtomicU32::new(0);
/// The lock of the leader: the one thread that fences for all callers.
static LEADER: Lock = Lock::new();

/// How often a follower spins before it sleeps; a fence takes a few such loops.
const SPINS: u32 = spins(200);

/// Waits until every section that began before this call has committed or will restart.
///
/// Takes 0.2 µs in an idle process, 10 to 30 µs if other CPUs run it, and a time slice at worst. A
/// signal handler must not call this if it can interrupt this function.
///
/// # Panics
///
/// If membarrier fails, and the calling thread cannot run on every CPU either.
pub(crate) fn fence() {
    if let Err(FenceError { error, reason }) = try_fence() {
        PanicReason::FenceDenied.panic(format_args!(
            "thiscpu: membarrier has stopped working (error {error}), and {reason}: no exact \
             answer is possible without a fence; allow membarrier or sched_setaffinity in the \
             sandbox, or set THISCPU_TIER=atomic, which needs neither"
        ));
    }
}

/// Fences as [`fence`] does, but returns an error if no fence is possible.
pub(crate) fn try_fence() -> Result<(), FenceError> {
    // Makes the caller's earlier stores (a closed or flipped gate) visible before any fence begins.
    memory_fence(SeqCst);
    // Acquire: pairs with the Release store in `lead`. A fence with a higher number than this
    // begins after this load, hence after the caller arrived.
    let arrived = BEGUN.load(Acquire);
    loop {
        // Acquire: pairs with the Release store in `lead`, so that a follower, too, sees what
        // sections committed before the fence.
        if DONE.load(Acquire) > arrived {
            return Ok(());
        }
        // Acquire: pairs with the Release in `WakeOnDrop`. Loaded before the lock is tried: if the
        // lock is held, this number will change.
        let handovers = HANDOVERS.load(Acquire);
        match LEADER.try_lock() {
            Some(leader) => return lead(leader),
            None if DONE.load(Acquire) <= arrived => wait_for_leader(handovers),
            None => {}
        }
    }
}

/// Whether membarrier was denied to a caller of [`by_membarrier`].
static DENIED: AtomicBool = AtomicBool::new(false);

/// Returns whether [`by_membarrier`] can only fail.
pub(crate) fn is_membarrier_denied() -> bool {
    // Relaxed: a hint, on which no protocol depends.
    DENIED.load(Relaxed)
}

/// Fences by membarrier alone, unless it was denied before; returns whether that worked.
pub(crate) fn by_membarrier() -> bool {
    if is_membarrier_denied() {
        return false;
    }
    // Makes the caller's earlier stores visible before the fence begins.
    memory_fence(SeqCst);
    let outcome = Host::membarrier_fence();
    // Other errors may pass, such as a kernel that is out of memory.
    if matches!(outcome, Err(libc::EPERM | libc::ENOSYS | libc::EINVAL | libc::EACCES)) {
        DENIED.store(true, Relaxed);
    }
    if let Err(error) = outcome {
        degradation::note(DegradationKind::Membarrier, error);
    }
    outcome.is_ok()
}

/// Returns how many fences have begun, without those of [`by_membarrier`].
pub(crate) fn begun() -> u64 {
    BEGUN.load(Relaxed)
}

fn lead(leader: Guard<'static>) -> Result<(), FenceError> {
    // Locals drop in reverse order: the lock is free before followers wake up.
    let _wake_followers = WakeOnDrop;
    let _leader = leader;
    // Relaxed: only the leader stores the numbers, and the lock orders leaders. After a fork in the
    // middle of another thread's fence, or after an error, BEGUN may be ahead of DONE; the next
    // fence makes them equal.
    let number = BEGUN.load(Relaxed) + 1;
    // Release: pairs with the Acquire load in `try_fence`.
    BEGUN.store(number, Release);
    // The fence must not begin before the store above is visible.
    memory_fence(SeqCst);
    Host::fence()?;
    // Release: pairs with the Acquire loads in `try_fence`.
    DONE.store(number, Release);
    Ok(())
}

/// Wakes all followers when dropped, because one of them may have to lead.
struct WakeOnDrop;

impl Drop for WakeOnDrop {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `try_fence`. A follower that sees the new number also
        // sees that the lock is free.
        HANDOVERS.fetch_add(1, Release);
        Host::wake(&HANDOVERS, i32::MAX);
    }
}

fn wait_for_leader(handovers: u32) {
    for _ in 0..SPINS {
        // Relaxed: the caller loads everything again.
        if HANDOVERS.load(Relaxed) != handovers {
            return;
        }
        Host::pause();
    }
    // In a forked child this never waits for a leader of the parent, whose lock counts as free.
    Host::wait(&HANDOVERS, handovers, None);
}
