//! Bitmaps: bits that say which chunks, objects or grains have some property.
//!
//! They are changed under a lock, one word at a time, so that a fork finds each word either as it
//! was or as it will be. The lock orders all accesses, so they are Relaxed.

use super::atomic::{AtomicU64, Ordering::Relaxed};

/// A bitmap in borrowed words.
#[derive(Clone, Copy)]
pub(crate) struct Bits<'a>(pub(crate) &'a [AtomicU64]);

impl Bits<'_> {
    pub(crate) fn has(self, at: usize) -> bool {
        self.0[at / 64].load(Relaxed) >> (at % 64) & 1 != 0
    }

    /// Sets a bit; returns false if it was set.
    pub(crate) fn set(self, at: usize) -> bool {
        let word = &self.0[at / 64];
        let before = word.load(Relaxed);
        let after = before | 1 << (at % 64);
        word.store(after, Relaxed);
        before != after
    }

    /// Sets or clears `count` bits from `at` on; returns how many changed.
    pub(crate) fn put(self, at: usize, count: usize, value: bool) -> usize {
        let mut changed = 0;
        for (word, mask) in masks(at, count) {
            let before = self.0[word].load(Relaxed);
            let after = if value { before | mask } else { before & !mask };
            self.0[word].store(after, Relaxed);
            changed += (before ^ after).count_ones() as usize;
        }
        changed
    }

    /// Returns the first bit of that value in `at..end`, or `end` if there is none.
    pub(crate) fn find(self, value: bool, at: usize, end: usize) -> usize {
        find_by(at, end, |word| {
            let word = self.0[word].load(Relaxed);
            if value { word } else { !word }
        })
    }

    /// Finds the first bit of `self & !others` that is `value` in `at..end`, or returns `end`.
    pub(crate) fn find_without(
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

    /// Finds the first bit of `self | others` that is `value` in `at..end`, or returns `end`.
    pub(crate) fn find_either(self, others: Bits<'_>, value: bool, at: usize, end: usize) -> usize {
        find_by(at, end, |word| {
            let word = self.0[word].load(Relaxed) | others.0[word].load(Relaxed);
            if value { word } else { !word }
        })
    }

    /// Returns the bit after the last one set in `from..end`, or `from` if none is set.
    pub(crate) fn after_last(self, from: usize, end: usize) -> usize {
        after_last_by(from, end, |word| self.0[word].load(Relaxed))
    }

    /// Returns the bit after the last one of `self & !others` that is `value` in `from..end`.
    ///
    /// That is `from` if there is none.
    pub(crate) fn after_last_without(
        self,
        others: Bits<'_>,
        value: bool,
        from: usize,
        end: usize,
    ) -> usize {
        after_last_by(from, end, |word| {
            let word = self.0[word].load(Relaxed) & !others.0[word].load(Relaxed);
            if value { word } else { !word }
        })
    }

    /// Returns the bit after the last one in `from..end` that is set in none of `others`.
    ///
    /// If `value` is false, that is set in some of them. The result is `from` if there is none.
    pub(crate) fn after_last_of_none(
        others: [Bits<'_>; 3],
        value: bool,
        from: usize,
        end: usize,
    ) -> usize {
        after_last_by(from, end, |word| {
            let [first, second, third] = others.map(|bits| bits.0[word].load(Relaxed));
            if value { !(first | second | third) } else { first | second | third }
        })
    }

    /// Copies the words of `from` that have bits below `end`.
    pub(crate) fn copy(self, from: Bits<'_>, end: usize) {
        for (to, from) in self.0.iter().zip(from.0).take(end.div_ceil(64)) {
            to.store(from.load(Relaxed), Relaxed);
        }
    }

    /// Returns how many of `count` bits from `at` on are set.
    pub(crate) fn count(self, at: usize, count: usize) -> usize {
        masks(at, count)
            .map(|(word, mask)| (self.0[word].load(Relaxed) & mask).count_ones())
            .sum::<u32>() as usize
    }

    /// Returns how many of `count` bits from `at` on are clear here and in `others`.
    pub(crate) fn count_neither(self, others: Bits<'_>, at: usize, count: usize) -> usize {
        let of = |word: usize| !self.0[word].load(Relaxed) & !others.0[word].load(Relaxed);
        masks(at, count).map(|(word, mask)| (of(word) & mask).count_ones()).sum::<u32>() as usize
    }

    /// Returns how many bits below `end` are set here and clear in `others`.
    pub(crate) fn count_without(self, others: Bits<'_>, end: usize) -> usize {
        let of = |word: usize| self.0[word].load(Relaxed) & !others.0[word].load(Relaxed);
        masks(0, end).map(|(word, mask)| (of(word) & mask).count_ones()).sum::<u32>() as usize
    }

    /// Clears up to `most` set bits of a word, the lowest ones; returns them as a mask.
    pub(crate) fn take(self, word: usize, most: usize) -> u64 {
        let before = self.0[word].load(Relaxed);
        let mut taken = before;
        while taken.count_ones() as usize > most {
            // The uppermost bit stays set.
            taken &= !(1 << (63 - taken.leading_zeros()));
        }
        self.0[word].store(before & !taken, Relaxed);
        taken
    }
}

/// Returns the first bit set in the words that `word` yields, in `at..end`, or `end`.
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

/// Returns the bit after the last one set in the words that `word` yields, in `from..end`.
fn after_last_by(from: usize, end: usize, word: impl Fn(usize) -> u64) -> usize {
    let mut end = end;
    while end > from {
        let at = (end - 1) / 64;
        let below = word(at) << (63 - (end - 1) % 64);
        if below != 0 {
            return (end - below.leading_zeros() as usize).max(from);
        }
        end = at * 64;
    }
    from
}

/// Returns the words that a range of bits covers, each with the mask of those bits.
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

    fn zeros(words: usize) -> Bits<'static> {
        let words: Vec<AtomicU64> = (0..words).map(|_| AtomicU64::new(0)).collect();
        Bits(Vec::leak(words))
    }

    #[test]
    fn put_and_find_cover_ranges() {
        let bits = zeros(4);
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
    fn find_without_skips_bits_of_others() {
        let (bits, others) = (zeros(3), zeros(3));
        bits.put(10, 100, true);
        others.put(0, 70, true);
        others.put(90, 5, true);
        assert_eq!(bits.find_without(others, true, 0, 192), 70);
        assert_eq!(bits.find_without(others, false, 70, 192), 90);
        assert_eq!(bits.find_without(others, true, 90, 192), 95);
        assert_eq!(bits.find_without(others, false, 95, 192), 110);
        assert_eq!(bits.find_either(others, true, 120, 192), 192);
        assert_eq!(bits.find_either(others, false, 0, 192), 110);
        assert_eq!(bits.after_last_without(others, true, 0, 192), 110);
        assert_eq!(bits.after_last_without(others, false, 0, 110), 95);
        assert_eq!(bits.after_last_without(others, true, 0, 95), 90);
        assert_eq!(bits.after_last_without(others, false, 72, 90), 72);
        assert_eq!(bits.count_without(others, 100), 25);
        assert_eq!(bits.count(65, 20), 20);
    }

    #[test]
    fn after_last_of_none_regards_all_three() {
        let others = [zeros(2), zeros(2), zeros(2)];
        others.iter().enumerate().for_each(|(at, bits)| _ = bits.put(30 * at, 30, true));
        assert_eq!(Bits::after_last_of_none(others, true, 0, 128), 128);
        assert_eq!(Bits::after_last_of_none(others, false, 0, 128), 90);
        assert_eq!(Bits::after_last_of_none(others, true, 5, 90), 5);
    }

    #[test]
    fn copy_replaces_words_below_the_end() {
        let (bits, from) = (zeros(3), zeros(3));
        bits.put(0, 192, true);
        from.put(5, 60, true);
        bits.copy(from, 65);
        assert_eq!((bits.count(0, 128), bits.find(true, 0, 128), bits.count(128, 64)), (60, 5, 64));
    }

    #[test]
    fn take_returns_at_most_the_requested_bits() {
        let bits = zeros(1);
        bits.put(0, 64, true);
        assert_eq!(bits.take(0, 3), 0b111);
        assert_eq!(bits.count(0, 64), 61);
        assert_eq!(bits.take(0, 64), !0b111);
        assert_eq!(bits.count(0, 64), 0);
    }
}
