//! Sheaves: arrays of encoded pointers, which lanes, barns and node slabs hand to each other whole.
//!
//! ```text
//! sheaf:   | next : 8 | capacity : 4, count : 4 | 0 : 8 | slot | slot | ... | 0 : 8 |
//! mapping: | bytes of a sheaf : 8, unused | sheaf | sheaf | ... |     64 KiB, aligned to its size
//! ```
//!
//! The zeros tell sections where the slots begin and end, so that sections need not know the
//! capacity. A slot is never 0: it holds an encoded pointer (see [`super::encoding`]), a pointer
//! that was popped, or 1 if it was never used.
//!
//! A sheaf in a lane is known by its *top*: the address of the slot above its uppermost pointer.
//! Elsewhere it is known by its own address, and its header has the count.
//!
//! The memory of sheaves is never unmapped, because sections and slow paths may still read a sheaf
//! that has left its lane.

use core::sync::atomic::compiler_fence;

use crate::sys::Host;
use crate::sys::atomic::{
    AtomicU32, AtomicUsize,
    Ordering::{Relaxed, Release},
};
use crate::sys::lock::Lock;
use crate::sys::machine::Machine as _;

/// The capacities that sheaves have, in pointers.
///
/// From [`SMALL_INDEX`] on, as many as fit into 64, 128, ... bytes. Those before are for large
/// objects, of which a lane is to keep fewer; their sheaves have 64 bytes too.
pub(crate) const CAPACITIES: &[usize] =
    if cfg!(thiscpu_model) { &[1, 2] } else { &[1, 2, 4, 12, 28, 60, 124, 252, 508, 1020] };
/// The index of the smallest capacity of sheaves of objects that are not large.
pub(crate) const SMALL_INDEX: usize = if cfg!(thiscpu_model) { 1 } else { 2 };
const HEADER_BYTES: usize = size_of::<Header>();
/// The bytes mapped at once. One mapping is carved into sheaves of one capacity.
const MAPPING_BYTES: usize = if cfg!(thiscpu_model) { 4096 } else { 64 * 1024 };

#[repr(C)]
struct Header {
    /// The next sheaf in a list, or 0.
    next: AtomicUsize,
    capacity: AtomicU32,
    count: AtomicU32,
    /// Always 0: the end of the slots, for sections that pop.
    terminator: AtomicUsize,
}

/// A sheaf in no lane and no list, owned by the holder of this value.
#[derive(Debug)]
pub(crate) struct Sheaf(usize);

const fn bytes(index: usize) -> usize {
    (HEADER_BYTES + 8 * (CAPACITIES[index] + 1)).next_power_of_two()
}

/// Returns the header of the sheaf at `at`, which may be in a list or a lane.
fn header_at(at: usize) -> &'static Header {
    // SAFETY: each sheaf begins with its header and stays mapped forever.
    unsafe { &*(at as *const Header) }
}

fn word(at: usize) -> &'static AtomicUsize {
    // SAFETY: `at` is the address of a word in a mapping of sheaves, which stays mapped forever.
    // Sections and this module access it by whole words only.
    unsafe { &*(at as *const AtomicUsize) }
}

/// Returns the address of the sheaf that a slot, or its end, is part of.
fn sheaf_with(slot: usize) -> usize {
    // `Host::map` aligns a mapping to its size.
    let bytes = word(slot & !(MAPPING_BYTES - 1)).load(Relaxed);
    slot & !(bytes - 1)
}

/// Returns the capacity of the sheaf that a slot is part of; any thread may own that sheaf.
pub(super) fn capacity_at(slot: usize) -> usize {
    // Relaxed: as in `count_below`, the word may still be 0. Then the capacity counts as 0.
    match word(slot & !(MAPPING_BYTES - 1)).load(Relaxed) {
        0 => 0,
        _ => header_at(sheaf_with(slot)).capacity.load(Relaxed) as usize,
    }
}

