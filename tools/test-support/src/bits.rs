//! Integers of each width.

use std::fmt::Debug;

/// An integer of some width, as the low bits of the widest.
pub trait Bits: Copy + Eq + Debug + Send + Sync {
    /// Returns the integer with these low bits.
    fn of(bits: u64) -> Self;

    /// Returns its bits, which signs extend.
    fn bits(self) -> u64;
}

macro_rules! bits {
    ($($integer:ty),*) => {$(
        impl Bits for $integer {
            fn of(bits: u64) -> Self {
                bits as $integer
            }

            fn bits(self) -> u64 {
                self as u64
            }
        }
    )*};
}

bits!(u8, i8, u16, i16, u32, i32, u64, i64, usize, isize);
