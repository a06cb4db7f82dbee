//! The measured loops: each repeats one order of allocations and frees.

use std::{
    mem, ptr,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use anyhow::{Result, ensure};
use fastrand::Rng;

use super::{
    Answer, Cell,
    cell::Order,
    ring::{Block, Ring},
};
use crate::{
    contenders::{Padded, allocators::Allocator},
    cpus::Cpus,
    rss, slice,
    workloads::alloc::touch::alloc_and_touch_each,
};

/// The most bytes of a block that are written, each in a page of its own.
const TOUCHED_MAX: usize = 16;

const PAGE: usize = 4096;

/// Bytes in one place of their pages would compete for one set of the cache.
const CACHE_LINE: usize = 64;

/// Measures a cell in this process, which has used no contender yet.
pub(super) fn measure<A: Allocator>(
    cpus: &Cpus,
    cell: Cell,
    threads: usize,
    length: Duration,
) -> Result<Answer> {
    let count = cell.blocks(threads);
    // All memory of the harness exists before memory is measured: its arrays, and stacks.
    let stores: Vec<Mutex<Store>> =
        (0..threads).map(|index| Mutex::new(Store::new(cell.order(), count, index))).collect();
    let ring = Ring::new(if cell.order() == Order::Remote { threads } else { 0 }, count);
    slice::run(cpus, threads, 1, |_| || Ok(()), || Ok(()))?;
    let before_bytes = rss::peak_bytes()?;
    let blocks = Blocks { allocator: &A::new(cell.size()), size: cell.size() };
    let walk =
        Walk { cpus, threads, length, counts: (0..threads).map(|_| Padded::default()).collect() };
    let block_ns = match cell.order() {
        Order::Lifo | Order::Fifo | Order::Random => walk.batches(&blocks, &stores),
        Order::Remote => walk.remote(&blocks, &ring),
        Order::Peak => walk.peaks(&blocks, &stores),
    }?;
    Ok(Answer { block_ns, peak_bytes: rss::peak_bytes()?.saturating_sub(before_bytes) })
}

/// The contender, with the size of its blocks.
struct Blocks<'a, A> {
    allocator: &'a A,
    size: usize,
}

impl<A: Allocator> Blocks<'_, A> {
    /// Allocates a block for each place, and touches it.
    fn alloc(&self, places: &mut [Block]) {
        let stride = PAGE.max(self.size.div_ceil(TOUCHED_MAX)) + CACHE_LINE;
        for place in places {
            place.0 = alloc_and_touch_each(self.allocator, self.size, stride);
        }
    }

    /// Frees a block.
    ///
    /// # Safety
    ///
    /// The block must be from `alloc`, must not have been freed, and must not be in use.
    unsafe fn free(&self, block: Block) {
        // SAFETY: the caller guarantees that the block is from `alloc`, which asked for this size.
        unsafe { self.allocator.free(block.0, self.size) };
    }
}

/// The places of one thread's blocks.
struct Store {
    places: Vec<Block>,
    /// The places in the order in which they are freed.
    order: Vec<u32>,
    /// Whether all places have a block; otherwise none has.
    is_full: bool,
}

impl Store {
    fn new(order: Order, count: usize, index: usize) -> Self {
        let (places, is_full) = (vec![Block(ptr::dangling_mut()); count], false);
        let mut order_of: Vec<u32> = (0..count as u32).collect();
        match order {
            Order::Lifo => order_of.reverse(),
            Order::Random => Rng::with_seed(index as u64).shuffle(&mut order_of),
            Order::Fifo | Order::Remote | Order::Peak => {}
        }
        Self { places, order: order_of, is_full }
    }
}

/// A store in use by a thread of a slice.
struct Held<'a, A: Allocator> {
    blocks: &'a Blocks<'a, A>,
    store: MutexGuard<'a, Store>,
}

impl<'a, A: Allocator> Held<'a, A> {
    fn new(blocks: &'a Blocks<'a, A>, store: &'a Mutex<Store>) -> Self {
        blocks.allocator.enter();
        Self { blocks, store: store.lock().unwrap_or_else(PoisonError::into_inner) }
    }

    fn fill(&mut self) {
        self.blocks.alloc(&mut self.store.places);
        self.store.is_full = true;
    }

