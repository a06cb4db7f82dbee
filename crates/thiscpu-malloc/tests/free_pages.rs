//! Free pages of slabs in use go back to the system by `trim`, and no error becomes harder to find.

use std::alloc::Layout;
use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use thiscpu::__internal::tag_of;
use thiscpu::{ConstructedCache, RawCache};
use thiscpu_malloc::{allocate, allocate_zeroed, enable_counting, free, stats, trim};
use thiscpu_test_support::{SetOnDrop, child, cpus, is_quick};

/// Sizes with many blocks to a page, with few, and with pages that a single block fills.
const SIZES: [usize; 9] = [8, 16, 48, 112, 1024, 3000, 20_000, 60_000, 400_000];

/// Returns the sizes that tests use: two of them in a quick run.
fn sizes() -> impl Iterator<Item = usize> {
    let sizes: &[usize] = if is_quick() { &[112, 400_000] } else { &SIZES };
    sizes.iter().copied()
}

/// Returns how many blocks of a size a test allocates: 2 MiB, but at least 24.
fn count_of(size: usize) -> usize {
    ((2 << 20) / size).max(24)
}

/// Rules out other tests, because a trim is about the whole process.
fn alone() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Rules out other tests, and keeps the thread on its CPU, so that it uses one lane.
fn alone_on_cpu() -> MutexGuard<'static, ()> {
    let alone = alone();
    assert!(cpus::confine(cpus::tid(), [cpus::current() as usize]));
    alone
}

fn address(block: NonNull<u8>) -> usize {
    block.as_ptr().addr()
}

fn free_block(block: NonNull<u8>) {
    // SAFETY: the block is allocated and not used any more; or a child ends by the error that the
    // call is to find.
    unsafe { free(block) };
}

fn first_word(block: NonNull<u8>) -> usize {
    // SAFETY: the heap stays mapped and has no other thread that uses the block.
    unsafe { block.cast().read() }
}

/// Blocks of one size, most of which are free.
struct Sparse {
    kept: Vec<NonNull<u8>>,
    freed: Vec<NonNull<u8>>,
}

impl Sparse {
    /// Allocates blocks, and frees most: keeps one in each 40 KiB, but at most one in three.
    fn new(size: usize) -> Sparse {
        let mut sparse = Sparse { kept: Vec::new(), freed: Vec::new() };
        let mut all: Vec<_> =
            (0..count_of(size)).map(|_| allocate(size).expect("memory")).collect();
        all.sort_unstable();
        for (number, block) in all.into_iter().enumerate() {
            // SAFETY: the block was just allocated with that many bytes.
            unsafe { block.write_bytes(0x77, size) };
            let is_kept = number % (40_960 / size).max(3) == 0;
            if is_kept { &mut sparse.kept } else { &mut sparse.freed }.push(block);
        }
        sparse.freed.iter().copied().for_each(free_block);
        sparse
    }

    /// Returns sparse blocks of a size after a trim, and a free one that has lost its mark.
    fn trimmed(size: usize) -> (Sparse, NonNull<u8>) {
        let sparse = Sparse::new(size);
        assert!(trim(0), "nothing was returned");
        let unmarked = sparse.unmarked().next();
        let unmarked =
            unmarked.unwrap_or_else(|| panic!("no page with {size}-byte blocks is gone"));
        (sparse, unmarked)
    }

    /// Returns the free blocks that have lost their marks.
    ///
    /// Slabs without a block in use are gone, and have no tag.
    fn unmarked(&self) -> impl Iterator<Item = NonNull<u8>> {
        let freed = self.freed.iter().copied();
        freed.filter(|&block| first_word(block) == 0 && tag_of(address(block)) != 0)
    }

    fn free(self) {
        self.kept.into_iter().for_each(free_block);
    }
}

