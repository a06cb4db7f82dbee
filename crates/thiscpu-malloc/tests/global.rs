//! A Rust program with this global allocator.

use std::alloc::{GlobalAlloc, Layout};
use std::collections::BTreeMap;
use std::sync::mpsc;
use std::thread;

use thiscpu_malloc::ThisCpuAlloc;

#[global_allocator]
static ALLOCATOR: ThisCpuAlloc = ThisCpuAlloc::new();

#[test]
fn collections_keep_their_contents() {
    let mut map = BTreeMap::new();
    for key in 0..50_000_u32 {
        map.insert(key.wrapping_mul(2_654_435_761), format!("{key}"));
    }
    map.retain(|key, _| key % 3 != 0);
    assert!(
        map.iter().all(|(key, text)| {
            text.parse::<u32>().unwrap().wrapping_mul(2_654_435_761) == *key
        })
    );
}

#[test]
fn blocks_can_be_freed_on_other_threads() {
    let (sender, receiver) = mpsc::channel::<Vec<u64>>();
    let sums =
        thread::spawn(move || receiver.iter().map(|row| row.iter().sum::<u64>()).sum::<u64>());
    for length in 0..2_000 {
        sender.send((0..length).collect()).unwrap();
    }
    drop(sender);
    assert_eq!(sums.join().unwrap(), (0..2_000_u64).map(|n| n * n.saturating_sub(1) / 2).sum());
}

#[test]
fn alloc_honors_each_layout() {
    for align in (0..18).map(|shift| 1_usize << shift) {
        for size in [1, 7, 8, 9, 100, 1_000, 4_096, 32_768, 32_769, 100_000, 300_000] {
            let layout = Layout::from_size_align(size, align).unwrap();
            // SAFETY: the blocks are used within their layout and freed once with it.
            unsafe {
                let blocks: Vec<*mut u8> = (0..4).map(|_| ALLOCATOR.alloc_zeroed(layout)).collect();
                for (index, &block) in blocks.iter().enumerate() {
                    assert!(!block.is_null() && block.addr().is_multiple_of(align), "{layout:?}");
                    let bytes = std::slice::from_raw_parts_mut(block, size);
                    assert!(bytes.iter().all(|&byte| byte == 0), "{layout:?}");
                    bytes.fill(index as u8 + 1);
                }
                for (index, &block) in blocks.iter().enumerate() {
                    let bytes = std::slice::from_raw_parts(block, size);
                    assert!(bytes.iter().all(|&byte| byte == index as u8 + 1), "{layout:?}");
                    ALLOCATOR.dealloc(block, layout);
                }
            }
        }
    }
}

#[test]
fn realloc_keeps_contents_and_alignment() {
    for align in [1, 8, 16, 64, 4_096] {
        let layout = |size| Layout::from_size_align(size, align).unwrap();
        let mut size = 1;
        // SAFETY: the block is used within its current layout and freed once with it.
        unsafe {
            let mut block = ALLOCATOR.alloc(layout(size));
            block.write(7);
            for new in [3, 8, 9, 17, 500, 40, 5_000, 40_000, 70_000, 1_000_000, 90_000, 12, 1] {
                block = ALLOCATOR.realloc(block, layout(size), new);
                assert!(block.addr().is_multiple_of(align));
                assert_eq!(block.read(), 7);
                let kept = std::slice::from_raw_parts(block, size.min(new));
                assert!(
                    kept[1..].iter().enumerate().all(|(index, &byte)| byte == (index + 1) as u8)
                );
                for index in 1..new {
                    block.add(index).write(index as u8);
                }
                size = new;
            }
            ALLOCATOR.dealloc(block, layout(size));
        }
    }
}
