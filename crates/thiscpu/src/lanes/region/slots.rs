//! Slots: items of up to half a page, of which a column holds many of one size.
//!
//! A column with a free slot is in the list of its size. So a slot is found, and freed, in a number
//! of steps that does not depend on how many items there are.

use super::free_columns::FreeColumns;
use super::header::{Column, Content, GRAIN, column_bytes};
use super::list::List;

/// Lists of columns with slots in use and free slots, by size.
pub(super) struct Slots([List; SIZES]);

/// Four sizes for each power of two, up to half a page of 64 KiB.
const SIZES: usize = 4 * 13;

/// Returns the grains of a slot for an item, or `None` if the item needs whole columns.
///
/// The number has at most three significant bits, so a slot is at most a quarter larger than its
/// item. Slots begin at multiples of their size, and so of the alignment.
pub(super) fn slot_grains(size: usize, align: usize) -> Option<usize> {
    let grains = size.div_ceil(GRAIN).max(1);
    let step = 1 << grains.ilog2().saturating_sub(2);
    let grains = grains.next_multiple_of(step).next_multiple_of(align.div_ceil(GRAIN).max(1));
    (grains <= column_bytes() / GRAIN / 2).then_some(grains)
}

fn slots(grains: usize) -> usize {
    column_bytes() / GRAIN / grains
}

impl Slots {
    pub(super) const fn new() -> Slots {
        Slots([const { List::new() }; SIZES])
    }

    /// Returns the list of columns with slots of that many grains.
    fn with_room(&self, grains: usize) -> &List {
        let power = grains.ilog2() as usize;
        // The two bits after the highest one.
        &self.0[4 * power + (((grains << 2) >> power) & 3)]
    }

    /// Takes a slot; returns its address in lane 0.
    pub(super) fn take(&self, free: &FreeColumns, grains: usize) -> Option<usize> {
        let column = match self.with_room(grains).first() {
            Some(links) => Column::of_links(links),
            None => self.begin(free, grains)?,
        };
        let (taken, count) = (column.taken(), slots(grains));
        let slot = taken.find(false, 0, count);
        taken.set(slot);
        let used = column.used() + 1;
        column.set_used(used);
        if used == count {
            self.with_room(grains).remove(column.links());
        }
        Some(column.address() + slot * grains * GRAIN)
    }

    /// Turns a free column into one of slots.
    fn begin(&self, free: &FreeColumns, grains: usize) -> Option<Column> {
        let column = free.take(1, Content::Slots(grains))?;
        column.set_used(0);
        self.with_room(grains).push(column.links());
        Some(column)
    }

    /// Frees the slot of an item; returns whether the column holds nothing any more.
    pub(super) fn release(&self, column: Column, grains: usize, item: usize) -> bool {
        column.taken().put((item - column.address()) / (grains * GRAIN), 1, false);
        let used = column.used() - 1;
        column.set_used(used);
        let is_listed = column.links().is_linked();
        if used == 0 && is_listed {
            self.with_room(grains).remove(column.links());
        }
        if used > 0 && !is_listed {
            self.with_room(grains).push(column.links());
        }
        used == 0
    }

    /// Forgets which columns have room.
    pub(super) fn clear(&self) {
        self.0.iter().for_each(List::clear);
    }

    /// Counts the slots in use of a column, enters it into its list, and returns the number.
    pub(super) fn recover(&self, column: Column, grains: usize) -> usize {
        let count = slots(grains);
        let used = column.taken().count(0, count);
        column.set_used(used);
        if 0 < used && used < count {
            self.with_room(grains).push(column.links());
        }
        used
    }
}
