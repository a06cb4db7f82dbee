//! A futex lock that a fork cannot leave locked.
//!
//! The word is `{generation: 30, state: 2}`. A state of another generation counts as unlocked,
//! because its owner is a thread that does not exist in this process (see `sys::fork`). So code
//! that holds a lock keeps everything that the lock guards usable at every step. An add only tries
//! the lock, so it never waits.

use super::Host;
use super::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};
use super::machine::{Machine as _, spins};

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;
const STATE: u32 = 3;

/// How often a waiter spins before it sleeps; a fence takes a few such loops.
const SPINS: u32 = spins(100);

/// A lock that a forked child finds free.
#[derive(Debug)]
pub struct Lock(AtomicU32);

/// Releases the lock when dropped.
pub struct Guard<'a> {
    lock: &'a Lock,
    /// Whether this is the lock's first holder in this process, or in this forked child.
    pub first_in_generation: bool,
    /// Whether a thread of the parent held the lock when this process was forked.
    ///
    /// That thread does not exist here, so a change of what the lock guards may be incomplete.
    pub owner_died: bool,
}

fn word(generation: u32, state: u32) -> u32 {
    (generation << 2) | state
}

impl Lock {
    /// Returns a lock that no thread holds.
    pub const fn new() -> Self {
        Lock(AtomicU32::new(FREE))
    }

    /// Takes the lock if no thread holds it. Never waits; async-signal-safe.
    pub fn try_lock(&self) -> Option<Guard<'_>> {
        self.try_take(Host::generation(), HELD)
    }

    /// Takes the lock, and waits while another thread holds it.
    pub fn lock(&self) -> Guard<'_> {
        let generation = Host::generation();
        for _ in 0..SPINS {
            if let Some(guard) = self.try_take(generation, HELD) {
                return guard;
            }
            Host::pause();
        }
        loop {
            // After it has slept, this thread cannot know whether others still sleep. So it takes
            // the lock as contended, and its release wakes one more.
            if let Some(guard) = self.try_take(generation, CONTENDED) {
                return guard;
            }
            // Relaxed, twice: this only marks the lock as contended; `try_take` acquires it.
            let held = self.0.load(Relaxed);
            let contended = word(generation, CONTENDED);
            if held == word(generation, HELD)
                && self.0.compare_exchange(held, contended, Relaxed, Relaxed).is_err()
            {
                continue;
            }
            Host::wait(&self.0, contended, None);
        }
    }

    /// Returns whether a thread of this process holds the lock.
    pub fn is_held(&self) -> bool {
        // Acquire: pairs with the Release in `Guard::drop`. If the lock is free, the work of its
        // last holder is visible.
        let current = self.0.load(Acquire);
        [HELD, CONTENDED].map(|state| word(Host::generation(), state)).contains(&current)
    }

    fn try_take(&self, generation: u32, state: u32) -> Option<Guard<'_>> {
        // Relaxed: the exchange below acquires the lock.
        let current = self.0.load(Relaxed);
        let same = current >> 2 == word(generation, FREE) >> 2;
        if same && current & STATE != FREE {
            return None;
        }
        // Acquire: pairs with the Release in `Guard::drop` of the last holder.
        self.0.compare_exchange(current, word(generation, state), Acquire, Relaxed).ok()?;
        let owner_died = !same && current & STATE != FREE;
        Some(Guard { lock: self, first_in_generation: !same, owner_died })
    }
}

impl Default for Lock {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        // Relaxed: this thread wrote the generation when it took the lock.
        let generation = self.lock.0.load(Relaxed) >> 2;
        // Release: pairs with the Acquire in `try_take` of the next holder, and in `is_held`.
        let before = self.lock.0.swap(word(generation, FREE), Release);
        if before & STATE == CONTENDED {
            Host::wake(&self.lock.0, 1);
        }
    }
}
