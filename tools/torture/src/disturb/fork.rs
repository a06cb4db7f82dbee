//! Children that are forked in the middle of everything, and check all structures on their own.
//!
//! A child has one thread and whatever others left half done. It may use this library; it may not
//! print, because those others may have held a lock for that, nor allocate, except what the library itself does for a
//! report of a ledger. So it says what was wrong through memory that it shares with its parent.

use std::io;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use fastrand::Rng;

use super::rest;
use crate::disturb::signals::Target;
use crate::structures::Actor;
use crate::worker::PANIC;
use crate::world::World;
use crate::wrong::{Finder, Wrong};

/// How many children are alive at a time.
const CHILDREN: usize = 3;
const REST_MICROS_MAX: u64 = 12_000;
/// A child that hangs is ended by a signal after so many seconds, by itself.
const ALARM_S: u32 = 60;

/// How children end.
const SOUND: i32 = 0;
const WRONG: i32 = 1;
const PANICKED: i32 = 2;

/// Set in children. Relaxed: a child has one thread.
static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// What a child found wrong, and in which structure. The texts are this program's own, at the same
/// address in both processes.
type Verdict = (&'static str, Wrong);

/// Where each child leaves its verdict.
struct Verdicts(NonNull<Verdict>);

impl Verdicts {
    const BYTES: usize = CHILDREN * size_of::<Verdict>();

    fn new() -> io::Result<Verdicts> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh mapping aliases nothing.
        let memory = unsafe { libc::mmap(ptr::null_mut(), Self::BYTES, protection, flags, -1, 0) };
        match NonNull::new(memory.cast()) {
            Some(verdicts) if memory != libc::MAP_FAILED => Ok(Verdicts(verdicts)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// In the child in that place, which ends then.
    fn leave(&self, place: usize, verdict: Verdict) {
        // SAFETY: `place` is below `CHILDREN`, and the parent looks only when the child has ended.
        unsafe { self.0.add(place).write(verdict) };
    }

    /// The verdict of a child that ended with [`WRONG`].
    fn of(&self, place: usize) -> Verdict {
        // SAFETY: a child that ended so has written it, and there is no other in its place yet.
        unsafe { self.0.add(place).read() }
    }
}

impl Drop for Verdicts {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own.
        unsafe { libc::munmap(self.0.as_ptr().cast(), Self::BYTES) };
    }
}

/// Ends a panicking child without a word, since the parent's other threads may have been printing.
pub(crate) fn quiet_children() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if IS_CHILD.load(Relaxed) {
            // SAFETY: ends this process without running anything.
            unsafe { libc::_exit(PANICKED) };
        }
        before(panic);
    }));
}

/// Forks now and then until the run is over, from the thread in `slot`.
pub(crate) fn run(world: &World, slot: usize, seed: u64) {
    let _target = Target::enter(world, slot);
    let mut actor = Actor::new(slot, seed);
    let Ok(verdicts) = Verdicts::new() else {
        let wrong = Wrong { what: "mappings to share with children", low: 1, high: 1, found: 0 };
        return world.fail("fork", Finder::Worker(slot), wrong);
    };
    let mut children: [Option<i32>; CHILDREN] = [None; CHILDREN];
    while !world.is_over() {
        for (place, child) in children.iter_mut().enumerate() {
            *child = child.filter(|&pid| !reap(world, &verdicts, place, pid, libc::WNOHANG));
        }
        if let Some(place) = children.iter().position(Option::is_none) {
            children[place] = fork(world, &verdicts, place, &mut actor.random, slot);
        }
        world.turn(&mut actor);
        rest(&mut actor.random, REST_MICROS_MAX);
    }
    for (place, child) in children.into_iter().enumerate() {
        child.map(|pid| reap(world, &verdicts, place, pid, 0));
    }
}

/// A child, or none where processes are scarce.
fn fork(
    world: &World,
    verdicts: &Verdicts,
    place: usize,
    random: &mut Rng,
    slot: usize,
) -> Option<i32> {
    let seed = random.u64(..);
    // SAFETY: the child does only what the child of a process with threads may; see `live`.
    match unsafe { libc::fork() } {
        0 => live(world, verdicts, place, Actor::new(slot, seed)),
        -1 => None,
        child => {
            world.events.forks.fetch_add(1, Relaxed);
            Some(child)
        }
    }
}

/// A child's life. It takes no lock of anything but the library, and allocates nothing itself.
fn live(world: &World, verdicts: &Verdicts, place: usize, mut actor: Actor) -> ! {
    IS_CHILD.store(true, Relaxed);
    // SAFETY: neither call touches this process's memory; the default action ends it.
    unsafe {
        libc::signal(libc::SIGALRM, libc::SIG_DFL);
        libc::alarm(ALARM_S);
    }
    let status = match world.child(&mut actor) {
        Ok(()) => SOUND,
        Err(verdict) => {
            verdicts.leave(place, verdict);
            WRONG
        }
    };
    // SAFETY: ends the child without running what the parent registered for its exit.
    unsafe { libc::_exit(status) }
}

/// Whether the child has ended; with no options, when it has. What was wrong becomes a failure.
fn reap(world: &World, verdicts: &Verdicts, place: usize, pid: i32, options: i32) -> bool {
    let mut status = MaybeUninit::new(0);
    // SAFETY: the status is valid for writes.
    match unsafe { libc::waitpid(pid, status.as_mut_ptr(), options) } {
        0 => return false,
        -1 => return io::Error::last_os_error().kind() != io::ErrorKind::Interrupted,
        _ => {}
    }
    // SAFETY: it was initialized above.
    let status = unsafe { status.assume_init() };
    let (structure, wrong) = match status {
        _ if libc::WIFSIGNALED(status) => {
            let signal = i64::from(libc::WTERMSIG(status));
            // Ctrl-C at a terminal goes to children too.
            if [libc::SIGINT, libc::SIGTERM].contains(&libc::WTERMSIG(status)) {
                return true;
            }
            (
                "fork",
                Wrong { what: "the signal that ended a child", low: 0, high: 0, found: signal },
            )
        }
        _ => match libc::WEXITSTATUS(status) {
            SOUND => return true,
            WRONG => verdicts.of(place),
            _ => ("fork", PANIC),
        },
    };
    world.fail(structure, Finder::Child, wrong);
    true
}
