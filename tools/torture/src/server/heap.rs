//! The allocator under test, with a check of each answer.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use fastrand::Rng;
use thiscpu_malloc::{
    allocate, allocate_aligned, allocate_aligned_zeroed, allocate_zeroed, free, resize, stats,
    trim, usable_size,
};

use super::content::Content;
use super::live::Live;
use crate::violation::{Checked, Violation, equal, holds, within};

/// The most bytes of memory that the allocator may keep after a trim, when nothing is in use.
const KEPT_BYTES_MAX: i64 = 4 << 20;

/// An allocation that fails.
const NO_BLOCK: Violation = Violation { what: "an allocated block", low: 1, high: 1, found: 0 };

/// A block in use. Its owner frees it by [`Heap::free`]; a dropped one is lost, which fails.
#[derive(Debug)]
pub(super) struct Block(Content);

impl Block {
    pub(super) fn bytes(&self) -> usize {
        self.0.bytes
    }
}

/// The allocator under test, and all blocks in use.
pub(super) struct Heap {
    pub(super) live: Live,
    /// The number of calls. Relaxed: nothing is decided by it.
    calls: AtomicU64,
}

impl Heap {
    pub(super) fn new() -> Heap {
        Heap { live: Live::new(), calls: AtomicU64::new(0) }
    }

    pub(super) fn calls(&self) -> u64 {
        self.calls.load(Relaxed)
    }

    /// Allocates a block in one of four ways, and fills it.
    ///
    /// Fails if memory is exhausted.
    pub(super) fn alloc(&self, random: &mut Rng, bytes: usize) -> Checked<Block> {
        self.try_alloc(random, bytes)?.ok_or(NO_BLOCK)
    }

    /// Allocates as [`Self::alloc`] does; returns `None` if memory is exhausted.
    pub(super) fn try_alloc(&self, random: &mut Rng, bytes: usize) -> Checked<Option<Block>> {
        self.calls.fetch_add(1, Relaxed);
        let (way, align) = (random.u8(..16), 1_usize << random.u8(4..=12));
        let (at, align, is_zeroed) = match way {
            0 => (allocate_aligned(bytes, align), align, false),
            1 => (allocate_aligned_zeroed(bytes, align), align, true),
            2..5 => (allocate_zeroed(bytes), usual_align(bytes), true),
            _ => (allocate(bytes), usual_align(bytes), false),
        };
        let Some(at) = at else { return Ok(None) };
        equal("the misalignment of a block", 0, (at.as_ptr().addr() % align) as i64)?;
        self.adopt(random, at, bytes, is_zeroed).map(Some)
    }

    /// Records and fills a new block.
    fn adopt(
        &self,
        random: &mut Rng,
        at: NonNull<u8>,
        bytes: usize,
        is_zeroed: bool,
    ) -> Checked<Block> {
        let content = Content { at, bytes, number: random.u64(..) };
        self.live.insert(content)?;
        // SAFETY: the block is allocated, and this thread is its only owner (unless the allocator
        // is broken).
        unsafe {
            holds("a block has the requested size", usable_size(at) >= bytes)?;
            if is_zeroed {
                content.check_zeroed()?;
            }
            content.fill();
        }
        self.live.settle(content);
        Ok(Block(content))
    }

    /// Resizes a block, and fills it again. Fails if memory is exhausted.
    pub(super) fn resize(&self, random: &mut Rng, block: Block, bytes: usize) -> Checked<Block> {
        self.calls.fetch_add(1, Relaxed);
        let Block(before) = block;
        self.live.remove(before)?;
        // SAFETY: the block is in use, and `block` was its only owner.
        let at = unsafe {
            before.check()?;
            resize(before.at, bytes)
        };
        let at = at.ok_or(NO_BLOCK)?;
        let after = Content { at, bytes, number: 0 };
        // SAFETY: the new block is allocated, and not known to another thread yet.
        unsafe { before.check_moved(after)? };
        self.adopt(random, at, bytes, false)
    }

    /// Checks a block and frees it.
    pub(super) fn free(&self, block: Block) -> Checked {
        self.calls.fetch_add(1, Relaxed);
        let Block(content) = block;
        self.live.remove(content)?;
        // SAFETY: the block is in use, and `block` was its only owner.
        unsafe {
            content.check()?;
            free(content.at);
        }
        Ok(())
    }

    /// Checks blocks and frees them.
    pub(super) fn free_all(&self, blocks: impl IntoIterator<Item = Block>) -> Checked {
        blocks.into_iter().try_for_each(|block| self.free(block))
    }

    /// Checks blocks that stay in use.
    pub(super) fn check<'a>(&self, blocks: impl IntoIterator<Item = &'a Block>) -> Checked {
        // SAFETY: the blocks are in use, and only their owner, who lends them, may change them.
        blocks.into_iter().try_for_each(|block| unsafe { block.0.check() })
    }

    /// Checks that nothing is in use and that the allocator knows it.
    ///
    /// Only for a process without other threads that allocate.
    pub(super) fn check_nothing_lost(&self) -> Checked {
        self.live.check_empty()?;
        trim(0);
        let stats = stats();
        equal("bytes in use after all frees", 0, stats.allocated_bytes as i64)?;
        equal("large blocks in use after all frees", 0, stats.large_blocks as i64)?;
        within("bytes kept after a trim", (0, KEPT_BYTES_MAX), stats.system_bytes as i64)
    }
}

/// Returns the alignment that a block has without a request.
fn usual_align(bytes: usize) -> usize {
    if bytes > 8 { 16 } else { 8 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a heap with a block in use.
    fn heap_with_block(random: &mut Rng) -> (Heap, Block) {
        let heap = Heap::new();
        let block = heap.alloc(random, 100).unwrap();
        (heap, block)
    }

    #[test]
    fn block_handed_out_twice_is_noticed() {
        let mut random = Rng::with_seed(1);
        let (heap, Block(content)) = heap_with_block(&mut random);
        let again = heap.adopt(&mut random, content.at, content.bytes, false);
        assert_eq!(again.unwrap_err().found, 100);
    }

    #[test]
    fn changed_content_is_noticed_by_each_use() {
        let mut random = Rng::with_seed(2);
        let uses: [fn(&Heap, &mut Rng, Block) -> Checked; 4] = [
            |heap, _, block| heap.free(block),
            |heap, random, block| heap.resize(random, block, 200).map(drop),
            |heap, _, block| heap.check([&block]),
            |heap, _, _| heap.live.sweep(),
        ];
        for (number, use_block) in uses.into_iter().enumerate() {
            let (heap, block) = heap_with_block(&mut random);
            // SAFETY: the block is this test's own.
            unsafe { block.0.at.add(50).write(!block.0.at.add(50).read()) };
            let what = use_block(&heap, &mut random, block).unwrap_err().what;
            assert_eq!(what, "a block is unchanged", "use {number}");
        }
    }

    #[test]
    fn forgotten_block_is_noticed() {
        let mut random = Rng::with_seed(3);
        let (heap, block) = heap_with_block(&mut random);
        assert!(heap.check_nothing_lost().is_err());
        heap.free(block).unwrap();
        heap.live.check_empty().unwrap();
    }

    #[test]
    fn resized_block_has_new_content() {
        let mut random = Rng::with_seed(4);
        let (heap, mut block) = heap_with_block(&mut random);
        for bytes in [10, 5_000, 200_000, 1_000_000, 3] {
            block = heap.resize(&mut random, block, bytes).unwrap();
            assert_eq!(block.bytes(), bytes);
            heap.check([&block]).unwrap();
        }
        heap.free(block).unwrap();
    }
}
