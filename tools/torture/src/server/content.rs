//! The content of a block, which follows from a number that only its owner knows.
//!
//! The content of small blocks is known whole. Of a larger block some words are known, or of one in
//! 64 all of them, so checks stay fast and most pages of very large blocks stay untouched.

use std::ptr::{self, NonNull};

use fastrand::Rng;

use crate::violation::{Checked, equal, holds};

/// The most words of a block that is known whole.
const SMALL_WORDS: usize = 32;
/// One of this number of blocks is known whole, if it has at most [`WHOLE_WORDS_MAX`] words.
const ONE_WHOLE_IN: u64 = 64;
const WHOLE_WORDS_MAX: usize = 32 * 1024;
/// The known words of all other blocks: the first, the last, and random ones.
const KNOWN_WORDS: usize = 10;

/// The distance of the words of a zeroed block that are zero, whether they are known or not.
///
/// The malloc's large blocks begin at its multiples, and the first word of each block is known.
const ZEROED_STEP_WORDS: usize = 8 * 1024;

/// The question whether blocks overlap.
pub(super) const OVERLAP: &str = "bytes that a block shares with another one";

/// The place of a block, and the number that its content follows from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Content {
    pub(super) at: NonNull<u8>,
    pub(super) bytes: usize,
    pub(super) number: u64,
}

// SAFETY: an address and two numbers. The functions that access the memory are unsafe.
unsafe impl Send for Content {}

impl Content {
    /// Returns the numbers of the known words.
    fn places(self) -> impl Iterator<Item = usize> {
        let words = self.bytes.div_ceil(8);
        let is_whole = words <= SMALL_WORDS
            || (self.number.is_multiple_of(ONE_WHOLE_IN) && words <= WHOLE_WORDS_MAX);
        let mut random = Rng::with_seed(self.number);
        (0..if is_whole { words } else { KNOWN_WORDS }).map(move |n| match n {
            _ if is_whole => n,
            0 => 0,
            1 => words - 1,
            _ => random.usize(..words),
        })
    }

    /// Returns the length of a word in bytes: 8, except at the end of a block.
    fn word_len(self, place: usize) -> usize {
        (self.bytes - 8 * place).min(8)
    }

