//! Free columns: finding some, and returning their pages to the system.
//!
//! A column that becomes free is *dirty*: it may have pages, of zeros, in each lane. Dirty columns
//! are taken first. If there are more than [`kept`], the thread that freed the last ones returns
//! the pages of others: as many columns as it has freed, and one more. It does so without the lock.
//! Meanwhile these columns are not free, and hold no item.

use super::header::{Column, Content, Header, column_bytes, columns, mask};
use super::list::{Links, List};
use crate::lanes::table::STRIDE;
use crate::sys::Host;
use crate::sys::atomic::{AtomicUsize, Ordering::Relaxed};
use crate::sys::machine::Machine as _;

/// The free columns of a heap.
pub(super) struct FreeColumns {
    /// Regions by their longest sequence of free columns: list *n* has those of 2^*n* and more.
    room: [List; 7],
    /// Regions with dirty columns; the one that last got some is the first.
    dirty: List,
    dirty_columns: AtomicUsize,
    /// The number of threads that return pages right now.
    purges: AtomicUsize,
}

/// How many regions are searched for a sequence of columns that some of them may have.
const SEARCHED: usize = 8;

/// Consecutive columns of a region whose pages the owner of this returns to the system.
pub(super) struct Purge {
    first: Column,
    pub(super) count: usize,
    /// The generation of the process that took the columns out.
    generation: u32,
}

/// Returns how many dirty columns may stay: as many as a region has.
fn kept() -> usize {
    columns()
}

/// Returns the starts of all sequences of `count` bits, as a mask.
fn starts(bits: u64, count: usize) -> u64 {
    let (mut starts, mut length) = (bits, 1);
    while length < count {
        let step = length.min(count - length);
        starts &= starts >> step;
        length += step;
    }
    starts
}

impl FreeColumns {
    pub(super) const fn new() -> FreeColumns {
        FreeColumns {
            room: [const { List::new() }; 7],
            dirty: List::new(),
            dirty_columns: AtomicUsize::new(0),
            purges: AtomicUsize::new(0),
        }
    }

    /// Takes `count` free columns in sequence, for the content that the first one gets.
    pub(super) fn take(&self, count: usize, content: Content) -> Option<Column> {
        let region = Header::of_links(self.find(count)?);
        let free = region.free.load(Relaxed);
        let starts = match starts(free & region.dirty.load(Relaxed), count) {
            0 => starts(free, count),
            dirty => dirty,
        };
        let first = region.column(starts.trailing_zeros() as usize);
        // Before the masks: a child that was forked in between finds the columns by their content.
        first.set_content(content);
        self.remove(region, mask(first.at, count));
        Some(first)
    }

    /// Finds a region with `count` free columns in sequence.
    fn find(&self, count: usize) -> Option<&'static Links> {
        let enough = count.next_power_of_two().ilog2() as usize;
        let dirty = self.dirty.first().filter(|_| count == 1);
        let sure = || self.room[enough..].iter().find_map(List::first);
        let maybe = || {
            let has_enough = |links: &&'static Links| {
                starts(Header::of_links(links).free.load(Relaxed), count) != 0
            };
            let list =
                self.room.get(enough.wrapping_sub(1)).filter(|_| !count.is_power_of_two())?;
            list.iter().take(SEARCHED).find(has_enough)
        };
        dirty.or_else(sure).or_else(maybe)
    }

    /// Frees columns that hold nothing but zeros any more.
    pub(super) fn release(&self, first: Column, count: usize) {
        let (region, freed) = (first.region, mask(first.at, count));
        // In this order, so that a child that was forked in between knows that they may have pages.
        region.dirty.store(region.dirty.load(Relaxed) | freed, Relaxed);
        first.set_content(Content::None);
        self.dirty_columns.store(self.dirty_columns.load(Relaxed) + count, Relaxed);
        if region.dirty_links.is_linked() {
            self.dirty.remove(&region.dirty_links);
        }
        self.dirty.push(&region.dirty_links);
        self.insert(region, freed);
    }

    /// Adds a region that has just been made.
    pub(super) fn add(&self, region: &'static Header) {
        self.insert(region, mask(0, columns()));
    }

    /// Adds to the free columns of a region.
    fn insert(&self, region: &'static Header, freed: u64) {
        region.free.store(region.free.load(Relaxed) | freed, Relaxed);
        self.enter_room(region);
    }

    /// Removes from the free columns of a region, and from the dirty ones.
    fn remove(&self, region: &'static Header, taken: u64) {
        region.free.store(region.free.load(Relaxed) & !taken, Relaxed);
        let dirty = region.dirty.load(Relaxed);
        region.dirty.store(dirty & !taken, Relaxed);
        let cleaned = (dirty & taken).count_ones() as usize;
        self.dirty_columns.store(self.dirty_columns.load(Relaxed) - cleaned, Relaxed);
        if cleaned > 0 && dirty & !taken == 0 {
            self.dirty.remove(&region.dirty_links);
        }
        self.enter_room(region);
    }

    /// Enters a region into the list that its free columns belong to.
    fn enter_room(&self, region: &'static Header) {
        let (old, new) = (region.room.load(Relaxed), room(region.free.load(Relaxed)));
        if old == new {
            return;
        }
        if old > 0 {
            self.room[old as usize - 1].remove(&region.room_links);
        }
        region.room.store(new, Relaxed);
        if new > 0 {
            self.room[new as usize - 1].push(&region.room_links);
        }
    }

    /// Takes up to `most` dirty columns out, if there are too many of them.
    ///
    /// They are in the region that has been in the list for longest.
    pub(super) fn begin_purge(&self, most: usize) -> Option<Purge> {
        if most == 0 || self.dirty_columns.load(Relaxed) <= kept() {
            return None;
        }
        let region = Header::of_links(self.dirty.last()?);
        let dirty = region.dirty.load(Relaxed);
        let first = region.column(dirty.trailing_zeros() as usize);
        let count = ((dirty >> first.at).trailing_ones() as usize).min(most);
        let purged = mask(first.at, count);
        // First, so that a child that was forked in between finds it.
        self.purges.store(self.purges.load(Relaxed) + 1, Relaxed);
        region.purging.store(region.purging.load(Relaxed) | purged, Relaxed);
        self.remove(region, purged);
        Some(Purge { first, count, generation: Host::generation() })
    }

    /// Frees the columns of a purge again, unless `recover` has done so.
    ///
    /// It has if a signal handler forked in the middle of the purge, and this is the child.
    pub(super) fn end_purge(&self, purge: Purge) {
        if purge.generation != Host::generation() {
            return;
        }
        let (region, purged) = (purge.first.region, mask(purge.first.at, purge.count));
        self.insert(region, purged);
        region.purging.store(region.purging.load(Relaxed) & !purged, Relaxed);
        self.purges.store(self.purges.load(Relaxed) - 1, Relaxed);
    }

    /// Returns whether a thread was returning pages when this process was forked.
    pub(super) fn was_purging(&self) -> bool {
        self.purges.load(Relaxed) > 0
    }

    /// Forgets which regions have free columns.
    pub(super) fn clear(&self) {
        self.room.iter().for_each(List::clear);
        self.dirty.clear();
        self.dirty_columns.store(0, Relaxed);
        self.purges.store(0, Relaxed);
    }

    /// Enters a region with these free columns into all lists, after `clear`.
    ///
    /// Those in `emptied` may have pages, as may those that a thread was purging.
    pub(super) fn recover(&self, region: &'static Header, free: u64, emptied: u64) {
        let dirty = (region.dirty.load(Relaxed) | region.purging.load(Relaxed) | emptied) & free;
        region.purging.store(0, Relaxed);
        region.dirty.store(dirty, Relaxed);
        region.room.store(0, Relaxed);
        region.room_links.reset();
        region.dirty_links.reset();
        self.dirty_columns
            .store(self.dirty_columns.load(Relaxed) + dirty.count_ones() as usize, Relaxed);
        if dirty != 0 {
            self.dirty.push(&region.dirty_links);
        }
        region.free.store(free, Relaxed);
        self.enter_room(region);
    }
}

