//! Sheaves: arrays of entries, which lanes, stocks and barns hand to each other whole.
//!
//! ```text
//! | next : 8 | capacity : 4, count : 4 | 0 : 8 | slot | slot | ... | 0 : 8 |
//! ```
//!
//! An entry stands for an object and is never 0; see [`super::encoding`]. The zeros tell sections where a sheaf begins and
//! ends, so that those need not know how large it is; a slot in between is 1 while it was never used. A sheaf in a lane is known by
//! the address of the slot above its uppermost entry, its *top*; elsewhere by its own, with the count in it.
//!
//! The memory of sheaves is never given back: sections and slow paths may still look at one.

use core::sync::atomic::compiler_fence;

use crate::sys::Host;
use crate::sys::atomic::{
    AtomicU32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::sys::lock::Lock;
use crate::sys::machine::Machine as _;

/// How many entries the kinds of sheaves have: what fits into 64, 128, ... bytes.
pub(crate) const CAPACITIES: &[usize] =
    if cfg!(thiscpu_model) { &[2] } else { &[4, 12, 28, 60, 124, 252, 508, 1020] };
const HEADER_BYTES: usize = size_of::<Header>();
/// The memory that sheaves of one kind are carved out of at once.
const MAPPING_BYTES: usize = if cfg!(thiscpu_model) { 4096 } else { 64 * 1024 };

#[repr(C)]
struct Header {
    /// The next in a list.
    next: AtomicUsize,
    capacity: AtomicU32,
    count: AtomicU32,
    /// Below the first slot.
    terminator: AtomicUsize,
}

/// A sheaf in no lane, and in no list: whoever has this owns it.
#[derive(Debug)]
pub(crate) struct Sheaf(usize);

const fn bytes(index: usize) -> usize {
    (HEADER_BYTES + 8 * (CAPACITIES[index] + 1)).next_power_of_two()
}

fn word(at: usize) -> &'static AtomicUsize {
    // SAFETY: the caller's address is that of a word of a sheaf, which stays for ever and is accessed in whole words only,
    // by sections and through this.
    unsafe { &*(at as *const AtomicUsize) }
}

/// The entry below a slot of a sheaf; 0 if the slot is its first.
pub(super) fn load_below(slot: usize) -> usize {
    word(slot - 8).load(Relaxed)
}

/// Whether there is a slot, and not the end.
pub(super) fn has_room(slot: usize) -> bool {
    word(slot).load(Relaxed) != 0
}

impl Sheaf {
    /// The sheaf whose top is at that slot, and which the caller has just taken out of a lane.
    pub(super) fn from_top(slot: usize) -> Sheaf {
        let mapping = slot & !(MAPPING_BYTES - 1);
        // A mapping begins with the bytes of each of its sheaves.
        let bytes = word(mapping).load(Relaxed);
        let sheaf = Sheaf(slot & !(bytes - 1));
        let count = (slot - sheaf.slots()) / 8;
        sheaf.header().count.store(count as u32, Relaxed);
        sheaf
    }

    fn header(&self) -> &'static Header {
        // SAFETY: a sheaf begins with it, and stays for ever.
        unsafe { &*(self.0 as *const Header) }
    }

    fn slots(&self) -> usize {
        self.0 + HEADER_BYTES
    }

    pub(crate) fn capacity(&self) -> usize {
        self.header().capacity.load(Relaxed) as usize
    }

    pub(crate) fn count(&self) -> usize {
        self.header().count.load(Relaxed) as usize
    }

    fn set_count(&mut self, count: usize) {
        self.header().count.store(count as u32, Relaxed);
    }

    /// The slot above the uppermost entry.
    pub(super) fn top(&self) -> usize {
        self.slots() + 8 * self.count()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.count() == self.capacity()
    }

    pub(crate) fn push(&mut self, encoded: usize) {
        debug_assert!(!self.is_full() && encoded != 0);
        word(self.top()).store(encoded, Relaxed);
        self.set_count(self.count() + 1);
    }

    pub(crate) fn pop(&mut self) -> Option<usize> {
        let count = self.count().checked_sub(1)?;
        self.set_count(count);
        Some(word(self.top()).load(Relaxed))
    }

    /// The same sheaf with those of its entries that are wanted.
    pub(crate) fn retain(mut self, is_wanted: impl Fn(usize) -> bool) -> Sheaf {
        let pointers = self.pointers();
        self.set_count(0);
        pointers.filter(|&encoded| is_wanted(encoded)).for_each(|encoded| self.push(encoded));
        self
    }

    /// Changes its entries from number `from` on.
    pub(crate) fn replace_from(&mut self, from: usize, to: impl Fn(usize) -> usize) {
        for index in from..self.count() {
            let slot = word(self.slots() + 8 * index);
            slot.store(to(slot.load(Relaxed)), Relaxed);
        }
    }

    /// Whether most of its objects are further than that from the one before; of a large sheaf some are looked at, and no pattern of
    /// powers of two decides which.
    pub(crate) fn is_scattered(&self, bytes: usize) -> bool {
        let slot = |index: usize| word(self.slots() + 8 * index).load(Relaxed);
        let step = if self.count() > 64 { 7 } else { 1 };
        let seen = (1..self.count()).step_by(step);
        let far = seen.clone().filter(|&index| slot(index).abs_diff(slot(index - 1)) > bytes);
        2 * far.count() > seen.len()
    }

    /// Its entries, from the first.
    pub(crate) fn pointers(&self) -> impl Iterator<Item = usize> + use<> {
        let slots = self.slots();
        (0..self.count()).map(move |index| word(slots + 8 * index).load(Relaxed))
    }
}