    /// Returns the word at `place`.
    fn word(self, place: usize) -> [u8; 8] {
        (self.number ^ place as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_ne_bytes()
    }

    /// Writes all known words.
    ///
    /// # Safety
    ///
    /// The block is allocated, and the caller is its only user.
    pub(super) unsafe fn fill(self) {
        for place in self.places() {
            let word = self.word(place);
            // SAFETY: the word begins in the block and ends with it at the latest.
            unsafe {
                let to = self.at.add(8 * place).as_ptr();
                ptr::copy_nonoverlapping(word.as_ptr(), to, self.word_len(place));
            }
        }
    }

    /// Checks all known words that are whole in the first `bytes` bytes.
    ///
    /// # Safety
    ///
    /// The block is allocated with at least `bytes` bytes, and nobody writes to it meanwhile.
    unsafe fn check_first(self, bytes: usize) -> Checked {
        let is_in = |&place: &usize| 8 * place + self.word_len(place) <= bytes;
        for place in self.places().filter(is_in) {
            // SAFETY: the caller guarantees it.
            let found = unsafe { self.read(place) };
            let len = self.word_len(place);
            holds("a block is unchanged", found[..len] == self.word(place)[..len])?;
        }
        Ok(())
    }

    /// Checks all known words.
    ///
    /// # Safety
    ///
    /// The block is allocated, and nobody writes to it meanwhile.
    pub(super) unsafe fn check(self) -> Checked {
        // SAFETY: the caller guarantees it.
        unsafe { self.check_first(self.bytes) }
    }

    /// Checks that a block which was resized and moved to `new` kept its content.
    ///
    /// # Safety
    ///
    /// The caller guarantees what [`Self::check`] requires, of the block `new`.
    pub(super) unsafe fn check_moved(self, new: Content) -> Checked {
        let kept = self.bytes.min(new.bytes);
        // SAFETY: the new block has that many bytes.
        unsafe { Content { at: new.at, ..self }.check_first(kept) }
    }

    /// Checks that the words that [`Self::fill`] will write are zero, and some others.
    ///
    /// # Safety
    ///
    /// The block is allocated and zeroed, and nobody writes to it meanwhile.
    pub(super) unsafe fn check_zeroed(self) -> Checked {
        let steps = (0..self.bytes / 8).step_by(ZEROED_STEP_WORDS);
        for place in self.places().chain(steps) {
            // SAFETY: the caller guarantees it.
            let found = unsafe { self.read(place) };
            holds("a zeroed block is zero", found == [0; 8])?;
        }
        Ok(())
    }

    /// Reads a word, with zeros behind the end of the block.
    ///
    /// # Safety
    ///
    /// The bytes of the word are allocated and initialized, and nobody writes to them meanwhile.
    unsafe fn read(self, place: usize) -> [u8; 8] {
        let mut word = [0; 8];
        // SAFETY: the caller guarantees it.
        unsafe {
            let from = self.at.add(8 * place).as_ptr();
            ptr::copy_nonoverlapping(from, word.as_mut_ptr(), self.word_len(place));
        }
        word
    }
}

/// Sorts blocks by address, and checks that none overlaps another one. Allocates nothing.
pub(super) fn check_disjoint(blocks: &mut [Content]) -> Checked {
    blocks.sort_unstable_by_key(|block| block.at);
    let overlap = |pair: &[Content]| {
        let (start, next) = (pair[0].at.as_ptr().addr(), pair[1].at.as_ptr().addr());
        (start + pair[0].bytes.max(1)).saturating_sub(next)
    };
    let overlap = blocks.windows(2).map(overlap).max().unwrap_or(0);
    equal(OVERLAP, 0, overlap as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(memory: &mut [u8], number: u64) -> Content {
        Content { at: NonNull::from(&mut *memory).cast(), bytes: memory.len(), number }
    }

    #[test]
    fn changed_byte_is_noticed_in_each_place_of_small_blocks() {
        for bytes in [1, 7, 8, 9, 100, 256] {
            let mut memory = vec![0; bytes];
            for place in 0..bytes {
                let content = content(&mut memory, 5);
                // SAFETY: the memory is this test's own.
                unsafe {
                    content.fill();
                    assert_eq!(content.check(), Ok(()), "{bytes} bytes");
                    content.at.add(place).write(!content.at.add(place).read());
                    assert!(content.check().is_err(), "byte {place} of {bytes}");
                }
            }
        }
    }

    #[test]
    fn content_of_another_number_is_noticed_in_large_blocks() {
        let mut memory = vec![0; 100_003];
        for number in [5, 64] {
            // SAFETY: the memory is this test's own.
            unsafe {
                content(&mut memory, number).fill();
                assert_eq!(content(&mut memory, number).check(), Ok(()));
                assert!(content(&mut memory, 6).check().is_err());
            }
        }
    }

    #[test]
    fn moved_block_keeps_the_content_that_both_sizes_have() {
        let (mut old, mut new) = (vec![0; 200], vec![0; 300]);
        for kept in [0, 1, 8, 13, 199, 200, 300] {
            let old = content(&mut old, 7);
            let new = Content { bytes: kept, ..content(&mut new, 8) };
            let copied = kept.min(200);
            // SAFETY: both are this test's own.
            unsafe {
                old.fill();
                ptr::copy_nonoverlapping(old.at.as_ptr(), new.at.as_ptr(), copied);
                assert_eq!(old.check_moved(new), Ok(()), "{kept} bytes");
                if copied >= 8 {
                    new.at.write(!new.at.read());
                    assert!(old.check_moved(new).is_err(), "{kept} bytes");
                }
            }
        }
    }

    #[test]
    fn dirty_byte_is_no_zeroed_block() {
        let mut memory = vec![0; 77];
        // SAFETY: the memory is this test's own.
        assert_eq!(unsafe { content(&mut memory, 1).check_zeroed() }, Ok(()));
        memory[76] = 1;
        // SAFETY: the memory is this test's own.
        assert!(unsafe { content(&mut memory, 1).check_zeroed() }.is_err());
    }

    #[test]
    fn overlap_is_found_in_any_order() {
        let mut memory = [0; 64];
        let whole = content(&mut memory, 0);
        let part = |start, bytes| {
            // SAFETY: the part begins in the memory.
            Content { at: unsafe { whole.at.add(start) }, bytes, number: 0 }
        };
        let mut blocks = [part(32, 32), part(0, 16), part(16, 16)];
        assert_eq!(check_disjoint(&mut blocks), Ok(()));
        blocks[1].bytes = 17;
        assert_eq!(check_disjoint(&mut blocks).unwrap_err().found, 1);
        assert!(check_disjoint(&mut [part(0, 0), part(0, 0)]).is_err());
    }
}