/// Returns how many of the pages that hold a byte of the blocks are resident.
fn resident_pages(blocks: &[NonNull<u8>], size: usize) -> usize {
    // SAFETY: sysconf has no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let pages_of =
        |&block: &NonNull<u8>| address(block) / page..(address(block) + size).div_ceil(page);
    let pages: BTreeSet<usize> = blocks.iter().flat_map(pages_of).collect();
    let is_resident = |number: usize| {
        let mut state = 0_u8;
        let at = std::ptr::with_exposed_provenance_mut(number * page);
        // SAFETY: the page is part of the heap; the kernel writes one byte for it.
        assert_eq!(unsafe { libc::mincore(at, page, &raw mut state) }, 0, "it is mapped");
        state & 1 != 0
    };
    pages.into_iter().filter(|&number| is_resident(number)).count()
}

#[test]
fn trim_drops_pages_between_blocks_in_use() {
    let _alone = alone_on_cpu();
    for size in sizes() {
        let sparse = Sparse::new(size);
        let before = resident_pages(&sparse.freed, size);
        assert!(trim(0), "nothing was returned");
        let after = resident_pages(&sparse.freed, size);
        assert!(after * 2 < before, "of {before} pages with {size}-byte blocks, {after} stay");
        for &block in &sparse.kept {
            // SAFETY: the block is allocated with that many bytes, which `new` wrote.
            let bytes = unsafe { core::slice::from_raw_parts(block.as_ptr(), size) };
            assert!(bytes.iter().all(|&byte| byte == 0x77), "a block in use has changed");
        }
        sparse.free();
    }
}

/// Checks that the numbers follow each page, and that a trim says if it drops nothing.
#[test]
fn statistics_do_not_count_dropped_pages() {
    let _alone = alone_on_cpu();
    for size in sizes() {
        trim(0);
        let sparse = Sparse::new(size);
        let before = stats();
        assert!(trim(0), "nothing was returned");
        let after = stats();
        let returned = before.system_bytes - after.system_bytes;
        let bytes = count_of(size) * size;
        assert!(returned > bytes / 4, "{returned} of {bytes} bytes were returned");
        assert_eq!(after.purged_bytes - before.purged_bytes, returned as u64);
        assert!(before.resident_bytes >= after.resident_bytes + returned);
        assert!(after.retained_bytes >= before.retained_bytes + returned);
        assert_eq!(after.purgeable_bytes, 0);
        assert!(!trim(0), "pages were returned twice");
        let again: Vec<_> = (0..2 * count_of(size)).map(|_| allocate(size).unwrap()).collect();
        let slabs = before.system_bytes - before.purgeable_bytes;
        assert!(stats().system_bytes >= slabs, "{size}: restored pages do not count");
        again.into_iter().for_each(free_block);
        sparse.free();
        trim(0);
        assert!(stats().system_bytes <= before.system_bytes, "{size}: {:?}", stats());
    }
}

/// Blocks whose pages were dropped are handed out again, and then freed by the fast path.
#[test]
fn blocks_of_dropped_pages_are_used_again() {
    let _alone = alone_on_cpu();
    for size in sizes().filter(|&size| size <= 32 * 1024) {
        let (sparse, unmarked) = Sparse::trimmed(size);
        assert!(tag_of(address(unmarked)) < 0, "the fast path frees in such a slab");
        let (mut again, mut seen) = (Vec::new(), BTreeSet::new());
        // Twice as many, so that no free block is left in these slabs.
        for _ in 0..2 * count_of(size) {
            let block = allocate(size).expect("memory");
            assert!(seen.insert(address(block)), "a block was handed out twice");
            // SAFETY: the block was just allocated with that many bytes.
            unsafe { block.write_bytes(0x55, size) };
            again.push(block);
        }
        assert!(sparse.kept.iter().all(|&block| !seen.contains(&address(block))));
        assert!(seen.contains(&address(unmarked)));
        assert!(tag_of(address(unmarked)) > 0, "the slab is still checked at each free");
        again.into_iter().for_each(free_block);
        sparse.free();
    }
}

