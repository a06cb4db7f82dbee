//! Which free units keep their pages.
//!
//! Free units keep their pages for a while, because to drop a page and get another costs a quarter of a
//! microsecond. More of them than a sixteenth of what is in use, and a mebibyte, are kept for ten milliseconds at most, and
//! more than a quarter of it, and 16 MiB, not at all. There is no thread for this: whoever gives units back does it, so that
//! what was given back last may stay.

use super::space::{SPACE, Space, UNIT};
use crate::sys::atomic::Ordering::Relaxed;
use crate::sys::machine::{Here, Machine as _};

const MEBIBYTE: usize = (1024 * 1024) / UNIT;
const PATIENCE_NS: u64 = 10_000_000;

impl Space {
    /// Free units are as many as are wanted. Under the lock.
    pub(super) fn calm(&self) {
        if self.dirty.load(Relaxed) <= self.dirty_wanted() {
            self.dirty_since.store(0, Relaxed);
        }
    }

    fn dirty_wanted(&self) -> usize {
        self.used.load(Relaxed) / 16 + MEBIBYTE
    }

    /// Drops the pages of free units if there have been too many for some time. Under the lock.
    pub(super) fn purge_if_many(&self) {
        let dirty = self.dirty.load(Relaxed);
        if dirty <= self.dirty_wanted() {
            return;
        }
        let since = self.dirty_since.load(Relaxed);
        let is_far_too_many = dirty > self.used.load(Relaxed) / 4 + 16 * MEBIBYTE;
        let now = Here::coarse_time().max(1);
        if is_far_too_many || (since != 0 && now - since > PATIENCE_NS) {
            self.purge();
        } else if since == 0 {
            self.dirty_since.store(now, Relaxed);
        }
    }

    /// Drops the pages of all free units. How many that were. Under the lock.
    fn purge(&self) -> usize {
        let high = self.high();
        if high == 0 {
            // Nothing was ever used, and there may be no bits yet.
            return 0;
        }
        let bits = self.dirty_bits();
        let before = self.dirty.load(Relaxed);
        let mut at = bits.find(true, 0, high);
        while at < high {
            let end = bits.find(false, at, high);
            // SAFETY: the units are free, and nobody can take them meanwhile.
            if unsafe { Here::forget(self.address(at), (end - at) * UNIT) } {
                bits.put(at, end - at, false);
            }
            at = bits.find(true, end, high);
        }
        self.dirty.store(bits.count(high), Relaxed);
        self.dirty_since.store(0, Relaxed);
        before.saturating_sub(self.dirty.load(Relaxed))
    }
}

/// Gives the pages of all free units back to the system. How many bytes that were.
pub fn purge() -> usize {
    let _guard = SPACE.lock();
    SPACE.purge() * UNIT
}
