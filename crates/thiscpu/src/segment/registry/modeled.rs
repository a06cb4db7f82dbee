//! The index of a registry in a static, for the model, which has no files.

use super::index::{Spare, at_of, entry_of, find_or_publish, keep_spare, take_number, take_spare};
use crate::sys::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

/// The kind of all records.
const KIND: u64 = 1;

/// An index with `ENTRIES` entries, and `RECORDS` records of a name and a cell.
#[derive(Debug)]
pub struct SharedNames<const ENTRIES: usize, const RECORDS: usize> {
    index: [AtomicU64; ENTRIES],
    spares: [AtomicU64; 2],
    records_used: AtomicU64,
    cells_used: AtomicU64,
    /// A name and the number of a cell, each plus 1.
    records: [[AtomicU64; 2]; RECORDS],
    /// The counts of the cells.
    cells: [AtomicU64; RECORDS],
}

impl<const ENTRIES: usize, const RECORDS: usize> SharedNames<ENTRIES, RECORDS> {
    const ZERO: AtomicU64 = AtomicU64::new(0);

    /// Creates an empty index.
    pub const fn new() -> Self {
        SharedNames {
            index: [const { Self::ZERO }; ENTRIES],
            spares: [const { Self::ZERO }; 2],
            records_used: Self::ZERO,
            cells_used: Self::ZERO,
            records: [const { [Self::ZERO, Self::ZERO] }; RECORDS],
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
            let (spare, cell) = match take_spare(&self.spares, 1) {
                Some(spare) => (spare, self.record(spare.at)[1].load(Relaxed)),
                None => {
                    let Some(record) = take(&self.records_used)? else { return Ok(None) };
                    let Some(cell) = take(&self.cells_used)? else { return Ok(None) };
                    (Spare { at: 64 * (record + 1), units: 1 }, cell + 1)
                }
            };
            for (word, value) in self.record(spare.at).iter().zip([name + 1, cell]) {
                word.store(value, Relaxed);
            }
            own = Some(spare);
            Ok(Some(entry_of(KIND, spare.at, 0)))
        };
        let is_key = |entry| {
            let [its_name, cell] = self.record(at_of(entry)).each_ref().map(|it| it.load(Relaxed));
            assert!(its_name > 0 && cell > 0, "a record is seen before it is written");
            Ok(its_name == name + 1)
        };
        let outcome = find_or_publish(&self.index, 0, KIND, is_key, make).ok()?;
        if let (Some(own), Some(_)) = (own, outcome.unused) {
            keep_spare(&self.spares, own);
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
