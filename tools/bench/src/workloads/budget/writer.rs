//! A writer: it allocates blocks, remembers them, and frees the oldest.

use std::collections::VecDeque;

use crate::contenders::budgets::Contender;

/// The most blocks of one allocation.
const BLOCKS_MAX: u64 = 64;

/// The number of sizes that a writer cycles through: a power of two.
const SIZES: usize = 256;

/// The rule by which a writer frees its allocations.
#[derive(Clone, Copy)]
pub(super) enum FreePolicy {
    /// All, when the next allocation might exceed this many blocks.
    AtMost(u64),
    /// One allocation, when refused or when it holds more than this many blocks.
    ///
    /// So no writer holds all the blocks that others wait for.
    WhenRefused(u64),
    /// All, when refused.
    AllWhenRefused,
}

/// One thread's allocations. It frees the rest of them when dropped.
pub(super) struct Writer<'a, C: Contender> {
    budget: &'a C,
    policy: FreePolicy,
    sizes: Box<[u8; SIZES]>,
    allocations: usize,
    held: VecDeque<u8>,
    held_blocks: u64,
    /// How many allocations the next steps free.
    to_free: usize,
}

impl<'a, C: Contender> Writer<'a, C> {
    /// Makes a writer with sizes of its own, equal in each run.
    pub(super) fn new(budget: &'a C, index: usize, policy: FreePolicy) -> Self {
        let mut random = fastrand::Rng::with_seed(index as u64);
        let sizes = Box::new([(); SIZES].map(|()| random.u8(1..=BLOCKS_MAX as u8)));
        let held = VecDeque::with_capacity(SIZES);
        Self { budget, policy, sizes, allocations: 0, held, held_blocks: 0, to_free: 0 }
    }

    /// Makes one call, which allocates or frees.
    #[inline(always)]
    pub(super) fn step(&mut self) {
        if self.to_free > 0 {
            return self.free_one();
        }
        match self.policy {
            FreePolicy::AtMost(most) if self.held_blocks + BLOCKS_MAX > most => {
                self.to_free = self.held.len();
                self.free_one();
            }
            FreePolicy::WhenRefused(most) if self.held_blocks > most => self.free_one(),
            _ => self.allocate_one(),
        }
    }

    #[inline(always)]
    fn allocate_one(&mut self) {
        let size = self.sizes[self.allocations % SIZES];
        self.allocations += 1;
        if self.budget.try_acquire(u64::from(size)) {
            self.held.push_back(size);
            self.held_blocks += u64::from(size);
        } else {
            self.to_free = match self.policy {
                FreePolicy::AtMost(_) => 0,
                FreePolicy::WhenRefused(_) => self.held.len().min(1),
                FreePolicy::AllWhenRefused => self.held.len(),
            };
        }
    }

    #[inline(always)]
    fn free_one(&mut self) {
        if let Some(size) = self.held.pop_front() {
            self.budget.release(u64::from(size));
            self.held_blocks -= u64::from(size);
        }
        self.to_free = self.to_free.saturating_sub(1);
    }
}

impl<C: Contender> Drop for Writer<'_, C> {
    fn drop(&mut self) {
        while !self.held.is_empty() {
            self.free_one();
        }
    }
}
