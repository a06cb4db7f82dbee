//! Statistics: bytes in use, of each class, and the JSON of them.
//!
//! One test after the other, because they are about the whole process.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fmt::Write;
use std::hint::spin_loop;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use serde_json::Value;
use thiscpu_malloc::{
    ClassStats, allocate, class_stats, free, settings, stats, stats_json, trim, write_stats_json,
};
use thiscpu_test_support::cpus;

/// The program's own allocator, which counts the calls of each thread.
struct CountingSystem;

thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: both functions are the system allocator's.
unsafe impl GlobalAlloc for CountingSystem {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.set(CALLS.get() + 1);
        // SAFETY: the caller guarantees what `alloc` requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller guarantees what `dealloc` requires.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingSystem = CountingSystem;

/// A block, which any thread may free.
struct Block(NonNull<u8>);

// SAFETY: blocks belong to no thread.
unsafe impl Send for Block {}

const SIZES: [usize; 5] = [16, 64, 208, 512, 1024];
const BLOCKS: usize = 200_000;

fn take(size: usize, count: usize) -> Vec<Block> {
    (0..count).map(|_| Block(allocate(size).unwrap())).collect()
}

fn free_all(blocks: Vec<Block>) {
    // SAFETY: the blocks are allocated, and not used any more.
    blocks.into_iter().for_each(|block| unsafe { free(block.0) });
}

fn class(size: usize) -> ClassStats {
    class_stats().find(|class| class.size == size).unwrap()
}

fn assert_close(found: usize, expected: usize, when: &str) {
    assert!(found.abs_diff(expected) <= expected / 100, "{when}: {found}, expected {expected}");
}

/// Checks that free blocks in lanes and barns are not in use, whichever thread freed them.
fn allocated_bytes_are_those_of_blocks_in_use() {
    let before = SIZES.map(|size| class(size).allocated_bytes);
    let total = stats().allocated_bytes;
    let kept = SIZES.map(|size| {
        let mut kept = take(size, BLOCKS);
        let freed = kept.split_off(BLOCKS / 2);
        thread::spawn(|| free_all(freed)).join().unwrap();
        kept
    });
    let expected = SIZES.map(|size| size * BLOCKS / 2);
    for (at, size) in SIZES.into_iter().enumerate() {
        let now = class(size);
        // No thread allocates, so this is exact.
        assert_eq!(now.allocated_bytes - before[at], expected[at], "{now:?}");
    }
    assert_close(stats().allocated_bytes - total, expected.iter().sum(), "before trim");
    trim(0);
    for (at, size) in SIZES.into_iter().enumerate() {
        assert_eq!(class(size).allocated_bytes - before[at], expected[at], "after trim");
    }
    kept.into_iter().for_each(free_all);
    for (at, size) in SIZES.into_iter().enumerate() {
        assert_eq!(class(size).allocated_bytes, before[at], "after all were freed");
        assert!(class(size).free_bytes > 0);
    }
    trim(0);
    assert_eq!(stats().allocated_bytes, total);
}

/// Checks that each byte that leaves the system's count was purged once.
fn purged_bytes_are_those_that_left() {
    let blocks = take(512, BLOCKS);
    let before = stats();
    free_all(blocks);
    trim(0);
    let after = stats();
    let left = before.system_bytes - after.system_bytes;
    assert!(left > 90 << 20, "{before:?}, {after:?}");
    assert_eq!(after.purged_bytes - before.purged_bytes, left as u64, "{before:?}, {after:?}");
    assert_eq!(after.purgeable_bytes, 0);
    // The address space of slabs stays.
    assert!(after.mapped_bytes >= before.resident_bytes, "{before:?}, {after:?}");
    assert_eq!(after.mapped_bytes, after.resident_bytes + after.retained_bytes);
    assert!(after.retained_bytes >= left, "{after:?}");
    assert!(after.resident_bytes > after.system_bytes && after.resident_bytes < 8 << 20);
}

/// Checks that blocks that another lane's thread frees count once they are in their slabs.
fn remote_frees_are_counted() {
    let cpus: Vec<usize> = cpus::allowed().into_iter().take(2).collect();
    let [first, second] = cpus[..] else { return eprintln!("skipped: needs two CPUs") };
    assert!(cpus::confine(cpus::tid(), [first]));
    // On a busy machine, the two threads may take turns, and then have the same lane.
    let mut attempts = (0..50).map(|_| remote_frees_of_one_attempt(second));
    let counted = attempts.find(|&counted| counted > BLOCKS as u64 / 2);
    assert!(stats().remote_frees >= counted.expect("the blocks are freed on another lane"));
}

/// Frees blocks on another CPU while this thread is running, and returns how many counted.
fn remote_frees_of_one_attempt(second: usize) -> u64 {
    let before = class(208).remote_frees;
    let is_done = AtomicBool::new(false);
    let blocks = take(208, BLOCKS);
    thread::scope(|scope| {
        let freeing = scope.spawn(|| {
            assert!(cpus::confine(cpus::tid(), [second]));
            free_all(blocks);
            is_done.store(true, Relaxed);
        });
        // Two running threads have two lanes.
        while !is_done.load(Relaxed) && !freeing.is_finished() {
            spin_loop();
        }
    });
    trim(0);
    let counted = class(208).remote_frees - before;
    assert!(counted <= BLOCKS as u64, "{counted}");
    counted
}

/// A buffer of fixed size.
struct Buffer {
    text: [u8; 64 * 1024],
    length: usize,
}

impl Write for Buffer {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.text[self.length..self.length + text.len()].copy_from_slice(text.as_bytes());
        self.length += text.len();
        Ok(())
    }
}

