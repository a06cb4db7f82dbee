//! The 16-byte exchange of the modelled machine; see `sys::double`.

use super::machine::step;
use crate::sys::atomic::Ordering::{AcqRel, Acquire, Relaxed};

pub(crate) fn is_available() -> bool {
    true
}

/// Loads one word of a pair. Acquire.
///
/// # Safety
///
/// `word` is the first or second word of a pair, aligned to 16.
pub(crate) unsafe fn load(word: *const u64) -> u64 {
    let at = word as usize;
    step().checker.load_pair(at & !15, Acquire)[at / 8 % 2]
}

/// Replaces a pair if it is `old`, and returns whether it did.
///
/// # Safety
///
/// `pair` is aligned to 16.
pub(crate) unsafe fn exchange(pair: *mut u64, old: [u64; 2], new: [u64; 2]) -> bool {
    step().checker.change_pair(pair as usize, old, new, [AcqRel, Relaxed]).is_ok()
}

/// Replaces the first word of a pair if it is `old`, and returns whether it did.
///
/// # Safety
///
/// `word` is the first word of a pair, aligned to 16.
pub(crate) unsafe fn exchange_first(word: *mut u64, old: u64, new: u64) -> bool {
    let change = |[first, second]: [u64; 2]| (first == old).then_some([new, second]);
    change_first(word, change)[0] == old
}

/// Adds to the first word of a pair, and returns its old value.
///
/// # Safety
///
/// `word` is the first word of a pair, aligned to 16.
pub(crate) unsafe fn add_first(word: *mut u64, n: u64) -> u64 {
    change_first(word, |[first, second]| Some([first.wrapping_add(n), second]))[0]
}

/// Changes a pair in one step, and returns its old value.
fn change_first(word: *mut u64, change: impl Fn([u64; 2]) -> Option<[u64; 2]>) -> [u64; 2] {
    let now = step();
    loop {
        let old = now.checker.load_pair(word as usize, Acquire);
        let Some(new) = change(old) else { return old };
        if now.checker.change_pair(word as usize, old, new, [AcqRel, Relaxed]).is_ok() {
            return old;
        }
    }
}