/// Checks blocks that lost all pages, some or none, and blocks that the heap knows are zero.
#[test]
fn slabs_are_fast_again_once_all_their_blocks_are_used() {
    let _alone = alone_on_cpu();
    // Pages of their slabs lie behind the last block.
    for size in [5120, 10_240, 20_480] {
        // Gives these pages content.
        let run = allocate(6 << 20).expect("memory");
        // SAFETY: the block was just allocated with that many bytes.
        unsafe { run.write_bytes(0x77, 6 << 20) };
        free_block(run);
        let (sparse, _) = Sparse::trimmed(size);
        let again: Vec<_> = sparse.freed.iter().map(|_| allocate(size).expect("memory")).collect();
        let is_slow = |block: &&NonNull<u8>| tag_of(address(**block)) < 0;
        let slow = sparse.kept.iter().filter(is_slow).count();
        assert!(slow <= sparse.kept.len() / 4, "{size}: {slow} of {}", sparse.kept.len());
        again.into_iter().for_each(free_block);
        sparse.free();
    }
}

#[test]
fn zeroed_blocks_are_zero_after_pages_were_dropped() {
    let _alone = alone_on_cpu();
    for size in sizes() {
        let (sparse, _) = Sparse::trimmed(size);
        let zeroed: Vec<_> =
            (0..2 * count_of(size)).map(|_| allocate_zeroed(size).expect("memory")).collect();
        for &block in &zeroed {
            // SAFETY: the block is allocated with that many bytes.
            let bytes = unsafe { core::slice::from_raw_parts(block.as_ptr(), size) };
            assert!(bytes.iter().all(|&byte| byte == 0), "{size}: {block:?} is not zero");
        }
        zeroed.into_iter().for_each(free_block);
        sparse.free();
    }
}

/// Checks that calls return the pages without a trim, even if their lane serves them all.
#[test]
fn free_pages_go_back_once_their_slabs_are_idle() {
    if is_quick() {
        return;
    }
    // Each in a child, because this takes seconds.
    let alone = alone();
    let children = [(112, 128), (60_000, 128), (112, 1)]
        .map(|(size, calls)| child::start(|| wait_for_pages_to_go_back(size, calls)));
    drop(alone);
    assert_eq!(children.map(child::wait), [0; 3]);
}

