//! The fence: once it returns, every section of this process that began before it has committed or
//! will restart.
//!
//! Normally one `membarrier(PRIVATE_EXPEDITED_RSEQ)` (Linux 5.10). Callers that arrive together
//! share one call, provided that it begins after they arrived: a call that already runs may have
//! passed the CPU of a section that its caller saw begin. Where membarrier stops working under way
//! (a seccomp filter installed after start), the calling thread instead runs on every CPU that a
//! thread of this process may be on: to run there it takes the place of whatever ran there, and a
//! thread that is taken off its CPU restarts its section. If that cannot be done either, the fence
//! panics: nothing may go on without it.

use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence as memory_fence,
};

use super::lock::{Guard, Lock, futex_wait, futex_wake_all};
use super::{errno, topology};

const CMD_PRIVATE_EXPEDITED_RSEQ: i32 = 1 << 7;
const CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ: i32 = 1 << 8;

fn membarrier(command: i32) -> Result<(), i32> {
    // SAFETY: membarrier takes no pointers and changes no memory.
    let result = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
    if result == 0 { Ok(()) } else { Err(errno::last()) }
}

/// Registers this process for the fence. Repeating it is harmless.
pub(crate) fn register() -> Result<(), i32> {
    membarrier(CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ)?;
    membarrier(CMD_PRIVATE_EXPEDITED_RSEQ)
}

/// The bare call: a barrier on each CPU that runs this process, and a fence. Takes no lock.
pub(crate) fn barrier() -> Result<(), i32> {
    membarrier(CMD_PRIVATE_EXPEDITED_RSEQ)
}

/// How many fences have begun, and how many are done. Only the leader changes them.
static BEGUN: AtomicU64 = AtomicU64::new(0);
static DONE: AtomicU64 = AtomicU64::new(0);
/// How many leaders have stepped down, for those who sleep until one does.
static TURNS: AtomicU32 = AtomicU32::new(0);
static LEADER: Lock = Lock::new();

/// Waits until every section that began before this call has committed or will restart.
///
/// 0.2 us on an idle process, 15 to 30 us where other CPUs run it, and a time slice at worst. Must
/// not be called from a signal handler that can interrupt it.
///
/// # Panics
///
/// If neither membarrier nor running on every CPU is possible.
pub(crate) fn fence() {
    // What the caller stored before (the flipped gate) is visible before any fence begins.
    memory_fence(SeqCst);
    // Acquire: a fence with a higher number than this begins after this load (its leader's Release
    // store of the number comes later), hence after the caller arrived.
    let arrived = BEGUN.load(Acquire);
    loop {
        // Acquire: pairs with the leader's Release, so that what sections committed before the
        // fence is visible to its followers too.
        if DONE.load(Acquire) > arrived {
            return;
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

fn lead(leader: Guard<'static>) {
    // Dropped in the other order, by a panic too: first the lock is free, then the others look.
    let _stepping_down = SteppingDown;
    let _leader = leader;
    // Only the leader writes the numbers. After a fork in the middle of somebody else's fence, or a
    // panic, BEGUN may be ahead of DONE; the next fence makes them meet.
    let number = BEGUN.load(Relaxed) + 1;
    BEGUN.store(number, Release);
    memory_fence(SeqCst);
    run();
    DONE.store(number, Release);
}

/// Wakes those who wait for the leader when dropped: one of them may have to lead.
struct SteppingDown;

impl Drop for SteppingDown {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `fence`; who sees the new number sees a free lock.
        TURNS.fetch_add(1, Release);
        futex_wake_all(&TURNS);
    }
}

fn wait_for_leader(seen: u32) {
    for _ in 0..200 {
        if TURNS.load(Relaxed) != seen {
            return;
        }
        core::hint::spin_loop();
    }
    // A leader that a fork left behind cannot be waited for: its lock counts as free in the child.
    futex_wait(&TURNS, seen);
}

fn run() {
    let Err(error) = membarrier(CMD_PRIVATE_EXPEDITED_RSEQ) else { return };
    // A child may have lost the registration; a process that never had one is not here.
    if error == libc::EPERM && register().is_ok() {
        return;
    }
    if let Err(reason) = run_on_every_cpu() {
        panic!(
            "thiscpu: membarrier has stopped working (error {error}) and {reason}: without a fence \
             no exact answer can be given. A sandbox that is installed after start must allow \
             membarrier or sched_setaffinity; THISCPU_TIER=atomic needs neither"
        );
    }
}

/// Runs the calling thread on each CPU that a thread of this process may be on, then goes back.
fn run_on_every_cpu() -> Result<(), &'static str> {
    let own = topology::affinity(0).ok_or("sched_getaffinity is denied")?;
    let reachable = topology::cpus_of_all_threads().ok_or("the threads cannot be listed")?;
    let mut result = Ok(());
    for cpu in reachable.iter() {
        // A CPU that went offline since has no thread on it: it was taken off, and restarts.
        if !topology::run_on(cpu) && topology::is_online(cpu) {
            result = Err("sched_setaffinity is denied");
            break;
        }
    }
    topology::set_affinity(&own);
    result
}
