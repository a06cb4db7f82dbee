//! The most that was ever in use, and whose that is. One test, because it is about the whole process.

#[path = "common/pin.rs"]
mod pin;

use std::ptr::NonNull;

use pin::pin_to_current_cpu;
use thiscpu_malloc::{allocate, enable_counting, free, stats};

const MEBIBYTE: usize = 1 << 20;

fn take(size: usize, bytes: usize) -> Vec<NonNull<u8>> {
    (0..bytes / size).map(|_| allocate(size).unwrap()).collect()
}

fn free_all(blocks: Vec<NonNull<u8>>) {
    // SAFETY: nobody uses them.
    blocks.into_iter().for_each(|block| unsafe { free(block) });
}

/// What the peak is, and what is in use, in mebibytes.
fn now() -> [usize; 2] {
    let now = stats();
    [now.peak_used_bytes, now.used_bytes].map(|bytes| bytes.div_ceil(MEBIBYTE))
}

#[test]
fn peaks_cover_all_classes_of_one_process() {
    pin_to_current_cpu();
    enable_counting();
    // As far as that is noticed.
    let is_60 = |peak: usize| (58..=61).contains(&peak);
    let all = [512, 1024, MEBIBYTE].map(|size| take(size, 20 * MEBIBYTE));
    let [peak, used] = now();
    assert!(is_60(used) && is_60(peak), "{peak}, {used}");
    all.into_iter().for_each(free_all);
    // One after the other, not all at once.
    for size in [2048, 4096, 8192] {
        free_all(take(size, 20 * MEBIBYTE));
    }
    let [peak, used] = now();
    assert!(used <= 1 && is_60(peak), "{peak}, {used}");
    // SAFETY: the child uses the allocator, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let first = now();
        free_all(take(512, 10 * MEBIBYTE));
        let second = now();
        let is_well = first[0] <= 1 && (9..=11).contains(&second[0]);
        // SAFETY: ends the child without running anything.
        unsafe { libc::_exit(i32::from(!is_well)) };
    }
    let mut status = 0;
    // SAFETY: waits for the child.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "a child has its parent's peak, or none of its own");
}
