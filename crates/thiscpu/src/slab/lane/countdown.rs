//! The countdown of a lane: the allocations before one leaves the fast path.
//!
//! Without it, a program whose allocations all find an object in their lane would never return
//! memory. The sections that allocate for malloc decrement the count, and leave the fast path once
//! it is 0.
//!
//! A section that is aborted may have counted, and its repetition counts again. A store from
//! another CPU may be lost to a section that has just loaded the count. So the count is only about
//! right, and orders nothing: all accesses are Relaxed.

use crate::sys::atomic::{AtomicU32, Ordering::Relaxed};

/// The countdown of a lane, and a word for its user.
#[repr(C)]
#[derive(Debug)]
pub struct Countdown {
    left: AtomicU32,
    note: AtomicU32,
}

impl Countdown {
    /// Returns the number of allocations that may still take the fast path.
    pub fn left(&self) -> u32 {
        self.left.load(Relaxed)
    }

    /// Sets how many allocations may take the fast path, and the user's word.
    ///
    /// The number is below 2^31.
    pub fn restart(&self, calls: u32, note: u32) {
        debug_assert!(calls <= i32::MAX as u32);
        self.note.store(note, Relaxed);
        self.left.store(calls, Relaxed);
    }

    /// Lets at most `most` allocations take the fast path.
    pub fn lower(&self, most: u32) {
        if self.left() > most {
            self.left.store(most, Relaxed);
        }
    }

    /// Counts a call outside of sections, if the countdown is not over; returns whether it was.
    pub fn count(&self) -> bool {
        let left = self.left();
        if left > 0 {
            self.left.store(left - 1, Relaxed);
        }
        left == 0
    }

    /// Returns the user's word.
    pub fn note(&self) -> u32 {
        self.note.load(Relaxed)
    }
}
