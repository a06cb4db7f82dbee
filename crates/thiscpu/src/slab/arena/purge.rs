//! Which free units keep their pages.
//!
//! Free units keep their pages for a while, because to drop a page and get another costs a quarter of a
//! microsecond. If they have been more than a mebibyte and a sixteenth of what is in use, and that is 65 MiB at most, for ten
//! milliseconds, or are more than 16 MiB and a quarter of it, 144 MiB at most, the pages of all of them are dropped. There is no
//! thread for this: whoever frees does it. Whoever allocates drops a mebibyte at most.
//!
//! Pages are dropped a piece at a time and without the lock: the units of the piece are used meanwhile. Who finds no other memory then
//! waits for them. A child that is forked then takes them back. Pages that are locked stay; it is not tried again for a second.

use super::{SPACE, Space, UNIT};
use crate::sys::Host;
use crate::sys::atomic::{AtomicU64, Ordering::Relaxed};
use crate::sys::errno;
use crate::sys::lock::{Guard, Lock};
use crate::sys::machine::Machine as _;

const MEBIBYTE: usize = (1024 * 1024) / UNIT;
const PATIENCE_NS: u64 = 10_000_000;
const REFUSED_NS: u64 = 1_000_000_000;
/// The units whose pages are dropped at once.
const PIECE: usize = 16 * MEBIBYTE;
/// The most units whose pages a call drops that allocates.
const SOME: usize = MEBIBYTE;

#[derive(Debug)]
pub(super) struct Purging {
    /// Whose it is to drop pages.
    turn: Lock,
    /// The units that are used for that: their number, and in the upper half the first.
    piece: AtomicU64,
    /// Since when free units with pages are more than are wanted; 0 while they are not.
    since: AtomicU64,
    /// When pages stayed.
    refused: AtomicU64,
}

impl Purging {
    pub(super) const fn new() -> Purging {
        Purging {
            turn: Lock::new(),
            piece: AtomicU64::new(0),
            since: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// Waits for whoever drops pages; nobody else does until this is dropped. Who has the space's lock must not ask for it.
    pub(super) fn turn(&self) -> Guard<'_> {
        self.turn.lock()
    }

    /// Whether units are used for that. Under the space's lock.
    pub(super) fn is_under_way(&self) -> bool {
        self.piece.load(Relaxed) != 0
    }
}

impl Space {
    /// Whether free units have had too many pages for some time.
    fn has_many(&self) -> bool {
        // Relaxed, all of it: estimates, and who finds another's moment looks again soon.
        let (dirty, used) = (self.dirty.load(Relaxed), self.used.load(Relaxed));
        let since = self.purging.since.load(Relaxed);
        if dirty <= (used / 16).min(64 * MEBIBYTE) + MEBIBYTE {
            if since != 0 {
                self.purging.since.store(0, Relaxed);
            }
            return false;
        }
        let now = Host::coarse_time().max(1);
        if since == 0 {
            self.purging.since.store(now, Relaxed);
        }
        let refused = self.purging.refused.load(Relaxed);
        if refused != 0 && now.saturating_sub(refused) < REFUSED_NS {
            return false;
        }
        let is_far_too_many = dirty > (used / 4).min(128 * MEBIBYTE) + 16 * MEBIBYTE;
        is_far_too_many || (since != 0 && now.saturating_sub(since) > PATIENCE_NS)
    }

    /// Drops the pages of units that are free now: all, or `most` of them. How many that were. In turn.
    pub(super) fn purge(&self, most: usize) -> usize {
        let (mut at, mut left, mut dropped, mut is_refused) = (0, most, 0, false);
        while let Some((first, count)) = self.take_piece(at, left.min(PIECE)) {
            self.unpack(first, count);
            // SAFETY: the units are this function's own, and were free.
            let is_done = unsafe { Host::forget(self.address(first), count * UNIT) };
            self.give_piece(first, count, !is_done);
            is_refused |= !is_done;
            dropped += if is_done { count } else { 0 };
            (at, left) = (first + count, left - count);
        }
        let refused = if is_refused { Host::coarse_time().max(1) } else { 0 };
        self.purging.refused.store(refused, Relaxed);
        if left > 0 {
            self.purging.since.store(0, Relaxed);
        }
        dropped
    }

    /// Takes the next free units that have pages, `most` at most: the first, and how many.
    fn take_piece(&self, at: usize, most: usize) -> Option<(usize, usize)> {
        let _guard = self.lock();
        let high = self.high();
        if at >= high {
            // Or nothing was ever used, and there are no bits yet.
            return None;
        }
        let (used, dirty) = (self.used_bits(), self.dirty_bits());
        let first = dirty.find_without(used, true, at, high);
        let count = dirty.find_without(used, false, first, high.min(first + most)) - first;
        if count == 0 {
            return None;
        }
        // First: a child that is forked from here on takes them back.
        self.purging.piece.store((first as u64) << 32 | count as u64, Relaxed);
        self.raise_behind(first + count);
        used.put(first, count, true);
        self.dirty.store(self.dirty.load(Relaxed).saturating_sub(count), Relaxed);
        Some((first, count))
    }

    fn give_piece(&self, first: usize, count: usize, is_dirty: bool) {
        let _guard = self.lock();
        self.give_at(first, count, is_dirty);
        self.purging.piece.store(0, Relaxed);
    }

    /// The piece whose pages the parent was dropping, if it was: then counts are to be made anew. Under the lock.
    pub(super) fn take_back_what_was_purged(&self) -> bool {
        let piece = self.purging.piece.load(Relaxed);
        if piece != 0 {
            self.give_at((piece >> 32) as usize, piece as u32 as usize, true);
            self.purging.piece.store(0, Relaxed);
        }
        piece != 0
    }
}

/// Drops the pages of free units if they have had too many for some time, unless somebody else is just doing that.
/// For who holds no lock.
#[inline]
pub(crate) fn if_many() {
    if_so_many(usize::MAX);
}

/// The same for who allocates, and is not to wait for long: a mebibyte at most. The next goes on with it at once.
pub fn some_if_many() {
    if_so_many(SOME);
}

#[inline]
fn if_so_many(most: usize) {
    if SPACE.has_many()
        && let Some(_turn) = SPACE.purging.turn.try_lock()
    {
        SPACE.purge(most);
    }
}

/// Gives the pages of all free units back to the system. How many bytes that were.
pub fn purge() -> usize {
    if SPACE.is_unused() {
        return 0;
    }
    let _errno = errno::save();
    let _turn = SPACE.purging.turn();
    {
        let _guard = SPACE.lock();
        SPACE.give_packed(0, SPACE.high());
    }
    SPACE.purge(usize::MAX) * UNIT
}
