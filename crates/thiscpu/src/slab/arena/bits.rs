//! A row of bits in memory: which chunks, or objects, are something.
//!
//! Changed one word at a time, under a lock, so that a fork finds each word as it was or as it is to be.

use crate::sys::atomic::{AtomicU64, Ordering::Relaxed};

/// The bits of some words.
#[derive(Clone, Copy)]
pub(super) struct Bits<'a>(pub(super) &'a [AtomicU64]);

impl Bits<'_> {
    pub(super) fn has(self, at: usize) -> bool {
        self.0[at / 64].load(Relaxed) >> (at % 64) & 1 != 0
    }

    /// Sets a bit; false if it was set.
    pub(super) fn set(self, at: usize) -> bool {
        let word = &self.0[at / 64];
        let before = word.load(Relaxed);
        let after = before | 1 << (at % 64);
        word.store(after, Relaxed);
        before != after
    }

    /// Sets `count` bits from `at`, or clears them. How many that changed.
    pub(super) fn put(self, at: usize, count: usize, value: bool) -> usize {
        let mut changed = 0;
        for (word, mask) in masks(at, count) {
            let before = self.0[word].load(Relaxed);
            let after = if value { before | mask } else { before & !mask };
            self.0[word].store(after, Relaxed);
            changed += (before ^ after).count_ones() as usize;
        }
        changed
    }

    /// The first bit of that value from `at` on and below `end`; else `end`.
    pub(super) fn find(self, value: bool, at: usize, end: usize) -> usize {
        find_by(at, end, |word| {
            let word = self.0[word].load(Relaxed);
            if value { word } else { !word }
        })
    }

    /// The same for a bit that is set here and not set there, or not so.
    pub(super) fn find_without(
        self,
        others: Bits<'_>,
        value: bool,
        at: usize,
        end: usize,
    ) -> usize {
        find_by(at, end, |word| {
            let word = self.0[word].load(Relaxed) & !others.0[word].load(Relaxed);
            if value { word } else { !word }
        })
    }

    /// What comes after the last bit that is set from `from` on and below `end`; `from` if none is.
    pub(super) fn after_last(self, from: usize, end: usize) -> usize {
        let mut end = end;
        while end > from {
            let word = (end - 1) / 64;
            let below = self.0[word].load(Relaxed) << (63 - (end - 1) % 64);
            if below != 0 {
                return (end - below.leading_zeros() as usize).max(from);
            }
            end = word * 64;
        }
        from
    }

    /// How many of `count` from `at` on are set.
    pub(super) fn count(self, at: usize, count: usize) -> usize {
        masks(at, count)
            .map(|(word, mask)| (self.0[word].load(Relaxed) & mask).count_ones())
            .sum::<u32>() as usize
    }

    /// How many of `count` from `at` on are set neither here nor there.
    pub(super) fn count_neither(self, others: Bits<'_>, at: usize, count: usize) -> usize {
        let of = |word: usize| !self.0[word].load(Relaxed) & !others.0[word].load(Relaxed);
        masks(at, count).map(|(word, mask)| (of(word) & mask).count_ones()).sum::<u32>() as usize
    }

    /// How many below `end` are set here and not set there.
    pub(super) fn count_without(self, others: Bits<'_>, end: usize) -> usize {
        let of = |word: usize| self.0[word].load(Relaxed) & !others.0[word].load(Relaxed);
        masks(0, end).map(|(word, mask)| (of(word) & mask).count_ones()).sum::<u32>() as usize
    }

    /// Takes up to `most` set bits from word `word` away. They are returned as a mask.
    pub(super) fn take(self, word: usize, most: usize) -> u64 {
        let there = self.0[word].load(Relaxed);
        let mut taken = there;
        while taken.count_ones() as usize > most {
            // The uppermost stays.
            taken &= !(1 << (63 - taken.leading_zeros()));
        }
        self.0[word].store(there & !taken, Relaxed);
        taken
    }
}

/// The first bit that is set in such words from `at` on and below `end`; else `end`.
fn find_by(at: usize, end: usize, word: impl Fn(usize) -> u64) -> usize {
    let mut at = at;
    while at < end {
        let wanted = word(at / 64) >> (at % 64);
        if wanted != 0 {
            return (at + wanted.trailing_zeros() as usize).min(end);
        }
        at = (at / 64 + 1) * 64;
    }
    end
}

/// The words that a range of bits covers, each with the bits it covers.
fn masks(at: usize, count: usize) -> impl Iterator<Item = (usize, u64)> {
    let end = at + count;
    (at / 64..end.div_ceil(64)).filter_map(move |word| {
        let from = at.max(word * 64) - word * 64;
        let to = end.min(word * 64 + 64) - word * 64;
        (from < to).then(|| (word, (!0 >> (64 - (to - from))) << from))
    })
}

#[cfg(all(test, not(thiscpu_model)))]
mod tests {
    use super::*;

    fn some(words: usize) -> Bits<'static> {
        let words: Vec<AtomicU64> = (0..words).map(|_| AtomicU64::new(0)).collect();
        Bits(Vec::leak(words))
    }

    #[test]
    fn ranges_are_set_and_found() {
        let bits = some(4);
        for (at, count) in [(0, 1), (63, 2), (64, 64), (10, 200), (255, 1), (7, 0)] {
            assert_eq!(bits.put(at, count, true), count);
            assert_eq!(bits.put(at, count, true), 0);
            assert_eq!(bits.count(0, 256), count);
            assert_eq!(bits.find(true, 0, 256), if count == 0 { 256 } else { at });
            assert_eq!(bits.find(false, at, 256), at + count);
            assert_eq!(bits.after_last(0, 256), if count == 0 { 0 } else { at + count });
            assert_eq!(bits.after_last(0, at), 0);
            assert_eq!(bits.after_last(0, at + 1), if count == 0 { 0 } else { at + 1 });
            assert_eq!(bits.after_last(at + count, 256), at + count);
            assert_eq!(bits.after_last(at / 2, at), at / 2);
            assert_eq!(bits.put(0, 256, false), count);
        }
        assert_eq!(bits.find(true, 3, 100), 100);
    }

    #[test]
    fn bits_without_others_are_found() {
        let (bits, others) = (some(3), some(3));
        bits.put(10, 100, true);
        others.put(0, 70, true);
        others.put(90, 5, true);
        assert_eq!(bits.find_without(others, true, 0, 192), 70);
        assert_eq!(bits.find_without(others, false, 70, 192), 90);
        assert_eq!(bits.find_without(others, true, 90, 192), 95);
        assert_eq!(bits.find_without(others, false, 95, 192), 110);
        assert_eq!(bits.count_without(others, 100), 25);
        assert_eq!(bits.count(65, 20), 20);
    }

    #[test]
    fn no_more_are_taken_than_asked_for() {
        let bits = some(1);
        bits.put(0, 64, true);
        assert_eq!(bits.take(0, 3), 0b111);
        assert_eq!(bits.count(0, 64), 61);
        assert_eq!(bits.take(0, 64), !0b111);
        assert_eq!(bits.count(0, 64), 0);
    }
}
