//! Scavenging: memory that classes keep but do not use is returned.

use std::ptr::NonNull;
use std::thread::sleep;
use std::time::Duration;

use thiscpu_malloc::{allocate, class_stats, free, stats, trim};
use thiscpu_test_support::{cpus, is_quick};

pub(crate) const TEST: super::Test = (
    "scavenge::scavenge_returns_idle_memory_of_other_classes",
    scavenge_returns_idle_memory_of_other_classes,
);

const MEBIBYTE: usize = 1 << 20;
const BYTES: usize = 12 * MEBIBYTE;
/// The most runs to wait for something that happens after a second.
const RUNS_MAX: usize = 1_000;

fn take(blocks: &mut Vec<NonNull<u8>>, size: usize, bytes: usize) {
    blocks.extend((0..bytes / size).map(|_| allocate(size).unwrap()));
}

fn free_all(blocks: &mut Vec<NonNull<u8>>) {
    for block in blocks.drain(..) {
        // SAFETY: the block is allocated, and not used any more.
        unsafe { free(block) };
    }
}

/// Returns the number of slabs of the class with this size.
fn slabs(size: usize) -> usize {
    class_stats().find(|class| class.size == size).unwrap().slabs
}

/// Creates a peak, which must not be a reason to keep unused memory when memory grows again.
fn make_a_peak() {
    let block = allocate(64 * MEBIBYTE).unwrap();
    // Long enough that the next call sees that memory has grown.
    sleep(Duration::from_millis(30));
    let mut blocks = Vec::new();
    take(&mut blocks, 16 * 1024, MEBIBYTE);
    // SAFETY: the block is allocated, and not used any more.
    unsafe { free(block) };
    sleep(Duration::from_millis(30));
    take(&mut blocks, 16 * 1024, MEBIBYTE);
    free_all(&mut blocks);
    // Free chunks within the last second's peak keep their pages, which is another matter.
    trim(0);
}

fn while_memory_grows() {
    let mut blocks = Vec::new();
    take(&mut blocks, 1024, BYTES);
    free_all(&mut blocks);
    let kept = stats().system_bytes;
    assert!(kept > BYTES / 2, "{kept} bytes: nothing was kept, so this test shows nothing");
    for _ in 0..BYTES / MEBIBYTE {
        take(&mut blocks, 2048, MEBIBYTE);
        // In all, much longer than it takes to see that the other class is idle.
        sleep(Duration::from_millis(60));
    }
    let bytes = stats().system_bytes;
    assert!(bytes < BYTES + BYTES / 2, "{bytes} bytes for {BYTES} in use");
    free_all(&mut blocks);
}

/// Makes calls that miss their lane, one of which scavenges, with little memory.
fn run_scavenger() {
    let mut blocks = Vec::new();
    take(&mut blocks, 4096, MEBIBYTE / 2);
    free_all(&mut blocks);
    sleep(Duration::from_millis(20));
}

fn while_it_does_not_grow() {
    trim(0);
    let mut blocks = Vec::new();
    take(&mut blocks, 512, BYTES);
    // All growth is noticed while the blocks are in use.
    (0..5).for_each(|_| run_scavenger());
    free_all(&mut blocks);
    assert!(slabs(512) > BYTES / 2 / 65_536, "nothing was kept, so this test shows nothing");
    for _ in 0..RUNS_MAX {
        run_scavenger();
        if slabs(512) == 0 {
            return;
        }
    }
    panic!("{} unused slabs are kept", slabs(512));
}

fn scavenge_returns_idle_memory_of_other_classes() {
    if is_quick() {
        return;
    }
    // On two CPUs, blocks for the lane of each in turn would count as growth.
    assert!(cpus::confine(0, [cpus::allowed()[0]]));
    make_a_peak();
    while_memory_grows();
    while_it_does_not_grow();
}
