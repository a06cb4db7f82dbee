//! A program that has gone over to blocks of another size. One test, because it is about the whole process.

use std::ptr::NonNull;
use std::thread::sleep;
use std::time::Duration;

use thiscpu_malloc::{allocate, free, statistics};

const MEBIBYTE: usize = 1 << 20;
const BYTES: usize = 12 * MEBIBYTE;

fn take(blocks: &mut Vec<NonNull<u8>>, size: usize, bytes: usize) {
    blocks.extend((0..bytes / size).map(|_| allocate(size).unwrap()));
}

#[test]
fn what_one_size_does_not_need_any_more_another_gets() {
    let mut blocks = Vec::new();
    take(&mut blocks, 1024, BYTES);
    for block in blocks.drain(..) {
        // SAFETY: nobody uses it.
        unsafe { free(block) };
    }
    let kept = statistics().system_bytes;
    assert!(kept > BYTES / 2, "{kept} bytes: nothing was kept, so this test shows nothing");
    for _ in 0..BYTES / MEBIBYTE {
        take(&mut blocks, 2048, MEBIBYTE);
        // Longer than it takes to see that the others are not used.
        sleep(Duration::from_millis(30));
    }
    let bytes = statistics().system_bytes;
    assert!(bytes < BYTES + BYTES / 2, "{bytes} bytes for {BYTES} in use");
}
