//! The fence: once it returns, every section of this process that began before it has committed or
//! will restart.
//!
//! Normally one `membarrier(PRIVATE_EXPEDITED_RSEQ)` (Linux 5.10). Callers that arrive together
//! share one call, provided that it begins after they arrived: a call that already runs may have
//! passed the CPU of a section that its caller saw begin.

use super::Host;
use super::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence as memory_fence,
};
use super::lock::{Guard, Lock};
use super::machine::{Machine as _, looks};
use super::membarrier::FenceError;

/// How many fences have begun, and how many are done. Only the leader changes them.
static BEGUN: AtomicU64 = AtomicU64::new(0);
static DONE: AtomicU64 = AtomicU64::new(0);
/// How many leaders have stepped down, for those who sleep until one does.
static TURNS: AtomicU32 = AtomicU32::new(0);
static LEADER: Lock = Lock::new();

/// How often a follower looks before it sleeps; a fence takes a few of these.
const SPINS: u32 = looks(200);

/// The beginning of the panic message when no fence is possible, by which callers in C are told.
pub(crate) const FENCE_DENIED: &str = "thiscpu: membarrier has stopped working";

/// Waits until every section that began before this call has committed or will restart.
///
/// 0.2 us on an idle process, 15 to 30 us where other CPUs run it, and a time slice at worst. Must
/// not be called from a signal handler that can interrupt it.
///
/// # Panics
///
/// If neither membarrier nor running on every CPU is possible.
pub(crate) fn fence() {
    if let Err(FenceError { error, reason }) = try_fence() {
        panic!(
            "{FENCE_DENIED} (error {error}) and {reason}: without a fence \
             no exact answer can be given. A sandbox that is installed after start must allow \
             membarrier or sched_setaffinity; THISCPU_TIER=atomic needs neither"
        );
    }
}

/// The same for whom there is something to do without it.
pub(crate) fn try_fence() -> Result<(), FenceError> {
    // What the caller stored before (the flipped gate) is visible before any fence begins.
    memory_fence(SeqCst);
    // Acquire: a fence with a higher number than this begins after this load (its leader's Release
    // store of the number comes later), hence after the caller arrived.
    let arrived = BEGUN.load(Acquire);
    loop {
        // Acquire: pairs with the leader's Release, so that what sections committed before the
        // fence is visible to its followers too.
        if DONE.load(Acquire) > arrived {
            return Ok(());
        }
        // Before the look at the lock: if that is held, this number will change.
        let seen = TURNS.load(Acquire);
        match LEADER.try_lock() {
            Some(leader) => return lead(leader),
            None if DONE.load(Acquire) <= arrived => wait_for_leader(seen),
            None => {}
        }
    }
}

/// Whether membarrier was denied when a fence was wanted for which nothing replaces it.
static DENIED: AtomicBool = AtomicBool::new(false);

/// Whether it is no use to ask for [`by_membarrier`].
pub(crate) fn is_membarrier_denied() -> bool {
    // Relaxed: nothing rests on it.
    DENIED.load(Relaxed)
}

/// The same by membarrier and nothing else, which is never asked again once it was denied. Whether it was had.
pub(crate) fn by_membarrier() -> bool {
    if is_membarrier_denied() {
        return false;
    }
    // What the caller stored before is visible before the fence begins.
    memory_fence(SeqCst);
    let outcome = Host::fence_alone();
    // Any other error, as of a kernel that has no memory just then, may pass.
    if matches!(outcome, Err(libc::EPERM | libc::ENOSYS | libc::EINVAL | libc::EACCES)) {
        DENIED.store(true, Relaxed);
    }
    outcome.is_ok()
}

/// How many have begun, those [`by_membarrier`] aside.
pub(crate) fn begun() -> u64 {
    BEGUN.load(Relaxed)
}

fn lead(leader: Guard<'static>) -> Result<(), FenceError> {
    // Dropped in the other order: first the lock is free, then the others look.
    let _stepping_down = SteppingDown;
    let _leader = leader;
    // Only the leader writes the numbers. After a fork in the middle of somebody else's fence, or a
    // refusal, BEGUN may be ahead of DONE; the next fence makes them meet.
    let number = BEGUN.load(Relaxed) + 1;
    BEGUN.store(number, Release);
    memory_fence(SeqCst);
    Host::fence()?;
    DONE.store(number, Release);
    Ok(())
}

/// Wakes those who wait for the leader when dropped: one of them may have to lead.
struct SteppingDown;

impl Drop for SteppingDown {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `fence`; who sees the new number sees a free lock.
        TURNS.fetch_add(1, Release);
        Host::wake(&TURNS, i32::MAX);
    }
}

fn wait_for_leader(seen: u32) {
    for _ in 0..SPINS {
        if TURNS.load(Relaxed) != seen {
            return;
        }
        Host::pause();
    }
    // A leader that a fork left behind cannot be waited for: its lock counts as free in the child.
    Host::wait(&TURNS, seen, None);
}
