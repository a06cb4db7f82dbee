//! A futex lock that a fork cannot leave locked.
//!
//! The word is `{generation: 30, state: 2}`. A state that another generation wrote counts as
//! unlocked: its owner is a thread that does not exist in this process (see [`super::fork`]).
//! Code that holds a lock therefore leaves everything it guards in a usable state at every step.
//! Adders only ever try the lock, so that an add never waits.

use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use super::fork;

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;
const STATE: u32 = 3;

/// How often a waiter looks again before it sleeps; a fence takes a few of these.
const SPINS: u32 = 100;

#[derive(Debug)]
pub(crate) struct Lock(AtomicU32);

/// Releases the lock when dropped.
pub(crate) struct Guard<'a> {
    lock: &'a Lock,
    /// Whether this is the first holder since the process was forked (or since it began).
    pub(crate) first_in_generation: bool,
}

fn word(generation: u32, state: u32) -> u32 {
    (generation << 2) | state
}

impl Lock {
    pub(crate) const fn new() -> Self {
        Lock(AtomicU32::new(FREE))
    }

    /// Takes the lock if nobody holds it. Never waits; async-signal-safe.
    pub(crate) fn try_lock(&self) -> Option<Guard<'_>> {
        self.try_take(fork::generation(), HELD)
    }

    /// Takes the lock, waiting for its holder.
    pub(crate) fn lock(&self) -> Guard<'_> {
        let generation = fork::generation();
        for _ in 0..SPINS {
            if let Some(guard) = self.try_take(generation, HELD) {
                return guard;
            }
            core::hint::spin_loop();
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
            futex_wait(&self.0, word(generation, CONTENDED));
        }
    }

    fn try_take(&self, generation: u32, state: u32) -> Option<Guard<'_>> {
        let current = self.0.load(Relaxed);
        let same = current >> 2 == word(generation, FREE) >> 2;
        if same && current & STATE != FREE {
            return None;
        }
        // Acquire: pairs with the Release in `drop` of the guard before.
        self.0.compare_exchange(current, word(generation, state), Acquire, Relaxed).ok()?;
        Some(Guard { lock: self, first_in_generation: !same })
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        let generation = self.lock.0.load(Relaxed) >> 2;
        // Release: pairs with the Acquire in `try_take` of the next holder.
        let before = self.lock.0.swap(word(generation, FREE), Release);
        if before & STATE == CONTENDED {
            futex_wake_one(&self.lock.0);
        }
    }
}

/// Sleeps while `word` holds `expected`. May return for no reason.
pub(crate) fn futex_wait(word: &AtomicU32, expected: u32) {
    // SAFETY: the address is that of a live, aligned u32; the kernel only reads it.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            expected,
            core::ptr::null::<libc::timespec>(),
        );
    }
}

fn futex_wake(word: &AtomicU32, how_many: i32) {
    // SAFETY: the address is that of an aligned u32; the kernel only uses it as a name.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            how_many,
        );
    }
}

fn futex_wake_one(word: &AtomicU32) {
    futex_wake(word, 1);
}

/// Wakes everybody who sleeps on `word`.
pub(crate) fn futex_wake_all(word: &AtomicU32) {
    futex_wake(word, i32::MAX);
}
