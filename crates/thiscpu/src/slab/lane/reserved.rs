//! How many bytes of large objects a lane may hold without another slow call.
//!
//! Each sheaf of large objects in a lane counts with its capacity, because sections fill it without
//! counting. The word is changed beside the sections that put sheaves into the lane and take them
//! out. It is exact, except in a child that was forked in between. There it stays off by sheaves
//! whose changes were not yet counted. It also still counts two sheaves for each thread that was
//! swapping, which the child has lost.

use crate::sys::atomic::{AtomicUsize, Ordering::Relaxed};

/// Sizes of large objects are multiples of this, so lower bits are free for the cursor.
const UNIT: usize = 2048;

/// Bytes of large objects, and a cursor: the number of a class.
///
/// The cursor says where the search for a sheaf to take out of the lane goes on.
#[repr(transparent)]
pub(in crate::slab) struct Reserved(AtomicUsize);

// Relaxed, in all of these: the word orders nothing. Changes are atomic additions, because two
// threads on one CPU may be in slow calls at once.

impl Reserved {
    /// Returns the number of bytes; 0 if a fork made it too low.
    pub(in crate::slab) fn bytes(&self) -> usize {
        let word = self.0.load(Relaxed) as isize;
        word.max(0) as usize / UNIT * UNIT
    }

    /// Adds to the number of bytes, or subtracts from it.
    pub(in crate::slab) fn add(&self, bytes: isize) {
        debug_assert!(bytes.unsigned_abs().is_multiple_of(UNIT));
        if bytes != 0 {
            self.0.fetch_add(bytes as usize, Relaxed);
        }
    }

    pub(in crate::slab) fn cursor(&self) -> usize {
        self.0.load(Relaxed) % UNIT
    }

    /// Moves the cursor, unless the word changes meanwhile.
    pub(in crate::slab) fn set_cursor(&self, cursor: usize) {
        debug_assert!(cursor < UNIT);
        let word = self.0.load(Relaxed);
        let _ = self.0.compare_exchange(word, word - word % UNIT + cursor, Relaxed, Relaxed);
    }
}