    /// Frees the blocks, if there are any, and returns how many they were.
    fn empty(&mut self) -> u64 {
        let Store { places, order, is_full } = &mut *self.store;
        if !mem::take(is_full) {
            return 0;
        }
        for &place in &*order {
            // SAFETY: the store was full, so the place has a block from `alloc`; `order` has each
            // place once.
            unsafe { self.blocks.free(places[place as usize]) };
        }
        order.len() as u64
    }
}

impl<A: Allocator> Drop for Held<'_, A> {
    fn drop(&mut self) {
        self.empty();
    }
}

/// The conditions of a measurement.
struct Walk<'a> {
    cpus: &'a Cpus,
    threads: usize,
    length: Duration,
    /// The number of blocks that each thread has freed.
    counts: Vec<Padded<AtomicU64>>,
}

impl Walk<'_> {
    /// Measures blocks that are all allocated, and then freed in the order of their store.
    fn batches<A: Allocator>(
        &self,
        blocks: &Blocks<'_, A>,
        stores: &[Mutex<Store>],
    ) -> Result<f64> {
        self.block_ns(|index| {
            let mut held = Held::new(blocks, &stores[index]);
            move || {
                held.fill();
                self.count(index, held.empty());
                Ok(())
            }
        })
    }

    /// Measures blocks that are all freed, and then allocated again.
    ///
    /// All threads have all of their blocks when the slice begins.
    fn peaks<A: Allocator>(&self, blocks: &Blocks<'_, A>, stores: &[Mutex<Store>]) -> Result<f64> {
        self.block_ns(|index| {
            let mut held = Held::new(blocks, &stores[index]);
            move || {
                let freed = held.empty();
                held.fill();
                self.count(index, freed);
                Ok(())
            }
        })
    }

    /// Measures blocks that the next thread frees.
    fn remote<A: Allocator>(&self, blocks: &Blocks<'_, A>, ring: &Ring) -> Result<f64> {
        let free = |batch: &[Block]| {
            // SAFETY: the thread that passed the batch has filled it by `alloc`, and uses it no
            // more.
            batch.iter().for_each(|&block| unsafe { blocks.free(block) });
        };
        let block_ns = self.block_ns(|index| {
            blocks.allocator.enter();
            move || {
                let has_passed = ring.pass(index, |batch| blocks.alloc(batch));
                let freed = ring.receive(index, free);
                self.count(index, freed);
                if !has_passed && freed == 0 {
                    thread::yield_now();
                }
                Ok(())
            }
        });
        blocks.allocator.enter();
        (0..self.threads).for_each(|index| while ring.receive(index, free) > 0 {});
        block_ns
    }

    fn count(&self, index: usize, freed: u64) {
        // Relaxed: pairs with the loads in `freed`; only the thread itself stores its count.
        self.counts[index].store(self.counts[index].load(Relaxed) + freed, Relaxed);
    }

    /// Returns the blocks that all threads have freed.
    fn freed(&self) -> u64 {
        // Relaxed: pairs with the store in `count`. A recent count is enough while threads run;
        // after they have been joined, it is exact.
        self.counts.iter().map(|count| count.load(Relaxed)).sum()
    }

    /// Measures the time of a block, in a slice that is long enough for at least one operation.
    fn block_ns<Op: FnMut() -> Result<()>>(
        &self,
        prepare: impl Fn(usize) -> Op + Sync,
    ) -> Result<f64> {
        let mut length = self.length;
        loop {
            let conduct = || {
                let before = self.freed();
                slice::sleep(length)?;
                Ok((before, self.freed()))
            };
            let slice = slice::run(self.cpus, self.threads, 1, &prepare, conduct)?;
            slice::check_stop()?;
            let (before, at_stop) = slice.outcome;
            // With a CPU for each thread, their time goes on until they have ended.
            let freed = match self.threads <= self.cpus.len() {
                true => self.freed(),
                false => at_stop,
            } - before;
            if freed > 0 {
                return Ok(slice.ops_ns / freed as f64);
            }
            ensure!(length < Duration::from_secs(60), "no block was freed in {length:?}");
            length *= 2;
        }
    }
}