/// A list of sheaves. Changed under a lock, one store at a time.
#[derive(Debug)]
pub(crate) struct SheafList(AtomicUsize);

impl SheafList {
    pub(crate) const fn new() -> SheafList {
        SheafList(AtomicUsize::new(0))
    }

    /// Relaxed: an estimate where the lock is not held.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.load(Relaxed) == 0
    }

    pub(crate) fn push(&self, sheaf: Sheaf) {
        sheaf.header().next.store(self.0.load(Relaxed), Relaxed);
        // A child that is forked in between has the list without the sheaf, and not one that ends in nowhere.
        compiler_fence(Release);
        self.0.store(sheaf.0, Relaxed);
    }

    pub(crate) fn pop(&self) -> Option<Sheaf> {
        let first = self.0.load(Relaxed);
        let sheaf = (first != 0).then_some(Sheaf(first))?;
        self.0.store(sheaf.header().next.load(Relaxed), Relaxed);
        Some(sheaf)
    }

    /// How many sheaves are in it, and how many entries those have.
    pub(crate) fn totals(&self) -> (usize, usize) {
        let (mut sheaves, mut entries) = (0, 0);
        let mut next = self.0.load(Relaxed);
        while next != 0 {
            let header = Sheaf(next).header();
            sheaves += 1;
            entries += header.count.load(Relaxed) as usize;
            next = header.next.load(Relaxed);
        }
        (sheaves, entries)
    }
}

/// Empty sheaves of one kind that no cache has.
struct UnusedSheaves {
    lock: Lock,
    list: SheafList,
    /// The mapping that sheaves are carved out of, and the first that was not. The end of a mapping before there is one.
    next: AtomicUsize,
}

static UNUSED: [UnusedSheaves; CAPACITIES.len()] = [const {
    UnusedSheaves { lock: Lock::new(), list: SheafList::new(), next: AtomicUsize::new(0) }
}; CAPACITIES.len()];

/// An empty sheaf of that kind; `None` if there is no memory.
pub(crate) fn alloc(index: usize) -> Option<Sheaf> {
    let unused = &UNUSED[index];
    let _guard = unused.lock.lock();
    if let Some(mut sheaf) = unused.list.pop() {
        sheaf.set_count(0);
        return Some(sheaf);
    }
    let bytes = bytes(index);
    let mut at = unused.next.load(Acquire);
    if at.is_multiple_of(MAPPING_BYTES) {
        let mapping = Host::map(MAPPING_BYTES).ok()?;
        word(mapping).store(bytes, Relaxed);
        at = mapping + bytes;
    }
    // Release: nobody takes it twice, and what is written to it below is only read by whoever gets it.
    unused.next.store(at + bytes, Release);
    let sheaf = Sheaf(at);
    sheaf.header().capacity.store(CAPACITIES[index] as u32, Relaxed);
    (0..CAPACITIES[index]).for_each(|index| word(sheaf.slots() + 8 * index).store(1, Relaxed));
    Some(sheaf)
}

/// An empty sheaf of that kind that no cache has, if there is one already.
pub(crate) fn reuse(index: usize) -> Option<Sheaf> {
    let unused = &UNUSED[index];
    let _guard = unused.lock.lock();
    let mut sheaf = unused.list.pop()?;
    sheaf.set_count(0);
    Some(sheaf)
}

/// Gives an empty sheaf up.
pub(crate) fn free(sheaf: Sheaf) {
    debug_assert_eq!(sheaf.count(), 0);
    let index = CAPACITIES.iter().position(|&capacity| capacity == sheaf.capacity());
    let unused = &UNUSED[index.expect("a sheaf is of a index")];
    let _guard = unused.lock.lock();
    unused.list.push(sheaf);
}

#[cfg(all(test, not(thiscpu_model)))]
mod tests {
    use super::*;

    /// Whether a sheaf is scattered whose objects are so far from those before them, again and again.
    fn is_scattered(count: usize, steps: &[usize]) -> bool {
        let index = CAPACITIES.iter().position(|&capacity| capacity >= count);
        let mut sheaf = alloc(index.unwrap()).unwrap();
        let mut encoded = 1 << 40;
        for step in steps.iter().cycle().take(count) {
            encoded += step;
            sheaf.push(encoded);
        }
        sheaf.is_scattered(1_000)
    }

    #[test]
    fn sheaves_are_scattered_if_most_of_their_objects_are_far_from_the_one_before() {
        const NEAR: usize = 64;
        const FAR: usize = 1 << 20;
        for count in [4, 12, 28, 60, 124, 252, 508, 1020] {
            assert!(is_scattered(count, &[FAR]), "{count}");
            assert!(!is_scattered(count, &[NEAR]), "{count}");
        }
        // Whatever is where in groups of a few.
        for turn in 0..8 {
            for count in [28, 60, 124, 252, 508, 1020] {
                let mut few = [NEAR, NEAR, FAR, NEAR, NEAR, NEAR, FAR, NEAR];
                few.rotate_left(turn);
                assert!(!is_scattered(count, &few), "{count}, {few:?}");
                let many = few.map(|step| NEAR + FAR - step);
                assert!(is_scattered(count, &many), "{count}, {many:?}");
            }
        }
        assert!(!is_scattered(0, &[FAR]) && !is_scattered(1, &[FAR]));
    }
}
