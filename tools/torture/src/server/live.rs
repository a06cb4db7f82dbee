//! The blocks in use, by address: a new block must not overlap any of them.
//!
//! The set is in the memory of the C library's malloc, which is not under test. It is divided by
//! address, so threads seldom wait for each other. A block has a piece in each region that it
//! touches.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use super::content::{Content, OVERLAP};
use crate::violation::{Checked, equal};

/// The bytes of a region: pieces of different regions may be in different shards.
const REGION_BYTES: usize = 4 << 20;
pub(super) const SHARDS: usize = 64;

/// The part of a block that is in one region.
struct Piece {
    end: usize,
    /// In the first piece of a block whose content is written.
    content: Option<Content>,
}

type Shard = BTreeMap<usize, Piece>;

/// The blocks in use.
pub(super) struct Live {
    shards: [Mutex<Shard>; SHARDS],
    /// Relaxed: set by the only thread of a child.
    is_child: AtomicBool,
}

impl Live {
    pub(super) fn new() -> Live {
        let shards = std::array::from_fn(|_| Mutex::default());
        Live { shards, is_child: AtomicBool::new(false) }
    }

    /// Leaves out, from now on, the shards that were locked when this process was forked.
    ///
    /// The threads that locked them do not exist in a child, so these shards stay locked.
    pub(super) fn enter_child(&self) {
        self.is_child.store(true, Relaxed);
    }

    /// Returns a locked shard, or `None` if a child has to leave it out.
    fn lock(&self, shard: usize) -> Option<MutexGuard<'_, Shard>> {
        let shard = &self.shards[shard % SHARDS];
        if !self.is_child.load(Relaxed) {
            return Some(shard.lock().unwrap_or_else(PoisonError::into_inner));
        }
        match shard.try_lock() {
            Ok(shard) => Some(shard),
            Err(TryLockError::Poisoned(shard)) => Some(shard.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Adds a block whose content is not written yet.
    ///
    /// Fails if it overlaps another one.
    pub(super) fn insert(&self, block: Content) -> Checked {
        for (start, end) in pieces(block) {
            let Some(mut shard) = self.lock(start / REGION_BYTES) else { continue };
            let below = shard.range(..end).next_back();
            let overlap = below.map_or(0, |(_, piece)| piece.end.saturating_sub(start));
            equal(OVERLAP, 0, overlap as i64)?;
            shard.insert(start, Piece { end, content: None });
        }
        Ok(())
    }

    /// Records that the content of a block is written, and that its owner will not change it.
    pub(super) fn settle(&self, block: Content) {
        let start = block.at.as_ptr().addr();
        if let Some(mut shard) = self.lock(start / REGION_BYTES)
            && let Some(piece) = shard.get_mut(&start)
        {
            piece.content = Some(block);
        }
    }

    /// Removes a block that is about to be freed or resized.
    pub(super) fn remove(&self, block: Content) -> Checked {
        // The first piece first: sweeps check blocks while they lock that one's shard.
        for (start, _) in pieces(block) {
            if let Some(mut shard) = self.lock(start / REGION_BYTES) {
                let found = shard.remove(&start).is_some();
                equal("records of a block in use", 1, found.into())?;
            }
        }
        Ok(())
    }

    /// Checks the content of all settled blocks in one shard.
    pub(super) fn sweep_shard(&self, shard: usize) -> Checked {
        let Some(shard) = self.lock(shard) else { return Ok(()) };
        shard.values().filter_map(|piece| piece.content).try_for_each(|content| {
            // SAFETY: the block is allocated while it is in the set, and its owner does not write
            // to it since it is settled. The lock keeps it in the set.
            unsafe { content.check() }
        })
    }

    /// Checks the content of all settled blocks.
    pub(super) fn sweep(&self) -> Checked {
        (0..SHARDS).try_for_each(|shard| self.sweep_shard(shard))
    }

    /// Checks that no block is in use.
    pub(super) fn check_empty(&self) -> Checked {
        let left = (0..SHARDS).filter_map(|shard| self.lock(shard)).map(|shard| shard.len());
        equal("pieces of blocks that were never freed", 0, left.sum::<usize>() as i64)
    }
}

/// Returns the beginning and the end of each piece of a block.
///
/// A block of 0 bytes occupies one: its address is no other block's.
fn pieces(block: Content) -> impl Iterator<Item = (usize, usize)> {
    let start = block.at.as_ptr().addr();
    let end = start + block.bytes.max(1);
    let regions = start / REGION_BYTES..=(end - 1) / REGION_BYTES;
    regions.map(move |region| {
        let first = region * REGION_BYTES;
        (start.max(first), end.min(first + REGION_BYTES))
    })
}

#[cfg(test)]
mod tests {
    use std::ptr::NonNull;

    use super::*;

    /// Returns a block that is never accessed.
    fn block(start: usize, bytes: usize) -> Content {
        let at = NonNull::new(std::ptr::without_provenance_mut(start)).unwrap();
        Content { at, bytes, number: 0 }
    }

    #[test]
    fn overlap_is_refused_and_neighbors_are_not() {
        let live = Live::new();
        let start = 9 * REGION_BYTES - 64;
        live.insert(block(start, 128)).unwrap();
        for (at, bytes) in [(start, 128), (start - 1, 2), (start + 127, 1), (start + 64, 1)] {
            assert!(live.insert(block(at, bytes)).is_err(), "{at:#x}");
        }
        assert!(live.insert(block(start - REGION_BYTES, 3 * REGION_BYTES)).is_err());
        live.insert(block(start + 128, 16)).unwrap();
        live.insert(block(start - 16, 16)).unwrap();
    }

    #[test]
    fn empty_block_has_an_address_of_its_own() {
        let live = Live::new();
        live.insert(block(4096, 0)).unwrap();
        assert!(live.insert(block(4096, 0)).is_err());
    }

    #[test]
    fn removed_block_may_be_handed_out_again() {
        let live = Live::new();
        let large = block(REGION_BYTES - 8, 5 * REGION_BYTES);
        for _ in 0..2 {
            live.insert(large).unwrap();
            assert!(live.check_empty().is_err());
            live.remove(large).unwrap();
            live.check_empty().unwrap();
        }
        assert!(live.remove(large).is_err(), "a block that is not in use");
    }

    #[test]
    fn sweep_finds_a_changed_block_once_it_is_settled() {
        let live = Live::new();
        let mut memory = [0_u8; 64];
        let content = Content { at: NonNull::from(&mut memory).cast(), bytes: 64, number: 3 };
        live.insert(content).unwrap();
        live.sweep().unwrap();
        live.settle(content);
        assert!(live.sweep().is_err(), "its content was never written");
        // SAFETY: the memory is this test's own.
        unsafe { content.fill() };
        live.sweep().unwrap();
    }

    #[test]
    fn child_leaves_out_shards_that_stay_locked() {
        let live = Live::new();
        live.insert(block(4096, 16)).unwrap();
        live.enter_child();
        let locked = live.lock(0);
        live.insert(block(4096, 16)).unwrap();
        live.remove(block(4096, 16)).unwrap();
        drop(locked);
        assert!(live.insert(block(4096, 16)).is_err());
    }
}
