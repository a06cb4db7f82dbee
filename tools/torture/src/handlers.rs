//! Signal handlers that use the structures that they interrupt.
//!
//! One thread sends signals to any worker, and some workers have timers of their own. The handler
//! of each signal may interrupt that of the other.

use std::cell::Cell;
use std::io;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{
    AtomicPtr, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::time::Duration;

use fastrand::Rng;
use thiscpu_test_support::{cpus, errno, signals};

use crate::shared::Shared;

/// The signal that a thread sends.
const SENT: i32 = libc::SIGUSR1;
/// The signal of timers.
const TIMED: i32 = libc::SIGUSR2;

/// The time from one signal of a timer to the next: its thread must make progress.
const TIMER_NANOS: std::ops::Range<u64> = 25_000..1_000_000;

thread_local! {
    /// What a handler on this thread uses.
    ///
    /// There are no destructors, so handlers may load it at any time in the thread's life. Atomics,
    /// so a handler never reads half a word. SeqCst, so the compiler keeps the order of the stores
    /// in `enter`, `start` and `drop`; no other thread reads them.
    static SHARED: AtomicPtr<Shared> = const { AtomicPtr::new(ptr::null_mut()) };
    static SLOT: AtomicUsize = const { AtomicUsize::new(0) };
    /// The timer that the handler starts again.
    static TIMER: AtomicPtr<libc::c_void> = const { AtomicPtr::new(ptr::null_mut()) };
    static HAS_TIMER: Cell<bool> = const { Cell::new(false) };
}

/// Makes signals reach the calling thread, until it is dropped on that thread.
pub(crate) struct Target<'a> {
    shared: &'a Shared,
    slot: usize,
    /// Not `Send`: its drop must run on the thread that created it.
    on_this_thread: PhantomData<*const ()>,
}

impl<'a> Target<'a> {
    pub(crate) fn enter(shared: &'a Shared, slot: usize) -> Target<'a> {
        SLOT.with(|own| own.store(slot, SeqCst));
        SHARED.with(|own| own.store(ptr::from_ref(shared).cast_mut(), SeqCst));
        shared.slots[slot].tid.store(cpus::tid(), SeqCst);
        Target { shared, slot, on_this_thread: PhantomData }
    }
}

impl Drop for Target<'_> {
    fn drop(&mut self) {
        self.shared.slots[self.slot].tid.store(0, SeqCst);
        // A signal that was sent before still arrives; its handler then does nothing.
        SHARED.with(|own| own.store(ptr::null_mut(), SeqCst));
    }
}

/// Installs the handlers. They stay: a signal may still arrive when the run is over.
pub(crate) fn install() -> io::Result<()> {
    // SAFETY: both handlers use only structures that support signal handlers, and
    // async-signal-safe system calls.
    unsafe {
        signals::install(SENT, on_signal as *const (), libc::SA_RESTART)?;
        signals::install(TIMED, on_timer as *const (), libc::SA_RESTART)
    }
}

/// Sends a signal to a thread that may have ended meanwhile.
pub(crate) fn send(tid: i32) {
    // SAFETY: the call accesses no memory. It fails if the thread has ended. If another thread of
    // this process has its id by now, the handler finds that thread's own `SHARED`, or null.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, SENT) };
}

/// Returns what the calling thread's handlers use, unless it is no target.
fn target<'a>() -> Option<(&'a Shared, usize)> {
    let shared = SHARED.with(|own| own.load(SeqCst));
    // SAFETY: null, or a reference that a `Target` of this thread holds. Its drop stores null
    // before the borrow ends, and a handler uses the reference only while it interrupts the thread.
    unsafe { shared.as_ref() }.map(|shared| (shared, SLOT.with(|own| own.load(SeqCst))))
}

extern "C" fn on_signal(_signal: i32) {
    if let Some((shared, slot)) = target() {
        shared.step_in_handler(slot);
    }
}

extern "C" fn on_timer(signal: i32) {
    on_signal(signal);
    let Some((shared, slot)) = target() else { return };
    let mut random = Rng::with_seed(shared.slots[slot].signals.load(SeqCst));
    yield_or_migrate(shared, &mut random);
    if HAS_TIMER.get() {
        let after = Duration::from_nanos(random.u64(TIMER_NANOS));
        // SAFETY: the timer exists: `Timer::drop` clears `HAS_TIMER` on this thread before it
        // deletes the timer.
        unsafe { signals::fire_once(TIMER.with(|own| own.load(SeqCst)), after) };
    }
}

/// Yields this CPU or moves to another one, in the middle of the interrupted code.
fn yield_or_migrate(shared: &Shared, random: &mut Rng) {
    let before = errno::get();
    if random.u8(..3) == 0 {
        if let Some(&cpu) = random.choice(&shared.cpus)
            && cpus::confine(cpus::tid(), [cpu])
        {
            shared.events.moves.fetch_add(1, Relaxed);
        }
    } else {
        // SAFETY: sched_yield has no preconditions.
        unsafe { libc::sched_yield() };
    }
    // The interrupted code may be about to read it.
    errno::set(before);
}

/// A timer that interrupts the thread that created it, until it is dropped on that thread.
pub(crate) struct Timer(PhantomData<*const ()>);

impl Timer {
    /// Starts a timer; returns `None` if the kernel grants no further one.
    pub(crate) fn start() -> Option<Timer> {
        let timer = signals::timer_of_this_thread(TIMED).ok()?;
        TIMER.with(|own| own.store(timer, SeqCst));
        HAS_TIMER.set(true);
        // SAFETY: the timer was just created.
        unsafe { signals::fire_once(timer, Duration::from_nanos(TIMER_NANOS.start)) };
        Some(Timer(PhantomData))
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // A signal that was sent before still arrives; its handler must not start a deleted timer.
        HAS_TIMER.set(false);
        // SAFETY: `start` created the timer on this thread, and only this deletes it.
        unsafe { libc::timer_delete(TIMER.with(|own| own.load(SeqCst))) };
    }
}