/// Makes `calls` calls every 20 ms, until half of the pages of free blocks are gone.
fn wait_for_pages_to_go_back(size: usize, calls: usize) {
    let sparse = Sparse::new(size);
    let before = resident_pages(&sparse.freed, size);
    let mut runs = 0;
    while resident_pages(&sparse.freed, size) * 2 > before {
        runs += 1;
        assert!(runs < 1_000, "{before} pages with {size}-byte blocks stay");
        let blocks: Vec<_> = (0..calls).map(|_| allocate(4096).expect("memory")).collect();
        blocks.into_iter().for_each(free_block);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    sparse.free();
}

#[test]
fn second_free_aborts_at_once_after_its_page_was_dropped() {
    let _alone = alone_on_cpu();
    for counts in [false, true] {
        for size in sizes() {
            let (sparse, unmarked) = Sparse::trimmed(size);
            child::assert_aborts("double free", || {
                if counts {
                    enable_counting();
                }
                free_block(unmarked);
                child::exit_with(|| 0);
            });
            sparse.free();
        }
    }
}

#[test]
fn inner_free_aborts_at_once_after_pages_were_dropped() {
    let _alone = alone_on_cpu();
    for size in sizes().filter(|&size| size > 16) {
        let (sparse, _) = Sparse::trimmed(size);
        let is_checked = |block: &&NonNull<u8>| tag_of(address(**block)) < 0;
        let block = *sparse.kept.iter().find(is_checked).expect("a block in such a slab");
        // SAFETY: the block has more bytes than that.
        let inside = unsafe { block.add(16) };
        child::assert_aborts("pointer into the middle of an object", || {
            free_block(inside);
            child::exit_with(|| 0);
        });
        sparse.free();
    }
}

#[test]
fn write_after_free_is_found_after_its_page_was_dropped() {
    let _alone = alone_on_cpu();
    for size in sizes() {
        let (sparse, _) = Sparse::trimmed(size);
        child::assert_aborts("write after free", || {
            // All of them, because a lane of the child may have no use for one that another has.
            for unmarked in sparse.unmarked() {
                // SAFETY: the heap stays mapped, and this process has no other thread.
                unsafe { unmarked.cast::<usize>().write(7) };
            }
            (0..2 * count_of(size)).for_each(|_| _ = allocate(size));
        });
        sparse.free();
    }
}

#[test]
fn child_uses_blocks_of_dropped_pages() {
    let _alone = alone_on_cpu();
    for size in sizes() {
        let (sparse, _) = Sparse::trimmed(size);
        child::assert_holds(|| {
            let blocks: Vec<_> = (0..count_of(size)).filter_map(|_| allocate(size)).collect();
            let distinct: BTreeSet<_> = blocks.iter().map(|&block| address(block)).collect();
            let is_distinct = distinct.len() == count_of(size);
            blocks.into_iter().for_each(free_block);
            sparse.kept.iter().copied().for_each(free_block);
            trim(0);
            is_distinct
        });
        sparse.free();
    }
}

#[test]
fn trim_while_threads_allocate_and_free_loses_nothing() {
    let _alone = alone();
    const THREADS: usize = 3;
    let is_over = AtomicBool::new(false);
    let work = |thread: usize| {
        let (mut held, mut number): (Vec<(NonNull<usize>, usize)>, _) = (Vec::new(), thread);
        while !is_over.load(Relaxed) {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888);
            let (wanted, size) = (number >> 33, [48, 48, 1024, 60_000][number >> 60 & 3]);
            if held.len() < 4_000 && wanted % 100 < 52 {
                let block = allocate(size).expect("memory").cast::<usize>();
                // SAFETY: the block was just allocated with more bytes.
                unsafe { block.write(number) };
                held.push((block, number));
            } else if !held.is_empty() {
                let (block, written) = held.swap_remove(wanted % held.len());
                // SAFETY: the block is allocated, and was written.
                assert_eq!(unsafe { block.read() }, written, "another owner has the block too");
                free_block(block.cast());
            }
        }
        held.into_iter().for_each(|(block, _)| free_block(block.cast()));
    };
    std::thread::scope(|threads| {
        let _over = SetOnDrop(&is_over);
        (0..THREADS).for_each(|thread| _ = threads.spawn(move || work(thread)));
        (0..200).for_each(|_| _ = trim(0));
    });
}

/// Checks that late readers of caches' objects find old content, and values stay constructed.
#[test]
fn pages_of_caches_stay() {
    let _alone = alone();
    const COUNT: usize = 20_000;
    let cache = RawCache::new(Layout::new::<[usize; 12]>());
    let objects: Vec<NonNull<[usize; 12]>> =
        (0..COUNT).map(|_| cache.alloc().expect("memory").cast()).collect();
    for (number, &object) in objects.iter().enumerate() {
        // SAFETY: the object is allocated. It is freed once; one in a hundred stays in use.
        unsafe {
            object.write([number; 12]);
            if number % 100 != 0 {
                cache.free(object.cast());
            }
        }
    }
    static MADE: AtomicUsize = AtomicUsize::new(0);
    let make = || {
        MADE.fetch_add(1, Relaxed);
        [7_usize; 12]
    };
    let constructed = ConstructedCache::new(make);
    let mut values: Vec<_> = (0..COUNT).map(|_| constructed.alloc()).collect();
    // In each slab some stay in use.
    for number in (0..COUNT).rev().filter(|number| number % 100 != 0) {
        drop(values.swap_remove(number));
    }
    cache.shrink();
    constructed.shrink();
    let made = MADE.load(Relaxed);
    trim(0);
    for (number, &object) in objects.iter().enumerate() {
        // SAFETY: slabs of caches stay mapped, and no thread uses them.
        let words = unsafe { object.read() };
        assert_eq!(words[1..], [number; 11], "a late read of object {number}");
    }
    values.extend((0..COUNT - values.len()).map(|_| constructed.alloc()));
    assert!(values.iter().all(|value| **value == [7; 12]));
    assert!(MADE.load(Relaxed) < made + COUNT / 10, "values were constructed again");
}