/// Loads the pointer below a slot; 0 if the slot is the first.
pub(super) fn load_below(slot: usize) -> usize {
    word(slot - 8).load(Relaxed)
}

/// Returns how many pointers lie below `top` in its sheaf, which may be any thread's.
///
/// Reads only the first word of the mapping, which never changes once it is set.
pub(super) fn count_below(top: usize) -> usize {
    // Relaxed: another CPU may have installed the sheaf, and its stores may arrive in any order.
    // Then the word is 0, and the sheaf counts as empty.
    let bytes = word(top & !(MAPPING_BYTES - 1)).load(Relaxed);
    match bytes {
        0 => 0,
        _ => (top & (bytes - 1)).saturating_sub(HEADER_BYTES) / 8,
    }
}

/// Returns whether `slot` is a slot, and not the end of the sheaf.
pub(super) fn has_room(slot: usize) -> bool {
    word(slot).load(Relaxed) != 0
}

impl Sheaf {
    /// Returns the sheaf with its top at `slot`. The caller has just taken it out of a lane.
    pub(super) fn from_top(slot: usize) -> Sheaf {
        let sheaf = Sheaf(sheaf_with(slot));
        let count = (slot - sheaf.slots()) / 8;
        sheaf.header().count.store(count as u32, Relaxed);
        sheaf
    }

    fn header(&self) -> &'static Header {
        header_at(self.0)
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

    /// Returns the address of the slot above the uppermost pointer.
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

    /// Moves pointers from or to another sheaf, so that this one is about half full.
    ///
    /// A sheaf with room for a single pointer stays as it is.
    pub(in crate::slab) fn level(&mut self, other: &mut Sheaf) {
        let (half, count) = (self.capacity() / 2, self.count());
        if half > 0 && count > half {
            self.move_top(other, (count - half).min(other.capacity() - other.count()));
        } else if half > 0 {
            other.move_top(self, (half - count).min(other.count()));
        }
    }

    /// Moves the uppermost `count` pointers to another sheaf, which has room for them.
    fn move_top(&mut self, to: &mut Sheaf, count: usize) {
        debug_assert!(count <= self.count() && to.count() + count <= to.capacity());
        let (from, at) = (self.top() - 8 * count, to.top());
        for offset in (0..count).map(|index| 8 * index) {
            word(at + offset).store(word(from + offset).load(Relaxed), Relaxed);
        }
        self.set_count(self.count() - count);
        to.set_count(to.count() + count);
    }

    pub(crate) fn retain(mut self, mut is_wanted: impl FnMut(usize) -> bool) -> Sheaf {
        let pointers = self.pointers();
        self.set_count(0);
        pointers.filter(|&encoded| is_wanted(encoded)).for_each(|encoded| self.push(encoded));
        self
    }

    /// Replaces each pointer by what `to` makes of it.
    pub(crate) fn replace_all(&mut self, to: impl Fn(usize) -> usize) {
        for index in 0..self.count() {
            let slot = word(self.slots() + 8 * index);
            slot.store(to(slot.load(Relaxed)), Relaxed);
        }
    }

    /// Returns whether most objects are more than `bytes` away from the one before.
    ///
    /// Samples large sheaves, with a step that is no power of two, because allocation patterns
    /// often are.
    pub(crate) fn is_scattered(&self, bytes: usize) -> bool {
        let slot = |index: usize| word(self.slots() + 8 * index).load(Relaxed);
        let step = if self.count() > 64 { 7 } else { 1 };
        let seen = (1..self.count()).step_by(step);
        let far = seen.clone().filter(|&index| slot(index).abs_diff(slot(index - 1)) > bytes);
        2 * far.count() > seen.len()
    }

    /// Returns the pointers, from the lowest slot up.
    pub(crate) fn pointers(&self) -> impl Iterator<Item = usize> + use<> {
        let slots = self.slots();
        (0..self.count()).map(move |index| word(slots + 8 * index).load(Relaxed))
    }
}

