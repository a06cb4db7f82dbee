//! Random numbers that every run repeats, on every machine.

/// The seed of all streams of tests; a failing scenario prints it.
pub const SEED: u64 = 0x7415_c9b0_0000_0001;

/// A SplitMix64 generator.
pub struct Random(pub u64);

impl Random {
    /// Starts the stream of that number.
    pub fn new(stream: u64) -> Random {
        Random(SEED ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Returns the next 64 random bits.
    #[expect(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Returns one of some texts.
    pub fn one_of<'c>(&mut self, choices: &[&'c str]) -> &'c str {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// Returns a word of 2 to 10 letters.
    pub fn word(&mut self) -> String {
        let letters = 2 + self.below(9);
        (0..letters).map(|_| char::from(b'a' + self.below(26) as u8)).collect()
    }

    /// Returns an amount to add: mostly 1 or -1, sometimes up to 1000, 32768 or any `i64`.
    pub fn amount(&mut self) -> i64 {
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
