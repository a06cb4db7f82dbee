//! Peaks: the highest use of all classes together, by one process.
//!
//! One test, because it is about the whole process.

use std::ptr::NonNull;

use thiscpu_malloc::{allocate, enable_counting, free, stats};
use thiscpu_test_support::{child, cpus};

const MEBIBYTE: usize = 1 << 20;

fn take(size: usize, bytes: usize) -> Vec<NonNull<u8>> {
    (0..bytes / size).map(|_| allocate(size).unwrap()).collect()
}

fn free_all(blocks: Vec<NonNull<u8>>) {
    // SAFETY: the blocks are allocated, and not used any more.
    blocks.into_iter().for_each(|block| unsafe { free(block) });
}

/// Returns the peak and the current use, in mebibytes.
fn peak_and_used() -> [usize; 2] {
    let now = stats();
    [now.peak_allocated_bytes, now.allocated_bytes].map(|bytes| bytes.div_ceil(MEBIBYTE))
}

#[test]
fn peaks_cover_all_classes_of_one_process() {
    // The thread uses one lane, so its counts are behind by what one lane may hold back.
    assert!(cpus::confine(cpus::tid(), [cpus::current() as usize]));
    enable_counting();
    // Peaks are only noticed by calls that miss their lane.
    let is_60 = |peak: usize| (58..=61).contains(&peak);
    let all = [512, 1024, MEBIBYTE].map(|size| take(size, 20 * MEBIBYTE));
    let [peak, used] = peak_and_used();
    assert!(is_60(used) && is_60(peak), "{peak}, {used}");
    all.into_iter().for_each(free_all);
    // These are in use one after another, not at once.
    for size in [2048, 4096, 8192] {
        free_all(take(size, 20 * MEBIBYTE));
    }
    let [peak, used] = peak_and_used();
    assert!(used <= 1 && is_60(peak), "{peak}, {used}");
    // The child has not its parent's peak, and updates its own.
    child::assert_holds(|| {
        let first = peak_and_used();
        free_all(take(512, 10 * MEBIBYTE));
        let second = peak_and_used();
        first[0] <= 1 && (9..=11).contains(&second[0])
    });
}
