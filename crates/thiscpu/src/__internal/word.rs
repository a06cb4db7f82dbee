//! Per-CPU words for C: a handle encodes the word, so that no load is needed to find it.
//!
//! | bits of a handle | meaning |
//! |---|---|
//! | 63 | 1 for a word of 8 bytes, whose handle is what sections take |
//! | 56 to 62 | the width of a narrower word, in bytes |
//! | 0 to 55 | the address in lane 0, a multiple of 8 |
//!
//! User addresses have at most 56 bits, with five levels of page tables, unless a program requests
//! more.

use core::mem::ManuallyDrop;

use crate::lanes::table::READY_BIT;
use crate::{PerCpu, PerCpuWord};

const WIDTH_AT: u32 = 56;
const ADDRESS: usize = (1 << WIDTH_AT) - 1;

/// A word of any width. The handle owns it.
#[derive(Debug)]
pub enum AnyWord {
    One(ManuallyDrop<PerCpu<u8>>),
    Two(ManuallyDrop<PerCpu<u16>>),
    Four(ManuallyDrop<PerCpu<u32>>),
    Eight(ManuallyDrop<PerCpu<u64>>),
}

/// Returns the handle of a word.
pub fn handle_of<T: PerCpuWord>(word: &PerCpu<T>) -> usize {
    match size_of::<T>() {
        8 => word.item(),
        bytes => word.item() & ADDRESS | bytes << WIDTH_AT,
    }
}

/// Returns the word of a handle; `None` if the handle is malformed.
///
/// # Safety
///
/// A well-formed handle is that of a live word. The result may be dropped only if no thread uses
/// the handle any more.
pub unsafe fn of_handle(handle: usize) -> Option<AnyWord> {
    let item = handle & ADDRESS | READY_BIT;
    if !item.is_multiple_of(8) {
        return None;
    }
    // SAFETY: the caller guarantees that the handle is that of a live word. Its width is that of
    // the type, because `handle_of` encoded it.
    unsafe {
        Some(match handle >> WIDTH_AT {
            1 => AnyWord::One(ManuallyDrop::new(PerCpu::of_item(item))),
            2 => AnyWord::Two(ManuallyDrop::new(PerCpu::of_item(item))),
            4 => AnyWord::Four(ManuallyDrop::new(PerCpu::of_item(item))),
            0x80 => AnyWord::Eight(ManuallyDrop::new(PerCpu::of_item(item))),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_round_trip<T: crate::PerCpuInt>(n: T, is_same: impl Fn(&AnyWord) -> bool) {
        let word = PerCpu::<T>::new();
        word.add(n);
        let handle = handle_of(&word);
        // SAFETY: the handle is that of `word`, which is live.
        let any = unsafe { of_handle(handle) }.expect("a well-formed handle");
        assert!(is_same(&any), "{any:?}");
        for wrong in [handle + 1, handle + 4, handle ^ 1 << 58, handle & ADDRESS] {
            // SAFETY: the handle is malformed.
            assert!(unsafe { of_handle(wrong) }.is_none(), "{wrong:#x}");
        }
    }

    #[test]
    fn handles_encode_address_and_width() {
        macro_rules! assert_round_trips {
            ($($Width:ident: $n:expr),*) => {$(
                assert_round_trip($n, |any| {
                    matches!(any, AnyWord::$Width(word) if word.lanes().any(|n| n == $n))
                });
            )*};
        }
        assert_round_trips!(One: 3_u8, Two: 4_u16, Four: 6_u32, Eight: 5_u64);
        // SAFETY: the handle is malformed.
        assert!(unsafe { of_handle(0) }.is_none());
    }
}