/// A linked list of sheaves, changed under its owner's lock by one store at a time.
#[derive(Debug, Default)]
pub(crate) struct SheafList(AtomicUsize);

impl SheafList {
    pub(crate) const fn new() -> SheafList {
        SheafList(AtomicUsize::new(0))
    }

    /// Returns whether the list is empty; an estimate without the lock.
    ///
    /// Relaxed suffices for an estimate, and the lock orders it for its holder.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.load(Relaxed) == 0
    }

    pub(crate) fn push(&self, sheaf: Sheaf) {
        sheaf.header().next.store(self.0.load(Relaxed), Relaxed);
        // A child forked between the stores finds the list without the sheaf. A compiler fence is
        // enough: a child sees a thread's stores in program order. See `design::slab`, "Fork".
        compiler_fence(Release);
        self.0.store(sheaf.0, Relaxed);
    }

    pub(crate) fn pop(&self) -> Option<Sheaf> {
        let first = self.0.load(Relaxed);
        let sheaf = (first != 0).then_some(Sheaf(first))?;
        self.0.store(sheaf.header().next.load(Relaxed), Relaxed);
        Some(sheaf)
    }

    /// Returns the number of sheaves in the list, and of the pointers in them.
    pub(crate) fn totals(&self) -> (usize, usize) {
        let (mut sheaves, mut pointers) = (0, 0);
        let mut next = self.0.load(Relaxed);
        while next != 0 {
            let header = header_at(next);
            sheaves += 1;
            pointers += header.count.load(Relaxed) as usize;
            next = header.next.load(Relaxed);
        }
        (sheaves, pointers)
    }
}

/// The source of empty sheaves of one capacity, shared by all caches.
struct SheafSource {
    lock: Lock,
    list: SheafList,
    /// The next sheaf to carve; a multiple of [`MAPPING_BYTES`] asks for a new mapping.
    next: AtomicUsize,
}

static UNUSED: [SheafSource; CAPACITIES.len()] = [const {
    SheafSource { lock: Lock::new(), list: SheafList::new(), next: AtomicUsize::new(0) }
}; CAPACITIES.len()];

/// The bytes of all mappings of sheaves.
///
/// Not of `sys::atomic`, because models need not explore the order of statistics.
static MAPPED_BYTES: core::sync::atomic::AtomicUsize = core::sync::atomic::AtomicUsize::new(0);

/// Returns the bytes of all mappings of sheaves.
pub(crate) fn mapped_bytes() -> usize {
    // Relaxed, here and where it is added to: an estimate.
    MAPPED_BYTES.load(Relaxed)
}

/// Allocates an empty sheaf of capacity `CAPACITIES[index]`; `None` if there is no memory.
pub(crate) fn alloc(index: usize) -> Option<Sheaf> {
    let unused = &UNUSED[index];
    let _guard = unused.lock.lock();
    if let Some(mut sheaf) = unused.list.pop() {
        sheaf.set_count(0);
        return Some(sheaf);
    }
    let bytes = bytes(index);
    // Relaxed, here and below: the lock orders all accesses.
    let mut at = unused.next.load(Relaxed);
    if at.is_multiple_of(MAPPING_BYTES) {
        let mapping = Host::map(MAPPING_BYTES).ok()?;
        MAPPED_BYTES.fetch_add(MAPPING_BYTES, Relaxed);
        word(mapping).store(bytes, Relaxed);
        at = mapping + bytes;
    }
    // A child forked after the next store must find the mapping's first word. It may carve a sheaf
    // again only if no thread had it: `next` is stored before the lock is released, and no lane or
    // list gets the sheaf earlier.
    compiler_fence(Release);
    unused.next.store(at + bytes, Relaxed);
    let sheaf = Sheaf(at);
    sheaf.header().capacity.store(CAPACITIES[index] as u32, Relaxed);
    (0..CAPACITIES[index]).for_each(|index| word(sheaf.slots() + 8 * index).store(1, Relaxed));
    Some(sheaf)
}

