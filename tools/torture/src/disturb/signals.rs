//! Signals that arrive at random moments, whose handlers use the structures that they interrupt.
//!
//! Some come from a thread that sends them to any worker, some from timers of the workers' own. The
//! handler of each may interrupt that of the other.

use std::cell::Cell;
use std::io;
use std::marker::PhantomData;
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::SeqCst};

use fastrand::Rng;

use super::{affinity, rest};
use crate::cpus;
use crate::world::World;

/// What the thread sends.
const SENT: i32 = libc::SIGUSR1;
/// What timers send.
const TIMED: i32 = libc::SIGUSR2;

const REST_MICROS_MAX: u64 = 300;
/// How long a timer leaves its thread alone after each strike: long enough to get somewhere.
const RESPITE_NANOS: std::ops::Range<u64> = 25_000..1_000_000;

thread_local! {
    /// What a handler on this thread finds. No destructors, so that handlers may look at any time of
    /// the thread's life; atomics, so that they find each word whole. SeqCst, so that the compiler
    /// keeps the order too.
    static WORLD: AtomicPtr<World> = const { AtomicPtr::new(ptr::null_mut()) };
    static SLOT: AtomicUsize = const { AtomicUsize::new(0) };
    /// The timer that a handler is to start again.
    static TIMER: AtomicPtr<libc::c_void> = const { AtomicPtr::new(ptr::null_mut()) };
    static HAS_TIMER: Cell<bool> = const { Cell::new(false) };
}

/// Makes the calling thread one that signals are sent to, until it is dropped there.
pub(crate) struct Target<'a> {
    world: &'a World,
    slot: usize,
    /// Not `Send`: it is about the thread that made it.
    on_this_thread: PhantomData<*const ()>,
}

impl<'a> Target<'a> {
    pub(crate) fn enter(world: &'a World, slot: usize) -> Target<'a> {
        SLOT.with(|here| here.store(slot, SeqCst));
        WORLD.with(|here| here.store(ptr::from_ref(world).cast_mut(), SeqCst));
        world.slots[slot].tid.store(cpus::tid(), SeqCst);
        Target { world, slot, on_this_thread: PhantomData }
    }
}

impl Drop for Target<'_> {
    fn drop(&mut self) {
        self.world.slots[self.slot].tid.store(0, SeqCst);
        // A signal that was sent before still comes, and finds nothing to do.
        WORLD.with(|here| here.store(ptr::null_mut(), SeqCst));
    }
}

/// Installs the handlers, for good: a signal may still be under way when the run is over.
pub(crate) fn install() -> io::Result<()> {
    handle(SENT, struck)?;
    handle(TIMED, struck_by_timer)
}

fn handle(signal: i32, handler: extern "C" fn(i32)) -> io::Result<()> {
    // SAFETY: all zeroes is a valid sigaction: the default action, and an empty mask.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the handler does only what a handler may, and is never unloaded.
    match unsafe { libc::sigaction(signal, &action, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The calling thread's world and slot, if it has any.
fn here<'a>() -> Option<(&'a World, usize)> {
    let world = WORLD.with(|here| here.load(SeqCst));
    // SAFETY: null, or what a `Target` of this thread borrows: it puts null there before the borrow
    // ends, and no handler keeps it for longer than it interrupts.
    unsafe { world.as_ref() }.map(|world| (world, SLOT.with(|here| here.load(SeqCst))))
}

extern "C" fn struck(_signal: i32) {
    if let Some((world, slot)) = here() {
        world.interrupt(slot);
    }
}

extern "C" fn struck_by_timer(signal: i32) {
    struck(signal);
    let Some((world, slot)) = here() else { return };
    let mut random = Rng::with_seed(world.slots[slot].signals.load(SeqCst));
    give_way(world, &mut random);
    if HAS_TIMER.get() {
        fire(TIMER.with(|here| here.load(SeqCst)), random.u64(RESPITE_NANOS));
    }
}

/// Lets others run on this CPU, or goes to another one, in the middle of whatever was interrupted.
fn give_way(world: &World, random: &mut Rng) {
    // SAFETY: the errno of this thread; what was interrupted may be about to look at it.
    let errno = unsafe { *libc::__errno_location() };
    if random.u8(..3) == 0 {
        affinity::wander(world, random);
    } else {
        // SAFETY: sched_yield has no preconditions.
        unsafe { libc::sched_yield() };
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Has `timer` fire once. It cannot fail on a timer that exists, so errno stays.
fn fire(timer: libc::timer_t, nanos: u64) {
    let once = libc::itimerspec {
        it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
        it_value: libc::timespec { tv_sec: 0, tv_nsec: nanos as libc::c_long },
    };
    // SAFETY: the pointer is to a local; a timer that does not exist would be an error, no harm.
    unsafe { libc::timer_settime(timer, 0, &once, ptr::null_mut()) };
}

/// A timer that strikes the thread that made it, until it is dropped there.
pub(crate) struct Timer(PhantomData<*const ()>);

impl Timer {
    /// Where timers are scarce there is none.
    pub(crate) fn start() -> Option<Timer> {
        let mut timer: libc::timer_t = ptr::null_mut();
        // SAFETY: all zeroes is a valid sigevent.
        let mut event: libc::sigevent = unsafe { mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = TIMED;
        event.sigev_notify_thread_id = cpus::tid();
        // SAFETY: both pointers are to locals, of the types the call wants.
        if unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer) } != 0 {
            return None;
        }
        TIMER.with(|here| here.store(timer, SeqCst));
        HAS_TIMER.set(true);
        fire(timer, RESPITE_NANOS.start);
        Some(Timer(PhantomData))
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // A signal that was sent before still comes, and must not start a timer that is gone.
        HAS_TIMER.set(false);
        // SAFETY: the timer was made by `start` on this thread and is deleted only here.
        unsafe { libc::timer_delete(TIMER.with(|here| here.load(SeqCst))) };
    }
}

/// Sends signals to any worker until the run is over.
pub(crate) fn run(world: &World, seed: u64) {
    let mut random = Rng::with_seed(seed);
    while !world.is_over() {
        for _ in 0..random.u8(1..6) {
            let tid = world.slots[random.usize(..world.slots.len())].tid.load(SeqCst);
            if tid != 0 {
                // SAFETY: the call touches no memory. If the thread has ended it fails; if another
                // of this process has its number, that one's handler finds its own world or none.
                unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, SENT) };
            }
        }
        rest(&mut random, REST_MICROS_MAX);
    }
}
