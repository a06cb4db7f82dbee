//! Hardening in programs without errors: blocks are correct, and reused late, by threads and forks.

use std::collections::{HashSet, VecDeque};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use thiscpu_malloc::{
    __test_support, allocate, allocate_aligned, enable_hardening, free, resize, usable_size,
};
use thiscpu_test_support::{child, errno};

use crate::errors::{guard_every_block, guarded, page_bytes};
use crate::process::{Test, tests};

/// Lists functions as tests that must succeed without output of the allocator.
macro_rules! passing {
    ($($name:ident),* $(,)?) => {
        tests! { $($name: 0, $name => ["!thiscpu-malloc"];)* }
    };
}

pub(crate) const TESTS: &[Test] = passing![
    guarded_block_has_requested_size_and_alignment,
    long_lived_blocks_leave_slots_for_other_call_sites,
    guarded_block_touches_either_page_edge,
    resize_keeps_contents,
    full_pool_guards_no_more,
    freed_slots_are_reused_late,
    guarding_keeps_errno,
    one_call_in_1000_is_sampled,
    slow_call_counts_for_its_sheaf,
    fast_path_is_unaffected,
    alternating_calls_are_sampled,
    each_call_of_a_burst_is_sampled,
    aligned_blocks_are_sampled,
    periodic_calls_are_sampled_in_each_phase,
    throttle_limits_guarding,
    nothing_is_guarded_until_enabled,
    pool_is_shared_by_threads,
    pool_works_in_forked_children,
];

/// The number of blocks that can be guarded at once.
const SLOTS: usize = 512;

fn free_block(block: NonNull<u8>) {
    // SAFETY: callers pass an allocated block that they do not use any more.
    unsafe { free(block) };
}

fn bytes(block: NonNull<u8>, size: usize) -> &'static mut [u8] {
    // SAFETY: callers own the block, and free it after their last use of the slice.
    unsafe { std::slice::from_raw_parts_mut(block.as_ptr(), size) }
}

fn guarded_block_has_requested_size_and_alignment() {
    guard_every_block();
    // More blocks than there are slots, so pages are used again.
    for round in 0..3 {
        for size in (0..300_usize).chain([1000, 2048, 4079, 4080, page_bytes()]) {
            for align in [16, 64, 512] {
                if size.next_multiple_of(align) > page_bytes() {
                    continue;
                }
                let block = guarded(size, align);
                // SAFETY: the block is allocated.
                assert_eq!(unsafe { usable_size(block) }, size);
                assert_eq!(block.as_ptr() as usize % align, 0);
                let bytes = bytes(block, size);
                assert!(bytes.iter().all(|&byte| byte == 0), "round {round}");
                bytes.fill(0xff);
                free_block(block);
            }
        }
    }
    for (size, align) in [(page_bytes() + 1, 16), (1, 2 * page_bytes()), (usize::MAX / 2, 16)] {
        let block = allocate_aligned(size, align);
        assert!(block.is_none_or(|block| !__test_support::is_guarded(block.as_ptr() as usize)));
    }
}

fn guarded_block_touches_either_page_edge() {
    guard_every_block();
    let at_start = (0..100)
        .filter(|_| {
            let block = guarded(48, 16);
            let offset = block.as_ptr() as usize % page_bytes();
            free_block(block);
            assert!(offset == 0 || offset == page_bytes() - 48, "{offset}");
            offset == 0
        })
        .count();
    // A fair coin shows one side fewer than 10 times in 100 only once in 10^17.
    assert!((10..=90).contains(&at_start), "{at_start}");
}

fn resize_keeps_contents() {
    guard_every_block();
    let mut block = guarded(1, 16);
    bytes(block, 1)[0] = 7;
    for size in 2..200 {
        // SAFETY: the block is allocated, and only its replacement is used afterwards.
        block = unsafe { resize(block, size) }.unwrap();
        bytes(block, size)[size - 1] = size as u8;
    }
    assert_eq!(bytes(block, 3), [7, 2, 3]);
    free_block(block);
}

fn full_pool_guards_no_more() {
    guard_every_block();
    let blocks: Vec<_> = (0..SLOTS).map(|_| guarded(16, 16)).collect();
    assert_eq!(blocks.iter().collect::<HashSet<_>>().len(), SLOTS);
    let other = allocate(16).unwrap();
    assert!(!__test_support::is_guarded(other.as_ptr() as usize));
    free_block(blocks[17]);
    let again = guarded(16, 16).as_ptr() as usize;
    assert_eq!(again / page_bytes(), blocks[17].as_ptr() as usize / page_bytes());
}

