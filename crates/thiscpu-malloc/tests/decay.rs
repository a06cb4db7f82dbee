//! Decay: memory returns while all calls find a block in their lane, or after a pause.
//!
//! Each case is about a whole process, so most run at once, each in a child of fork.

#[path = "common/asm_malloc.rs"]
mod asm_malloc;

use std::ptr::NonNull;
use std::thread::{self, sleep};
use std::time::Duration;

use thiscpu::vfork_scope;
use thiscpu_malloc::{allocate, allocate_aligned, free, resize, stats};
use thiscpu_test_support::{child, is_quick};

const MEBIBYTE: usize = 1 << 20;
/// The most calls to wait for something that takes a few seconds.
const CALLS_MAX: usize = 3_000;

fn release(block: NonNull<u8>) {
    // SAFETY: the block is allocated, and not used any more.
    unsafe { free(block) };
}

/// Leaves memory behind, in several classes.
fn keep_memory() {
    keep_memory_after(|| ());
}

/// Leaves memory behind; makes calls before it is freed.
fn keep_memory_after(calls: impl Fn()) {
    let of_size = |size| (0..8 * MEBIBYTE / size).map(move |_| allocate(size).unwrap());
    let has_kept = || {
        let blocks: Vec<_> = [48, 512, 3000].into_iter().flat_map(of_size).collect();
        calls();
        blocks.into_iter().for_each(release);
        stats().system_bytes > 12 * MEBIBYTE
    };
    // If the process waits for a CPU meanwhile, memory that was freed first has returned.
    assert!((0..20).any(|_| has_kept()), "{:?}: this case shows nothing", stats());
}

/// Makes a call now and then until memory has returned, or fails after [`CALLS_MAX`] calls.
fn call_until_returned(what: &str, call: impl FnMut()) {
    assert!(is_returned_by(CALLS_MAX, Duration::from_millis(10), call), "{what}: {:?}", stats());
}

/// Makes up to `calls` calls, with pauses, and returns whether memory has returned.
fn is_returned_by(calls: usize, pause: Duration, mut call: impl FnMut()) -> bool {
    (0..calls).any(|_| {
        sleep(pause);
        call();
        stats().system_bytes < MEBIBYTE
    })
}

/// Waits for longer than the second after which memory counts as unused.
fn pause() {
    sleep(Duration::from_millis(2_500));
}

fn allocations() {
    keep_memory();
    call_until_returned("allocations", || release(allocate(100).unwrap()));
}

fn allocations_in_assembly() {
    keep_memory();
    let call = || release(NonNull::new(asm_malloc::malloc(100)).unwrap());
    call_until_returned("allocations in assembly", call);
}

/// Makes fewer calls than the countdown would have left without the frees.
///
/// `number` moves the end of the countdown, so that in most cases it is far.
fn few_calls(number: usize) {
    let call = || release(allocate(100).unwrap());
    keep_memory_after(|| (0..10_000 + number).for_each(|_| call()));
    assert!(is_returned_by(25, Duration::from_millis(200), call), "{:?}", stats());
}

fn medium_allocations() {
    keep_memory();
    call_until_returned("allocations of more than a kibibyte", || {
        release(allocate(5000).unwrap());
    });
}

fn aligned_allocations() {
    keep_memory();
    // Few, because each call that another process interrupts returns memory.
    let call = || release(allocate_aligned(100, 64).unwrap());
    assert!(is_returned_by(25, Duration::from_millis(200), call), "{:?}", stats());
}

/// Frees blocks into lanes without sheaves. Each gets one for them, which is no trade.
fn blocks_of_idle_class() {
    let large: Vec<_> = (0..2).map(|_| allocate(3 * MEBIBYTE).unwrap()).collect();
    let touch = || release(allocate(100).unwrap());
    (0..150).for_each(|_| {
        sleep(Duration::from_millis(10));
        touch();
    });
    large.into_iter().for_each(release);
    assert!(stats().system_bytes > 5 * MEBIBYTE, "{:?}: this case shows nothing", stats());
    call_until_returned("blocks of an idle class", touch);
}

/// Makes calls that take much less time than runs are apart, after a pause.
fn calls_after_a_pause() {
    keep_memory();
    pause();
    let kept = stats().system_bytes;
    // What a child of vfork would do.
    let scope = vfork_scope();
    (0..300).for_each(|_| release(allocate(100).unwrap()));
    drop(scope);
    assert!(stats().system_bytes >= kept, "{:?}: a child has returned memory", stats());
    (0..300).for_each(|_| release(allocate(100).unwrap()));
    assert!(stats().system_bytes < MEBIBYTE, "{:?}", stats());
}

/// Does this where each call is slow, and there are no lanes.
fn calls_after_a_pause_in_the_atomic_tier() {
    // SAFETY: this child of fork has one thread.
    unsafe { std::env::set_var("THISCPU_TIER", "atomic") };
    calls_after_a_pause();
}

fn resizing_in_place() {
    // Its class is none of those that leave memory behind.
    let mut block = allocate(200).unwrap();
    keep_memory();
    let mut size = 150;
    call_until_returned("resizing in place", || {
        size ^= 32;
        // SAFETY: the block is allocated, and only its replacement is used.
        block = unsafe { resize(block, size) }.unwrap();
    });
    release(block);
}

fn allocations_of_another_thread() {
    keep_memory();
    let other = || call_until_returned("another thread", || release(allocate(100).unwrap()));
    thread::scope(|scope| scope.spawn(other).join()).unwrap();
}

const CASES: [fn(); 11] = [
    allocations,
    || few_calls(0),
    || few_calls(40),
    || few_calls(80),
    medium_allocations,
    aligned_allocations,
    blocks_of_idle_class,
    calls_after_a_pause,
    calls_after_a_pause_in_the_atomic_tier,
    resizing_in_place,
    allocations_of_another_thread,
];

#[test]
fn rare_calls_return_memory() {
    if is_quick() {
        return;
    }
    assert_eq!(CASES.map(child::start).map(child::wait), [0; CASES.len()]);
    // Alone, because each call that another process interrupts returns memory.
    assert_eq!(child::wait(child::start(allocations_in_assembly)), 0);
}
