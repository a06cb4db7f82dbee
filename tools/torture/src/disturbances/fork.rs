//! Children that are forked in the middle of anything, and check all structures on their own.
//!
//! A child has one thread, and whatever other threads left half done. It may use the library. It
//! must not print, because another thread may have held the lock of standard error. It must not
//! allocate, except in the library for a snapshot of a ledger. So it reports a violation in memory
//! that it shares with its parent.

use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use fastrand::Rng;
use thiscpu_test_support::tool::stop;

use super::rest;
use crate::handlers::Target;
use crate::shared::Shared;
use crate::structures::Actor;
use crate::violation::{Finder, Violation};

/// The number of children at a time.
const CHILDREN: usize = 3;
const REST_MICROS_MAX: u64 = 12_000;
/// The time after which an alarm ends a child that hangs.
const ALARM_SECONDS: u32 = 60;

/// Exit statuses of children.
const SUCCESS: i32 = 0;
const VIOLATION: i32 = 1;
const PANICKED: i32 = 2;

/// Set in children. Relaxed: a child has one thread.
static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// A child's violation, and its structure.
///
/// The texts are constants of this program, at the same address in both processes.
type Verdict = (&'static str, Violation);

/// A place for the verdict of each child.
struct Verdicts(NonNull<Verdict>);

impl Verdicts {
    const BYTES: usize = CHILDREN * size_of::<Verdict>();

    fn new() -> io::Result<Verdicts> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: a mapping at an address of the kernel's choice replaces none.
        let memory = unsafe { libc::mmap(ptr::null_mut(), Self::BYTES, protection, flags, -1, 0) };
        match NonNull::new(memory.cast()) {
            Some(verdicts) if memory != libc::MAP_FAILED => Ok(Verdicts(verdicts)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Writes the verdict of the child in `place`, which then ends.
    fn write(&self, place: usize, verdict: Verdict) {
        // SAFETY: `place` is below `CHILDREN`, and the parent reads only after the child has ended.
        unsafe { self.0.add(place).write(verdict) };
    }

    /// Reads the verdict of a child that has ended with [`VIOLATION`].
    fn read(&self, place: usize) -> Verdict {
        // SAFETY: such a child has written its verdict, and the next child in its place is not
        // forked yet.
        unsafe { self.0.add(place).read() }
    }
}

impl Drop for Verdicts {
    fn drop(&mut self) {
        // SAFETY: `new` created the mapping with this length, and only `self` uses it.
        unsafe { libc::munmap(self.0.as_ptr().cast(), Self::BYTES) };
    }
}

/// Makes a panicking child end silently.
///
/// Another thread of the parent may have held the lock of standard error at the fork.
pub(crate) fn silence_children() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if IS_CHILD.load(Relaxed) {
            // SAFETY: ends this process without running any code of it.
            unsafe { libc::_exit(PANICKED) };
        }
        before(panic);
    }));
}

/// Forks at random moments until the run is over, on the thread in `slot`.
pub(crate) fn run(shared: &Shared, slot: usize, seed: u64) {
    let _target = Target::enter(shared, slot);
    let mut actor = Actor::new(slot, seed);
    let Ok(verdicts) = Verdicts::new() else {
        let what = "mappings to share with children";
        let violation = Violation { what, low: 1, high: 1, found: 0 };
        return shared.fail("fork", Finder::Worker(slot), violation);
    };
    let mut children: [Option<i32>; CHILDREN] = [None; CHILDREN];
    while !shared.is_over() {
        for (place, child) in children.iter_mut().enumerate() {
            *child = child.filter(|&pid| !reap(shared, &verdicts, place, pid, libc::WNOHANG));
        }
        if let Some(place) = children.iter().position(Option::is_none) {
            children[place] = fork(shared, &verdicts, place, &mut actor.random, slot);
        }
        shared.step(&mut actor);
        rest(&mut actor.random, REST_MICROS_MAX);
    }
    for (place, child) in children.into_iter().enumerate() {
        while child.is_some_and(|pid| !reap(shared, &verdicts, place, pid, 0)) {}
    }
}

/// Forks a child; returns `None` if the kernel grants no further process.
fn fork(
    shared: &Shared,
    verdicts: &Verdicts,
    place: usize,
    random: &mut Rng,
    slot: usize,
) -> Option<i32> {
    let seed = random.u64(..);
    // SAFETY: `run_child` does only what a child of a process with threads may do: it uses the
    // library, whose locks survive forks, and takes no other lock.
    match unsafe { libc::fork() } {
        0 => run_child(shared, verdicts, place, Actor::new(slot, seed)),
        -1 => None,
        child => {
            shared.events.forks.fetch_add(1, Relaxed);
            Some(child)
        }
    }
}

/// Runs a child to its end. Takes no locks but the library's, and allocates nothing itself.
fn run_child(shared: &Shared, verdicts: &Verdicts, place: usize, mut actor: Actor) -> ! {
    IS_CHILD.store(true, Relaxed);
    // SAFETY: neither call accesses this process's memory; the alarm's default action ends the
    // process.
    unsafe {
        libc::signal(libc::SIGALRM, libc::SIG_DFL);
        libc::alarm(ALARM_SECONDS);
    }
    let status = match shared.check_in_child(&mut actor) {
        Ok(()) => SUCCESS,
        Err(verdict) => {
            verdicts.write(place, verdict);
            VIOLATION
        }
    };
    // SAFETY: ends the child without running the parent's exit handlers.
    unsafe { libc::_exit(status) }
}

/// Returns whether the child has ended, and records its violation.
///
/// Without options, waits for its end.
fn reap(shared: &Shared, verdicts: &Verdicts, place: usize, pid: i32, options: i32) -> bool {
    let mut status = 0;
    // SAFETY: the status is valid for writes.
    match unsafe { libc::waitpid(pid, &mut status, options) } {
        0 => return false,
        -1 => return io::Error::last_os_error().kind() != io::ErrorKind::Interrupted,
        _ => {}
    }
    let (structure, violation) = if libc::WIFSIGNALED(status) {
        let signal = libc::WTERMSIG(status);
        // Ctrl-C at a terminal goes to children too.
        if stop::is_requested() && [libc::SIGINT, libc::SIGTERM].contains(&signal) {
            return true;
        }
        let what = "the signal that ended a child";
        ("fork", Violation { what, low: 0, high: 0, found: signal.into() })
    } else {
        match libc::WEXITSTATUS(status) {
            SUCCESS => return true,
            VIOLATION => verdicts.read(place),
            _ => ("fork", Violation::PANIC),
        }
    };
    shared.fail(structure, Finder::Child, violation);
    true
}
