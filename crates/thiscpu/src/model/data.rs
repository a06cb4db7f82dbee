//! A word of the program under test, outside this library.

use crate::sys::atomic::{AtomicU64, Ordering::Relaxed};

/// A word that a program writes and reads without any order.
///
/// It tests what a call orders: a thread that is not ordered after a write may read the old value.
#[derive(Debug)]
pub struct Data(AtomicU64);

impl Data {
    /// Creates a word that holds 0 when an execution begins.
    pub const fn zeroed() -> Data {
        Data(AtomicU64::new(0))
    }

    /// Stores a value. Relaxed.
    pub fn write(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    /// Returns a value that was stored: the last one, only if this thread is ordered after that.
    pub fn read(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
