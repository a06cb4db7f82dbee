//! What programs without errors see of it: blocks that are as they should be, used again late, by threads and in forks.

use std::collections::{HashSet, VecDeque};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use thiscpu_malloc::{
    __test_support, allocate, allocate_aligned, enable_hardening, free, resize, usable_size,
};

use crate::errors::{guard_every_block, guarded, page_bytes};
use crate::process::Test;

pub(crate) const TESTS: &[Test] = &[
    well(
        "guarded_block_has_requested_size_and_alignment",
        guarded_block_has_requested_size_and_alignment,
    ),
    well("guarded_block_touches_either_page_edge", guarded_block_touches_either_page_edge),
    well("resize_keeps_contents", resize_keeps_contents),
    well("full_pool_guards_no_more", full_pool_guards_no_more),
    well(
        "long_lived_blocks_leave_slots_for_other_call_sites",
        long_lived_blocks_leave_slots_for_other_call_sites,
    ),
    well("freed_slots_are_reused_late", freed_slots_are_reused_late),
    well("guarding_keeps_errno", guarding_keeps_errno),
    well("one_call_in_1000_is_sampled", one_call_in_1000_is_sampled),
    well("slow_call_counts_for_its_sheaf", slow_call_counts_for_its_sheaf),
    well("fast_path_is_unaffected", fast_path_is_unaffected),
    well("alternating_calls_are_sampled", alternating_calls_are_sampled),
    well("each_call_of_a_burst_is_sampled", each_call_of_a_burst_is_sampled),
    well("aligned_blocks_are_sampled", aligned_blocks_are_sampled),
    well("periodic_calls_are_sampled_in_each_phase", periodic_calls_are_sampled_in_each_phase),
    well("throttle_limits_guarding", throttle_limits_guarding),
    well("nothing_is_guarded_until_enabled", nothing_is_guarded_until_enabled),
    well("pool_is_shared_by_threads", pool_is_shared_by_threads),
    well("pool_works_in_forked_children", pool_works_in_forked_children),
];

const fn well(name: &'static str, child: fn()) -> Test {
    Test { name, child, signal: 0, says: &["!thiscpu-malloc"] }
}

/// How many blocks can be guarded at once.
const SLOTS: usize = 512;

fn end(block: NonNull<u8>) {
    // SAFETY: each caller's own block, used no more.
    unsafe { free(block) };
}

fn bytes(block: NonNull<u8>, size: usize) -> &'static mut [u8] {
    // SAFETY: each caller's own block, which it ends after its last use of this.
    unsafe { std::slice::from_raw_parts_mut(block.as_ptr(), size) }
}