fn json_has_all_numbers() {
    let json: Value = serde_json::from_str(&stats_json()).unwrap();
    assert_eq!(json["version"], 1);
    assert_eq!(json["pid"], std::process::id());
    assert_eq!(json["is_counting"], false);
    assert!(json["program"].as_str().unwrap().starts_with("stats-"));
    let now = stats();
    for (name, value) in [
        ("allocated_bytes", now.allocated_bytes as u64),
        ("large_blocks", now.large_blocks as u64),
        ("purged_bytes", now.purged_bytes),
        ("trades", now.trades),
        ("remote_frees", now.remote_frees),
        ("resident_bytes", now.resident_bytes as u64),
        ("mapped_bytes", now.mapped_bytes as u64),
        ("retained_bytes", now.retained_bytes as u64),
    ] {
        assert_eq!(json[name], value, "{name}: {json}");
    }
    for setting in settings() {
        let (name, default) = (setting.name(), setting.default_value());
        let value = &json["settings"][name];
        let number = value.as_u64().map(|number| number.to_string());
        assert_eq!(number.as_deref().or(value.as_str()), Some(default), "{name}");
    }
    let classes = json["classes"].as_array().unwrap();
    for used in class_stats().filter(ClassStats::is_used) {
        let found = classes.iter().find(|class| class["size"] == used.size).unwrap();
        assert_eq!(found["allocated_bytes"], used.allocated_bytes);
        assert_eq!(found["slabs"], used.slabs);
        assert_eq!(found["trades"], used.trades);
        assert!(found["allocations"].is_null() && found["hits"].is_null());
    }
    let mut buffer = Buffer { text: [0; 64 * 1024], length: 0 };
    let calls = CALLS.get();
    write_stats_json(&mut buffer).unwrap();
    assert_eq!(CALLS.get(), calls, "writing JSON has allocated");
    serde_json::from_slice::<Value>(&buffer.text[..buffer.length]).unwrap();
}

/// Checks that numbers stay possible while threads allocate and free.
fn numbers_are_plausible_while_threads_allocate() {
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..8 {
            let is_done = &is_done;
            scope.spawn(move || {
                while !is_done.load(Relaxed) {
                    free_all(take(SIZES[number % SIZES.len()], 1_000));
                }
            });
        }
        for _ in 0..50 {
            let json: Value = serde_json::from_str(&stats_json()).unwrap();
            // 8 threads have up to 1,000 blocks of 1,024 bytes each, and a sheaf may be on its way.
            assert!(json["allocated_bytes"].as_u64().unwrap() < 16 << 20, "{json}");
            assert!(json["mapped_bytes"].as_u64() >= json["resident_bytes"].as_u64());
        }
        is_done.store(true, Relaxed);
    });
}

#[test]
fn stats_are_right() {
    allocated_bytes_are_those_of_blocks_in_use();
    purged_bytes_are_those_that_left();
    remote_frees_are_counted();
    json_has_all_numbers();
    numbers_are_plausible_while_threads_allocate();
}