/// Returns one more than the number of the list for a region with these free columns, or 0.
fn room(free: u64) -> u32 {
    let (mut starts, mut room) = (free, 0);
    while starts != 0 {
        starts = if room < 6 { starts & starts >> (1 << room) } else { 0 };
        room += 1;
    }
    room
}

impl Purge {
    /// Returns the pages in the first `lanes` lanes, which are in use, to the system.
    ///
    /// The caller does not hold the lock. If a signal handler forks meanwhile, the child leaves the
    /// rest: its handler may have allocated items in these columns.
    ///
    /// The system refuses if the program has locked them. Then they stay, and hold zeros anyway.
    pub(super) fn discard(&self, lanes: usize) {
        for lane in (0..lanes).take_while(|_| self.generation == Host::generation()) {
            let address = self.first.address() + lane * STRIDE;
            // SAFETY: lanes in use are accessible. The columns hold no item, and none is allocated
            // there before `end_purge`.
            unsafe { Host::discard(address, self.count * column_bytes()) };
        }
    }
}

#[cfg(all(test, not(thiscpu_model)))]
mod tests {
    use super::super::Heap;
    use super::super::header::GRAIN;
    use super::*;

    #[test]
    fn room_is_the_largest_power_of_two_in_sequence() {
        for (free, expected) in [(0, 0), (0b101, 1), (0b11, 2), (0b1110, 2), (!0 >> 1, 6), (!0, 7)]
        {
            assert_eq!(room(free), expected, "{free:b}");
        }
    }

    #[test]
    fn starts_are_those_of_whole_sequences() {
        assert_eq!(starts(0b1_0111_1011, 1), 0b1_0111_1011);
        assert_eq!(starts(0b1_0111_1011, 3), 0b11_000);
        assert_eq!(starts(!0, 64), 1);
        assert_eq!(starts(!0 >> 1, 64), 0);
    }

    // Many columns are dirty at once after a fork, if threads of the parent were returning them.
    #[test]
    fn free_returns_one_column_more_than_it_frees() {
        static HEAP: Heap = Heap::new(false);
        let take = || HEAP.lock().allocate(column_bytes(), GRAIN).expect("memory");
        let items: Vec<usize> = (0..3 * columns()).map(|_| take()).collect();
        let (last, others) = items.split_last().expect("items");
        for &item in others {
            let column = Column::of(item);
            assert_eq!(HEAP.lock().release(column, column.content(), item), 1);
        }
        let dirty = || HEAP.free.dirty_columns.load(Relaxed);
        let before = dirty();
        assert_eq!(before, others.len());
        HEAP.free(*last);
        assert_eq!(dirty(), before + 1 - 2);
    }
}