fn guarded_block_has_requested_size_and_alignment() {
    guard_every_block();
    // More often than there are slots, so that pages are used again.
    for round in 0..3 {
        for size in (0..300_usize).chain([1000, 2048, 4079, 4080, page_bytes()]) {
            for align in [16, 64, 512] {
                if size.next_multiple_of(align) > page_bytes() {
                    continue;
                }
                let block = guarded(size, align);
                // SAFETY: a block.
                assert_eq!(unsafe { usable_size(block) }, size);
                assert_eq!(block.as_ptr() as usize % align, 0);
                let bytes = bytes(block, size);
                assert!(bytes.iter().all(|&byte| byte == 0), "round {round}");
                bytes.fill(0xff);
                end(block);
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
            end(block);
            assert!(offset == 0 || offset == page_bytes() - 48, "{offset}");
            offset == 0
        })
        .count();
    // That a fair coin shows a side less than 10 times in 100 happens once in 10^17.
    assert!((10..=90).contains(&at_start), "{at_start}");
}

fn resize_keeps_contents() {
    guard_every_block();
    let mut block = guarded(1, 16);
    bytes(block, 1)[0] = 7;
    for size in 2..200 {
        // SAFETY: this function's block.
        block = unsafe { resize(block, size) }.unwrap();
        bytes(block, size)[size - 1] = size as u8;
    }
    assert_eq!(bytes(block, 3), [7, 2, 3]);
    end(block);
}

fn full_pool_guards_no_more() {
    guard_every_block();
    let blocks: Vec<_> = (0..SLOTS).map(|_| guarded(16, 16)).collect();
    assert_eq!(blocks.iter().collect::<HashSet<_>>().len(), SLOTS);
    let other = allocate(16).unwrap();
    assert!(!__test_support::is_guarded(other.as_ptr() as usize));
    end(blocks[17]);
    let again = guarded(16, 16).as_ptr() as usize;
    assert_eq!(again / page_bytes(), blocks[17].as_ptr() as usize / page_bytes());
}

#[inline(never)]
fn from_here() -> Option<NonNull<u8>> {
    std::hint::black_box(__test_support::guard(16, 16))
}

#[inline(never)]
fn from_there() -> Option<NonNull<u8>> {
    std::hint::black_box(__test_support::guard(24, 8))
}

/// Where one place's blocks stay they do not take the last quarter; what is allocated elsewhere has a slot, again and again.
fn long_lived_blocks_leave_slots_for_other_call_sites() {
    const MOST: usize = SLOTS - SLOTS / 4 + 1;
    assert!(enable_hardening());
    let (mut stay, mut others) = (Vec::new(), 0);
    // Each of the two may be the one for which there is time.
    while others < 20 {
        stay.extend(from_here());
        assert!(stay.len() <= MOST);
        if stay.len() == MOST
            && let Some(block) = from_there()
        {
            end(block);
            others += 1;
        }
    }
    stay.into_iter().for_each(end);
}

fn freed_slots_are_reused_late() {
    guard_every_block();
    let page = |block: NonNull<u8>| block.as_ptr() as usize / page_bytes();
    let blocks: Vec<_> = (0..SLOTS).map(|_| guarded(16, 16)).collect();
    let mut freed: VecDeque<_> = blocks.iter().map(|&block| page(block)).collect();
    blocks.into_iter().for_each(end);
    for _ in 0..4 * SLOTS {
        let block = guarded(16, 16);
        let age = freed.iter().position(|&freed| freed == page(block)).unwrap();
        assert!(age < SLOTS / 2, "{age} of those that are free were freed before");
        freed.remove(age);
        freed.push_back(page(block));
        end(block);
    }
}

fn guarding_keeps_errno() {
    guard_every_block();
    // SAFETY: the address of this thread's errno.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    unsafe { *errno = 12_345 };
    for _ in 0..600 {
        end(guarded(16, 16));
    }
    // SAFETY: as above.
    assert_eq!(unsafe { *errno }, 12_345);
}

fn one_call_in_1000_is_sampled() {
    assert!(enable_hardening());
    let sampled = (0..200_000).filter(|_| __test_support::sample(1)).count();
    // About 200, give or take 8.
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

/// What the lane has at hand it hands out, however many are to be guarded.
fn fast_path_is_unaffected() {
    assert!(enable_hardening());
    if thiscpu::tier().unwrap() == thiscpu::Tier::Atomic {
        // There all calls are slow ones.
        return;
    }
    __test_support::sample_every(2);
    let blocks: Vec<_> = (0..10_000).map(|_| allocate(64).unwrap()).collect();
    assert!(blocks.iter().any(|&block| is_guarded(block)));
    blocks.into_iter().for_each(end);
    // Every call of this loop is a sample, if it is asked about at all.
    let asked = (0..10_000)
        .filter(|_| {
            let block = allocate(64).unwrap();
            end(block);
            is_guarded(block)
        })
        .count();
    // It is where the thread was moved to another CPU, or was preempted.
    assert!(asked < 5_000, "{asked}");
}

/// Which sizes of a class a program has guarded that asks for them in turn: at most `turns` times `burst` blocks, which are freed
/// after each turn.
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
        all.into_iter().for_each(|(_, block)| end(block));
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
    // More than a lane has, so that each burst comes to the slow path. The vectors of this test are of another class.
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
        // SAFETY: this function's block.
        assert_eq!(unsafe { usable_size(*guarded) }, 24);
        blocks.into_iter().for_each(end);
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
    let guarded = (0..10_000).filter_map(|_| __test_support::guard(16, 16)).map(end).count();
    // If each of them was guarded, then each would have come long after the one before.
    assert!((1..10_000).contains(&guarded), "{guarded}");
}

fn nothing_is_guarded_until_enabled() {
    __test_support::sample_every(1);
    let block = allocate(16).unwrap();
    assert!(!__test_support::is_guarded(block.as_ptr() as usize));
    guard_every_block();
    let guarded = guarded(16, 16);
    // SAFETY: this function's blocks.
    unsafe {
        free(block);
        assert_eq!(usable_size(guarded), 16);
    }
}

/// Allocates, writes, looks and frees, so many times, with `kept` blocks at a time.
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
            end(block);
        }
    }
    blocks.into_iter().for_each(|(block, _)| end(block));
}

fn pool_is_shared_by_threads() {
    guard_every_block();
    thread::scope(|scope| {
        for tag in 1..5 {
            scope.spawn(move || churn(2_000, 100, tag));
        }
    });
    // All slots have come back.
    let blocks: Vec<_> = (0..SLOTS).map(|_| guarded(16, 16)).collect();
    blocks.into_iter().for_each(end);
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
        for fork in 0..20 {
            // SAFETY: the child calls nothing but the allocator, which may be used there, and ends.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let is_well = in_child();
                // SAFETY: ends the child without running anything.
                unsafe { libc::_exit(i32::from(!is_well)) };
            }
            let mut status = 0;
            // SAFETY: waits for the child.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0, "fork {fork}");
        }
        is_over.store(true, Relaxed);
    });
}

/// Uses all slots that its parent's threads have not left in use; whether they were as they should be, and nearly all.
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
    blocks[..count].iter().for_each(|&block| end(NonNull::new(block).unwrap()));
    // Each of two threads has at most 6 blocks and another in the making.
    count >= SLOTS - 2 * 7
}