#[inline(never)]
fn from_one_site() -> Option<NonNull<u8>> {
    std::hint::black_box(__test_support::guard(16, 16))
}

#[inline(never)]
fn from_other_site() -> Option<NonNull<u8>> {
    std::hint::black_box(__test_support::guard(24, 8))
}

/// Checks that long-lived blocks of one call site leave a quarter of the slots to others.
fn long_lived_blocks_leave_slots_for_other_call_sites() {
    if thiscpu_test_support::is_quick() {
        return;
    }
    const MOST: usize = SLOTS - SLOTS / 4 + 1;
    assert!(enable_hardening());
    let (mut stay, mut others) = (Vec::new(), 0);
    // The throttle may allow either of the two calls.
    while others < 20 {
        stay.extend(from_one_site());
        assert!(stay.len() <= MOST);
        if stay.len() == MOST
            && let Some(block) = from_other_site()
        {
            free_block(block);
            others += 1;
        }
    }
    stay.into_iter().for_each(free_block);
}

fn freed_slots_are_reused_late() {
    guard_every_block();
    let page = |block: NonNull<u8>| block.as_ptr() as usize / page_bytes();
    let blocks: Vec<_> = (0..SLOTS).map(|_| guarded(16, 16)).collect();
    let mut freed: VecDeque<_> = blocks.iter().map(|&block| page(block)).collect();
    blocks.into_iter().for_each(free_block);
    for _ in 0..4 * SLOTS {
        let block = guarded(16, 16);
        let age = freed.iter().position(|&freed| freed == page(block)).unwrap();
        assert!(age < SLOTS / 2, "{age} free slots were freed before");
        freed.remove(age);
        freed.push_back(page(block));
        free_block(block);
    }
}

fn guarding_keeps_errno() {
    guard_every_block();
    assert!(errno::is_kept(|| (0..600).for_each(|_| free_block(guarded(16, 16)))));
}

fn one_call_in_1000_is_sampled() {
    assert!(enable_hardening());
    let sampled = (0..200_000).filter(|_| __test_support::sample(1)).count();
    // 200 are expected, with a standard deviation of 8.
    assert!((100..=300).contains(&sampled), "{sampled}");
}

fn slow_call_counts_for_its_sheaf() {
    assert!(enable_hardening());
    let sampled = (0..2_000).filter(|_| __test_support::sample(100)).count();
    assert!((100..=300).contains(&sampled), "{sampled}");
}

fn is_guarded(block: NonNull<u8>) -> bool {
    __test_support::is_guarded(block.as_ptr() as usize)
}

/// Checks that calls that find a block in their lane are never sampled.
fn fast_path_is_unaffected() {
    assert!(enable_hardening());
    if thiscpu::tier().unwrap() == thiscpu::Tier::Atomic {
        // In this tier, all calls take the slow path.
        return;
    }
    __test_support::sample_every(2);
    let blocks: Vec<_> = (0..10_000).map(|_| allocate(64).unwrap()).collect();
    assert!(blocks.iter().any(|&block| is_guarded(block)));
    blocks.into_iter().for_each(free_block);
    // Any call of this loop that takes the slow path is sampled.
    let slow = (0..10_000)
        .filter(|_| {
            let block = allocate(64).unwrap();
            free_block(block);
            is_guarded(block)
        })
        .count();
    // Some do, after the thread was preempted or moved to another CPU.
    assert!(slow < 5_000, "{slow}");
}

/// Allocates blocks of alternating sizes, and returns the sizes that were guarded.
///
/// Allocates at most `turns` times `burst` blocks, which are freed after each turn.
fn sizes_guarded(sizes: &[usize], burst: usize, turns: usize) -> HashSet<usize> {
    let mut guarded = HashSet::new();
    for _ in 0..turns {
        let all: Vec<_> = (0..burst)
            .map(|index| {
                let size = sizes[index % sizes.len()];
                (size, allocate(size).unwrap())
            })
            .collect();
        guarded.extend(all.iter().filter(|one| is_guarded(one.1)).map(|one| one.0));
        all.into_iter().for_each(|(_, block)| free_block(block));
        if guarded.len() == sizes.len() {
            break;
        }
    }
    guarded
}

fn alternating_calls_are_sampled() {
    assert!(enable_hardening());
    __test_support::sample_every(1_000);
    // Sheaves hold an even number of blocks.
    assert_eq!(sizes_guarded(&[50, 60], 100_000, 50).len(), 2);
    assert_eq!(sizes_guarded(&[970, 980, 990, 1_000], 100_000, 50).len(), 4);
}

