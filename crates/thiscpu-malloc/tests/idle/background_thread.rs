//! The background thread.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use thiscpu_malloc::{allocate, free, set, stats};
use thiscpu_test_support::{child, is_quick};

pub(crate) const TEST: super::Test = (
    "background_thread::background_thread_returns_memory_of_idle_process",
    background_thread_returns_memory_of_idle_process,
);

const MEBIBYTE: usize = 1 << 20;
/// The most looks to wait for something that takes a few seconds.
const LOOKS_MAX: usize = 3_000;

/// Waits until something holds; returns whether it did.
fn wait_until(holds: impl Fn() -> bool) -> bool {
    (0..LOOKS_MAX).any(|_| {
        sleep(Duration::from_millis(10));
        holds()
    })
}

/// Keeps memory that has been free for no time, without a call that could return it later.
fn keep_memory() {
    let blocks: Vec<_> = (0..16 * MEBIBYTE / 512).map(|_| allocate(512).unwrap()).collect();
    // SAFETY: the blocks are allocated, and not used any more.
    blocks.into_iter().for_each(|block| unsafe { free(block) });
    assert!(stats().system_bytes > 8 * MEBIBYTE, "{:?}: this test shows nothing", stats());
}

fn has_little() -> bool {
    stats().system_bytes < MEBIBYTE
}

fn threads() -> usize {
    fs::read_dir("/proc/self/task").unwrap().count()
}

fn thread_returns_memory_and_is_woken() {
    let others = threads();
    keep_memory();
    set("background_thread", "on").unwrap();
    set("background_thread", "on").unwrap();
    assert_eq!(threads(), others + 1);
    assert!(wait_until(has_little), "{:?}", stats());
    // It sleeps by now, and this wakes it.
    sleep(Duration::from_millis(1_500));
    keep_memory();
    assert!(wait_until(has_little), "{:?}", stats());
}

/// Returns the signals that the thread blocks, if it runs. Bit 0 is signal 1.
fn blocked_signals() -> Option<u64> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let statuses = tasks.filter_map(|it| fs::read_to_string(it.ok()?.path().join("status")).ok());
    let status = statuses.into_iter().find(|it| it.starts_with("Name:\tthiscpu-decay\n"))?;
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:\t"))?;
    u64::from_str_radix(blocked, 16).ok()
}

fn thread_takes_only_signals_of_its_own_faults() {
    set("background_thread", "on").unwrap();
    // The thread takes its name when it runs.
    assert!(wait_until(|| blocked_signals().is_some()), "the thread does not run");
    let blocked = blocked_signals().unwrap();
    let is_blocked = |signal: i32| blocked >> (signal - 1) & 1 == 1;
    assert!([libc::SIGTERM, libc::SIGINT, libc::SIGPROF].into_iter().all(is_blocked));
    assert!(![libc::SIGBUS, libc::SIGSEGV, libc::SIGSYS].into_iter().any(is_blocked));
}

fn old_children_get_a_thread() {
    set("background_thread", "on").unwrap();
    let blocks: Vec<_> = (0..20_000).map(|_| allocate(512).unwrap()).collect();
    let status = child::status_of(|| {
        assert_eq!(threads(), 1);
        // No block of this size was allocated before, so the lane has none.
        assert!(allocate(7000).is_some());
        assert_eq!(threads(), 1, "a child that may soon call exec has got a thread");
        sleep(Duration::from_millis(300));
        // SAFETY: this child uses its copies no more.
        blocks.iter().for_each(|&block| unsafe { free(block) });
        assert_eq!(threads(), 1, "a free has started a thread");
        keep_memory();
        assert_eq!(threads(), 2);
        assert!(wait_until(has_little), "{:?}", stats());
        0
    });
    assert_eq!(status, 0, "wait status {status:#x}");
}

fn thread_ends_and_starts_again() {
    let others = threads();
    set("background_thread", "on").unwrap();
    set("background_thread", "off").unwrap();
    assert!(wait_until(|| threads() == others), "the thread has not ended");
    set("background_thread", "on").unwrap();
    assert_eq!(threads(), others + 1);
    keep_memory();
    assert!(wait_until(has_little), "{:?}", stats());
}

/// Runs all cases at once, each in a child of fork, because each is about a whole process.
fn background_thread_returns_memory_of_idle_process() {
    if is_quick() {
        return;
    }
    let cases: [fn(); 4] = [
        thread_returns_memory_and_is_woken,
        thread_takes_only_signals_of_its_own_faults,
        old_children_get_a_thread,
        thread_ends_and_starts_again,
    ];
    assert_eq!(cases.map(child::start).map(child::wait), [0; 4]);
}
