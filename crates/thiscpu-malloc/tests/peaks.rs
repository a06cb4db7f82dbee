//! Peaks: the highest use of all classes together, by one process.
//!
//! One test, because it is about the whole process.

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
    // SAFETY: the blocks are allocated, and not used any more.
    blocks.into_iter().for_each(|block| unsafe { free(block) });
}

/// Returns the peak and the current use, in mebibytes.
fn peak_and_used() -> [usize; 2] {
    let now = stats();
    [now.peak_used_bytes, now.used_bytes].map(|bytes| bytes.div_ceil(MEBIBYTE))
}

#[test]
fn peaks_cover_all_classes_of_one_process() {
    pin_to_current_cpu();
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
    // SAFETY: the child only uses the allocator, and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let first = peak_and_used();
        free_all(take(512, 10 * MEBIBYTE));
        let second = peak_and_used();
        let is_ok = first[0] <= 1 && (9..=11).contains(&second[0]);
        // SAFETY: _exit has no preconditions.
        unsafe { libc::_exit(i32::from(!is_ok)) };
    }
    let mut status = 0;
    // SAFETY: `status` may be written to.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child has its parent's peak, or does not update its own");
}
