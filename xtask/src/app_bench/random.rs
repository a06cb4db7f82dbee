//! Numbers that look random and are the same on every machine, to make inputs of.

/// A generator of splitmix64's kind.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// One of `choices`.
    pub(super) fn one_of<'c>(&mut self, choices: &[&'c str]) -> &'c str {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// A word of some letters.
    pub(super) fn word(&mut self) -> String {
        let letters = 2 + self.below(9);
        (0..letters).map(|_| char::from(b'a' + self.below(26) as u8)).collect()
    }
}