/// Returns an unused sheaf of capacity `CAPACITIES[index]`, if one exists; maps no memory.
pub(crate) fn reuse(index: usize) -> Option<Sheaf> {
    let unused = &UNUSED[index];
    let _guard = unused.lock.lock();
    let mut sheaf = unused.list.pop()?;
    sheaf.set_count(0);
    Some(sheaf)
}

/// Frees an empty sheaf for use by any cache.
pub(crate) fn free(sheaf: Sheaf) {
    debug_assert_eq!(sheaf.count(), 0);
    let index = CAPACITIES.iter().position(|&capacity| capacity == sheaf.capacity());
    let unused = &UNUSED[index.expect("a sheaf has one of the capacities")];
    let _guard = unused.lock.lock();
    unused.list.push(sheaf);
}

#[cfg(all(test, not(thiscpu_model)))]
mod tests {
    use super::*;

    /// Returns whether a sheaf is scattered whose objects lie `steps` apart, in a cycle.
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

    /// Makes a sheaf with the smallest capacity of at least `capacity`, and with these pointers.
    fn sheaf_of(capacity: usize, pointers: core::ops::Range<usize>) -> Sheaf {
        let index = CAPACITIES.iter().position(|&known| known >= capacity);
        let mut sheaf = alloc(index.unwrap()).unwrap();
        pointers.for_each(|pointer| sheaf.push(pointer));
        sheaf
    }

    /// Levels sheaves of some capacities and counts; returns the counts afterwards.
    ///
    /// Asserts that each pointer is still in one of them.
    fn leveled(capacities: [usize; 2], counts: [usize; 2]) -> [usize; 2] {
        let mut sheaf = sheaf_of(capacities[0], 1..1 + counts[0]);
        let mut other = sheaf_of(capacities[1], 1 + counts[0]..1 + counts[0] + counts[1]);
        sheaf.level(&mut other);
        let mut all: Vec<usize> = sheaf.pointers().chain(other.pointers()).collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(1..1 + counts[0] + counts[1]));
        [sheaf.count(), other.count()]
    }

    #[test]
    fn sheaf_is_leveled_to_half_its_capacity() {
        assert_eq!(leveled([60, 60], [60, 0]), [30, 30]);
        assert_eq!(leveled([60, 60], [0, 60]), [30, 30]);
        assert_eq!(leveled([60, 60], [40, 0]), [30, 10]);
        // As far as the other sheaf has room, or pointers.
        assert_eq!(leveled([60, 12], [60, 0]), [48, 12]);
        assert_eq!(leveled([60, 12], [0, 12]), [12, 0]);
        assert_eq!(leveled([60, 60], [20, 0]), [20, 0]);
        // A sheaf of one object would be full again, or empty.
        assert_eq!(leveled([1, 1], [1, 0]), [1, 0]);
        assert_eq!(leveled([1, 1], [0, 1]), [0, 1]);
    }

    #[test]
    fn sheaf_is_scattered_when_most_neighbors_are_far() {
        const NEAR: usize = 64;
        const FAR: usize = 1 << 20;
        for count in [4, 12, 28, 60, 124, 252, 508, 1020] {
            assert!(is_scattered(count, &[FAR]), "{count}");
            assert!(!is_scattered(count, &[NEAR]), "{count}");
        }
        // Groups of eight, with two far steps or two near ones, in any rotation.
        for rotation in 0..8 {
            for count in [28, 60, 124, 252, 508, 1020] {
                let mut few = [NEAR, NEAR, FAR, NEAR, NEAR, NEAR, FAR, NEAR];
                few.rotate_left(rotation);
                assert!(!is_scattered(count, &few), "{count}, {few:?}");
                let many = few.map(|step| NEAR + FAR - step);
                assert!(is_scattered(count, &many), "{count}, {many:?}");
            }
        }
        assert!(!is_scattered(0, &[FAR]) && !is_scattered(1, &[FAR]));
    }
}
