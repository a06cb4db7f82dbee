//! A futex lock that a fork cannot leave locked.
//!
//! The word is `{generation: 30, state: 2}`. A state that another generation wrote counts as
//! unlocked: its owner is a thread that does not exist in this process (see `sys::fork`).
//! Code that holds a lock therefore leaves everything it guards in a usable state at every step.
//! Adders only ever try the lock, so that an add never waits.

use super::Host;
use super::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};
use super::machine::{Machine as _, looks};

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;
const STATE: u32 = 3;

/// How often a waiter looks again before it sleeps; a fence takes a few of these.
const SPINS: u32 = looks(100);

/// The lock.
#[derive(Debug)]
pub struct Lock(AtomicU32);

/// Releases the lock when dropped.
pub struct Guard<'a> {
    lock: &'a Lock,
    /// Whether this is the first holder since the process was forked (or since it began).
    pub first_in_generation: bool,
    /// Whether somebody had the lock when this process was forked, who is not in it: what the lock guards may be half
    /// changed.
    pub left_behind: bool,
}

fn word(generation: u32, state: u32) -> u32 {
    (generation << 2) | state
}

impl Lock {
    /// A lock that nobody holds.
    pub const fn new() -> Self {
        Lock(AtomicU32::new(FREE))
    }

    /// Takes the lock if nobody holds it. Never waits; async-signal-safe.
    pub fn try_lock(&self) -> Option<Guard<'_>> {
        self.try_take(Host::generation(), HELD)
    }

    /// Takes the lock, waiting for its holder.
    pub fn lock(&self) -> Guard<'_> {
        let generation = Host::generation();
        for _ in 0..SPINS {
            if let Some(guard) = self.try_take(generation, HELD) {
                return guard;
            }
            Host::pause();
        }
        loop {
            // Once this thread has slept it cannot know whether others still do, so it takes the
            // lock as contended and its release wakes one more.
            if let Some(guard) = self.try_take(generation, CONTENDED) {
                return guard;
            }
            let held = self.0.load(Relaxed);
            if held == word(generation, HELD)
                && self
                    .0
                    .compare_exchange(held, word(generation, CONTENDED), Relaxed, Relaxed)
                    .is_err()
            {
                continue;
            }
            Host::wait(&self.0, word(generation, CONTENDED), None);
        }
    }

    /// Whether somebody holds it.
    pub fn is_held(&self) -> bool {
        // Acquire: pairs with the Release of who let go of it, whose work is seen then.
        let current = self.0.load(Acquire);
        [HELD, CONTENDED].map(|state| word(Host::generation(), state)).contains(&current)
    }

    fn try_take(&self, generation: u32, state: u32) -> Option<Guard<'_>> {
        let current = self.0.load(Relaxed);
        let same = current >> 2 == word(generation, FREE) >> 2;
        if same && current & STATE != FREE {
            return None;
        }
        // Acquire: pairs with the Release in `drop` of the guard before.
        self.0.compare_exchange(current, word(generation, state), Acquire, Relaxed).ok()?;
        let left_behind = !same && current & STATE != FREE;
        Some(Guard { lock: self, first_in_generation: !same, left_behind })
    }
}

impl Default for Lock {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let generation = self.lock.0.load(Relaxed) >> 2;
        // Release: pairs with the Acquire in `try_take` of the next holder.
        let before = self.lock.0.swap(word(generation, FREE), Release);
        if before & STATE == CONTENDED {
            Host::wake(&self.lock.0, 1);
        }
    }
}
