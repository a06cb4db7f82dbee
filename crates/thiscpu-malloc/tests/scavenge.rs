//! What is kept in vain. One test, because it is about the whole process.

use std::ptr::NonNull;
use std::thread::sleep;
use std::time::Duration;

use thiscpu_malloc::{allocate, class_stats, free, stats, trim};

const MEBIBYTE: usize = 1 << 20;
const BYTES: usize = 12 * MEBIBYTE;
/// So many looks are waited for what comes after one second.
const LOOKS: usize = 1_000;

fn take(blocks: &mut Vec<NonNull<u8>>, size: usize, bytes: usize) {
    blocks.extend((0..bytes / size).map(|_| allocate(size).unwrap()));
}

fn free_all(blocks: &mut Vec<NonNull<u8>>) {
    for block in blocks.drain(..) {
        // SAFETY: nobody uses it.
        unsafe { free(block) };
    }
}

/// The slabs of the class of that size.
fn slabs(size: usize) -> usize {
    class_stats().find(|class| class.size == size).unwrap().slabs
}

/// What a program had once is no reason to keep what it does not need when it grows again.
fn a_peak() {
    let block = allocate(64 * MEBIBYTE).unwrap();
    // Whoever looks sees that memory has grown.
    sleep(Duration::from_millis(30));
    let mut blocks = Vec::new();
    take(&mut blocks, 16 * 1024, MEBIBYTE);
    // SAFETY: nobody uses it.
    unsafe { free(block) };
    sleep(Duration::from_millis(30));
    take(&mut blocks, 16 * 1024, MEBIBYTE);
    free_all(&mut blocks);
}

fn while_memory_grows() {
    let mut blocks = Vec::new();
    take(&mut blocks, 1024, BYTES);
    free_all(&mut blocks);
    let kept = stats().system_bytes;
    assert!(kept > BYTES / 2, "{kept} bytes: nothing was kept, so this test shows nothing");
    for _ in 0..BYTES / MEBIBYTE {
        take(&mut blocks, 2048, MEBIBYTE);
        // Often longer than it takes to see that the others are not used.
        sleep(Duration::from_millis(60));
    }
    let bytes = stats().system_bytes;
    assert!(bytes < BYTES + BYTES / 2, "{bytes} bytes for {BYTES} in use");
    free_all(&mut blocks);
}

/// Calls that find nothing in their lane, of which one in a while looks; for little memory.
fn look() {
    let mut blocks = Vec::new();
    take(&mut blocks, 4096, MEBIBYTE / 2);
    free_all(&mut blocks);
    sleep(Duration::from_millis(20));
}

fn while_it_does_not_grow() {
    trim(0);
    let mut blocks = Vec::new();
    take(&mut blocks, 512, BYTES);
    // All that it grows by is seen while they are in use.
    (0..5).for_each(|_| look());
    free_all(&mut blocks);
    assert!(slabs(512) > BYTES / 2 / 65_536, "nothing was kept, so this test shows nothing");
    for _ in 0..LOOKS {
        look();
        if slabs(512) == 0 {
            return;
        }
    }
    panic!("{} slabs are kept that are not used", slabs(512));
}

#[test]
fn scavenge_returns_idle_memory_of_other_classes() {
    a_peak();
    while_memory_grows();
    while_it_does_not_grow();
}
