//! The index of a registry in a static, for the model, which has no files.

use super::free_list::FreeList;
use super::index::{at_of, entry_of, find_or_publish, take_number};
use crate::sys::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

/// A free list of items from 1 to `ITEMS`.
#[derive(Debug)]
pub struct SharedFreeList<const ITEMS: usize> {
    list: FreeList,
    links: [AtomicU64; ITEMS],
}

impl<const ITEMS: usize> SharedFreeList<ITEMS> {
    /// Creates an empty list.
    pub const fn new() -> Self {
        SharedFreeList { list: FreeList::new(), links: [const { AtomicU64::new(0) }; ITEMS] }
    }

    fn link(&self, item: u64) -> &AtomicU64 {
        &self.links[item as usize - 1]
    }

    /// Takes an item, if there is one.
    pub fn take(&self) -> Option<u64> {
        self.list.take(|item| Some(self.link(item)))
    }

    /// Pushes an item that nobody else uses.
    pub fn push(&self, item: u64) {
        self.list.push(item, self.link(item));
    }
}

/// The kind of all records.
const KIND: u64 = 1;

/// An index with `ENTRIES` entries, and `RECORDS` records of a name and a cell.
#[derive(Debug)]
pub struct SharedNames<const ENTRIES: usize, const RECORDS: usize> {
    index: [AtomicU64; ENTRIES],
    free_records: FreeList,
    free_cells: FreeList,
    records_used: AtomicU64,
    cells_used: AtomicU64,
    /// A name and the number of a cell, each plus 1.
    records: [[AtomicU64; 2]; RECORDS],
    /// The words of the cells, which link free ones.
    links: [AtomicU64; RECORDS],
    /// The counts of the cells.
    cells: [AtomicU64; RECORDS],
}

impl<const ENTRIES: usize, const RECORDS: usize> SharedNames<ENTRIES, RECORDS> {
    const ZERO: AtomicU64 = AtomicU64::new(0);

    /// Creates an empty index.
    pub const fn new() -> Self {
        SharedNames {
            index: [const { Self::ZERO }; ENTRIES],
            free_records: FreeList::new(),
            free_cells: FreeList::new(),
            records_used: Self::ZERO,
            cells_used: Self::ZERO,
            records: [const { [Self::ZERO, Self::ZERO] }; RECORDS],
            links: [const { Self::ZERO }; RECORDS],
            cells: [const { Self::ZERO }; RECORDS],
        }
    }

    fn record(&self, at: u64) -> &[AtomicU64; 2] {
        &self.records[(at / 64 - 1) as usize]
    }

    /// Returns the cell of a name, and makes it if there is none; `None` if there is no room.
    ///
    /// All names have one hash, so every search meets the other names.
    ///
    /// # Panics
    ///
    /// If a record is not written when it is seen.
    pub fn cell(&self, name: u64) -> Option<usize> {
        let mut own = None;
        let make = || -> Result<_, ()> {
            let take = |used| take_number(used, RECORDS as u64, |_| Ok(()));
            let cell = match self.free_cells.take(|cell| self.links.get(cell as usize - 1)) {
                Some(cell) => cell,
                None => match take(&self.cells_used)? {
                    Some(cell) => cell + 1,
                    None => return Ok(None),
                },
            };
            let at = match self.free_records.take(|at| Some(&self.record(at)[1])) {
                Some(at) => at,
                // There are as many records as cells, so this is not the last one.
                None => 64 * (take(&self.records_used)?.expect("a record") + 1),
            };
            for (word, value) in self.record(at).iter().zip([name + 1, cell]) {
                word.store(value, Relaxed);
            }
            own = Some((at, cell));
            Ok(Some(entry_of(KIND, at, 0)))
        };
        let is_key = |entry| {
            let [its_name, cell] = self.record(at_of(entry)).each_ref().map(|it| it.load(Relaxed));
            assert!(its_name > 0 && cell > 0, "a record is seen before it is written");
            Ok(its_name == name + 1)
        };
        let outcome = find_or_publish(&self.index, 0, KIND, is_key, make).ok()?;
        if let (Some((at, cell)), Some(_)) = (own, outcome.unused) {
            self.free_records.push(at, &self.record(at)[1]);
            self.free_cells.push(cell, &self.links[cell as usize - 1]);
        }
        let cell = self.record(at_of(outcome.entry?))[1].load(Relaxed) - 1;
        Some(cell as usize)
    }

    /// Counts in the cell of a name, and returns what was counted there before.
    pub fn add(&self, name: u64) -> Option<u64> {
        Some(self.cells[self.cell(name)?].fetch_add(1, SeqCst))
    }

    /// Returns how many cells were taken.
    pub fn cells_used(&self) -> u64 {
        self.cells_used.load(SeqCst)
    }
}
