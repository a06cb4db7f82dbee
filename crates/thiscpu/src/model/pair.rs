//! The 16-byte exchange of the modelled machine; see `section::double`.

use super::machine::now;
use crate::sys::atomic::Ordering::{AcqRel, Acquire, Relaxed};

pub(crate) fn is_available() -> bool {
    true
}

/// # Safety
///
/// `word` is the first or second of a pair, aligned to 16.
pub(crate) unsafe fn load(word: *const u64) -> u64 {
    let now = now();
    now.disturb();
    let at = word as usize;
    now.checker.load_pair(at & !15, Acquire)[at / 8 % 2]
}

/// # Safety
///
/// `pair` is aligned to 16.
pub(crate) unsafe fn exchange(pair: *mut u64, old: [u64; 2], new: [u64; 2]) -> bool {
    let now = now();
    now.disturb();
    now.checker.change_pair(pair as usize, old, new, [AcqRel, Relaxed]).is_ok()
}