fn each_call_of_a_burst_is_sampled() {
    assert!(enable_hardening());
    __test_support::sample_every(1_000);
    // More than a lane holds, so each burst reaches the slow path. The vectors of this test belong
    // to another class.
    let sizes: Vec<_> = (897..=960).collect();
    let guarded = sizes_guarded(&sizes, 640, 20_000);
    assert_eq!(guarded.len(), sizes.len(), "{guarded:?}");
}

fn aligned_blocks_are_sampled() {
    assert!(enable_hardening());
    __test_support::sample_every(10);
    for align in [32, 256, page_bytes()] {
        let blocks: Vec<_> = (0..2_000)
            .map(|_| allocate_aligned(24, align).unwrap())
            .inspect(|block| assert!((block.as_ptr() as usize).is_multiple_of(align)))
            .collect();
        let guarded = blocks.iter().find(|&&block| is_guarded(block)).expect("one in 2,000");
        // SAFETY: the block is allocated.
        assert_eq!(unsafe { usable_size(*guarded) }, 24);
        blocks.into_iter().for_each(free_block);
    }
}

fn periodic_calls_are_sampled_in_each_phase() {
    assert!(enable_hardening());
    let period = 1_000;
    let seen: HashSet<_> =
        (0..200_000).filter(|_| __test_support::sample(1)).map(|call| call % period).collect();
    assert!(seen.len() > 50, "{}", seen.len());
}

fn throttle_limits_guarding() {
    assert!(enable_hardening());
    let guarded = (0..10_000).filter_map(|_| __test_support::guard(16, 16)).map(free_block).count();
    // Only if the calls were far apart, all of them could be guarded.
    assert!((1..10_000).contains(&guarded), "{guarded}");
}

fn nothing_is_guarded_until_enabled() {
    __test_support::sample_every(1);
    let block = allocate(16).unwrap();
    assert!(!__test_support::is_guarded(block.as_ptr() as usize));
    guard_every_block();
    let guarded = guarded(16, 16);
    // SAFETY: the blocks are allocated, and the freed one is not used any more.
    unsafe {
        free(block);
        assert_eq!(usable_size(guarded), 16);
    }
}

/// Allocates, fills, checks and frees `turns` blocks, with `kept` in use at a time.
fn churn(turns: usize, kept: usize, tag: u8) {
    let mut blocks = VecDeque::new();
    for turn in 0..turns {
        let size = 1 + turn % 200;
        let block = allocate(size).unwrap();
        bytes(block, size).fill(tag);
        blocks.push_back((block, size));
        if blocks.len() > kept {
            let (block, size) = blocks.pop_front().unwrap();
            assert!(bytes(block, size).iter().all(|&byte| byte == tag));
            free_block(block);
        }
    }
    blocks.into_iter().for_each(|(block, _)| free_block(block));
}

fn pool_is_shared_by_threads() {
    guard_every_block();
    thread::scope(|scope| {
        for tag in 1..5 {
            scope.spawn(move || churn(2_000, 100, tag));
        }
    });
    // All slots are free again.
    let blocks: Vec<_> = (0..SLOTS).map(|_| guarded(16, 16)).collect();
    blocks.into_iter().for_each(free_block);
}

fn pool_works_in_forked_children() {
    guard_every_block();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for tag in 1..3 {
            let is_over = &is_over;
            scope.spawn(move || {
                while !is_over.load(Relaxed) {
                    churn(50, 5, tag);
                }
            });
        }
        for fork in 0..if thiscpu_test_support::is_quick() { 4 } else { 20 } {
            assert_eq!(child::status_of(|| i32::from(!in_child())), 0, "fork {fork}");
        }
        is_over.store(true, Relaxed);
    });
}

/// Uses all slots that the parent's threads have not left in use.
///
/// Returns whether their blocks were distinct and zeroed, and whether nearly all slots were free.
fn in_child() -> bool {
    let mut blocks = [ptr::null_mut::<u8>(); SLOTS];
    let mut count = 0;
    while let Some(block) = allocate(32) {
        if !__test_support::is_guarded(block.as_ptr() as usize) {
            break;
        }
        let is_new = !blocks[..count].contains(&block.as_ptr());
        if !is_new || bytes(block, 32).iter().any(|&byte| byte != 0) {
            return false;
        }
        bytes(block, 32).fill(0xff);
        blocks[count] = block.as_ptr();
        count += 1;
    }
    blocks[..count].iter().for_each(|&block| free_block(NonNull::new(block).unwrap()));
    // Each of two threads has at most 6 blocks, and is allocating another.
    count >= SLOTS - 2 * 7
}
