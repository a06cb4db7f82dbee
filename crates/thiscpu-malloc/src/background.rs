//! The background thread, which runs [`scavenge`] in a process that calls nothing.
//!
//! It looks ten times a second while memory is pending, and then sleeps until a call that its lane
//! cannot serve wakes it. It is started when the setting is changed. A child of fork has no such
//! thread. Its calls start one, but not before it has lived for a while: a child that soon runs
//! another program, or must have a single thread to enter a namespace, gets none.
//!
//! Such a call may come from anywhere, even from the C library's code that starts a thread. So
//! nothing is locked that this code could need, and a nested call starts nothing.

use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr;
use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
    fence,
};
use core::time::Duration;

use thiscpu::__internal::{self, Lock, generation, tier_or_best, vfork, with_signals_blocked};

use crate::scavenge;

/// The time between two looks.
const INTERVAL: Duration = Duration::from_millis(100);
/// The looks without pending memory after which the thread sleeps until it is woken.
///
/// A call wakes the thread before it leaves memory behind. So the thread goes on for a second.
const IDLE_LOOKS_MAX: u32 = 10;
/// The age at which a child of fork gets a thread.
const CHILD_NS: u64 = 200_000_000;
/// The time after which a failed start is repeated.
const RETRY_NS: u64 = 1_000_000_000;
/// The size of the stack, or the default if the program's thread-local variables need more.
const STACK_BYTES: usize = 512 << 10;

// Relaxed, for all of these: the lock orders changes of the thread; other loads are hints.

static LOCK: Lock = Lock::new();
static IS_ENABLED: AtomicBool = AtomicBool::new(false);
/// The generation of the process in which the thread runs, or 0 if there is none.
static RUNS_IN: AtomicU32 = AtomicU32::new(0);
/// The generation that calls have found without a thread, and when they may start one.
static MISSED_IN: AtomicU32 = AtomicU32::new(0);
static START_NS: AtomicU64 = AtomicU64::new(0);
/// Whether the thread looks, or sleeps until this changes.
static IS_LOOKING: AtomicU32 = AtomicU32::new(0);

/// Starts the thread, or lets it end; returns whether that is possible.
pub(crate) fn enable(is_enabled: bool) -> bool {
    let _guard = LOCK.lock();
    IS_ENABLED.store(is_enabled, Relaxed);
    let is_done = !is_enabled || RUNS_IN.load(Relaxed) == generation() || start();
    if !is_done {
        IS_ENABLED.store(false, Relaxed);
    }
    wake();
    is_done
}

/// Returns whether the thread is enabled.
pub(crate) fn is_enabled() -> bool {
    IS_ENABLED.load(Relaxed)
}

/// Wakes the thread if it sleeps, for a call that its lane cannot serve.
#[inline]
pub(crate) fn wake_if_enabled() {
    if !IS_ENABLED.load(Relaxed) {
        return;
    }
    // SeqCst: pairs with the fence in `sleep`. Either this sees that the thread sleeps, or the
    // thread sees the memory that calls before this one have left behind.
    fence(SeqCst);
    if IS_LOOKING.load(Relaxed) == 0 {
        wake();
    }
}

/// Starts the thread if it is enabled and this process, a child of fork, has none.
#[inline]
pub(crate) fn start_if_missing(now_ns: u64) {
    if IS_ENABLED.load(Relaxed) && RUNS_IN.load(Relaxed) != generation() {
        start_in_child(now_ns);
    }
}

fn wake() {
    // SeqCst: pairs with the fence in `sleep`. Either this store comes after that of 0 there, or
    // the thread sees what was stored before this.
    fence(SeqCst);
    IS_LOOKING.store(1, Relaxed);
    __internal::wake(&IS_LOOKING);
}

#[cold]
fn start_in_child(now_ns: u64) {
    if MISSED_IN.load(Relaxed) != generation() {
        START_NS.store(now_ns + CHILD_NS, Relaxed);
        MISSED_IN.store(generation(), Relaxed);
    }
    if now_ns < START_NS.load(Relaxed) {
        return;
    }
    // A nested call does not get the lock.
    let Some(_guard) = LOCK.try_lock() else { return };
    if IS_ENABLED.load(Relaxed) && RUNS_IN.load(Relaxed) != generation() && !start() {
        START_NS.store(now_ns + RETRY_NS, Relaxed);
    }
}

/// Starts the thread; the caller holds the lock. Fails in a child of vfork.
fn start() -> bool {
    if vfork::is_child() {
        return false;
    }
    // From here on, this object stays mapped.
    tier_or_best();
    // Before the thread, which asks for it.
    RUNS_IN.store(generation(), Relaxed);
    let is_started = with_signals_blocked(|| start_with(STACK_BYTES) || start_with(0));
    if !is_started {
        RUNS_IN.store(0, Relaxed);
    }
    is_started
}

/// Starts the thread with a stack of this size, or of the default size for 0.
fn start_with(stack_bytes: usize) -> bool {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let mut thread = MaybeUninit::uninit();
    // SAFETY: the attributes are initialized, used and destroyed in this order. The function has
    // the type of a thread's, and the caller has made this object stay mapped.
    unsafe {
        if libc::pthread_attr_init(attributes.as_mut_ptr()) != 0 {
            return false;
        }
        let attributes = attributes.as_mut_ptr();
        libc::pthread_attr_setdetachstate(attributes, libc::PTHREAD_CREATE_DETACHED);
        if stack_bytes != 0 {
            libc::pthread_attr_setstacksize(attributes, stack_bytes);
        }
        let error = libc::pthread_create(thread.as_mut_ptr(), attributes, run, ptr::null_mut());
        libc::pthread_attr_destroy(attributes);
        error == 0
    }
}

/// Runs the scavenger, until the thread is to end.
extern "C" fn run(_: *mut c_void) -> *mut c_void {
    // SAFETY: the name is a C string of at most 15 characters.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"thiscpu-decay".as_ptr()) };
    let mut idle_looks = 0;
    // A parent's thread may have left it 0.
    IS_LOOKING.store(1, Relaxed);
    while !ends() {
        scavenge::run_if_due(__internal::coarse_time());
        idle_looks = if scavenge::is_pending() { 0 } else { idle_looks + 1 };
        if idle_looks < IDLE_LOOKS_MAX {
            __internal::wait(&IS_LOOKING, 1, Some(INTERVAL));
            continue;
        }
        sleep();
        idle_looks = 0;
    }
    ptr::null_mut()
}

/// Sleeps until the thread is woken, unless there is something to do.
fn sleep() {
    IS_LOOKING.store(0, Relaxed);
    // SeqCst: pairs with the fences in `wake` and `wake_if_enabled`.
    fence(SeqCst);
    if IS_ENABLED.load(Relaxed) && !scavenge::is_pending() {
        __internal::wait(&IS_LOOKING, 0, None);
    }
    IS_LOOKING.store(1, Relaxed);
}

/// Returns whether the thread is to end, and notes that it does.
fn ends() -> bool {
    if IS_ENABLED.load(Relaxed) {
        return false;
    }
    let _guard = LOCK.lock();
    let ends = !IS_ENABLED.load(Relaxed);
    if ends {
        RUNS_IN.store(0, Relaxed);
    }
    ends
}
