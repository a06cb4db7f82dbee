//! Random numbers that are the same in every run.

/// The seed of all streams; a failing scenario prints it.
pub(crate) const SEED: u64 = 0x7415_c9b0_0000_0001;

/// A SplitMix64 generator.
pub(crate) struct Random(u64);

impl Random {
    /// Starts the stream of that number.
    pub(crate) fn new(stream: u64) -> Random {
        Random(SEED ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Returns the next 64 random bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Returns an amount to add: mostly 1 or -1, sometimes up to 1000, 32768 or any `i64`.
    pub(crate) fn amount(&mut self) -> i64 {
        match self.below(16) {
            0..6 => 1,
            6..10 => -1,
            10 => self.below(2000) as i64 - 1000,
            11 => 32_768,
            12 => -32_768,
            13 => (self.next() as i64) >> 20,
            14 => [i64::MAX, i64::MIN, i64::MAX - 1, -i64::MAX][self.below(4) as usize],
            _ => self.next() as i64,
        }
    }
}
