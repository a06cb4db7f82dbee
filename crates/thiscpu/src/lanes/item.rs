//! An item: zeroed memory of one size in each lane, freed when dropped.

use super::region;
use super::table::{self, READY_BIT};
use crate::error::Error;
use crate::sys::startup;

/// Memory of one size at the same offset in every lane.
#[derive(Debug)]
pub(crate) struct Item {
    /// The address in lane 0, plus `READY_BIT`.
    open: usize,
    size: usize,
}

impl Item {
    /// Allocates an item of `size` zeroed bytes in each lane, at a multiple of `align`.
    pub(crate) fn try_new(size: usize, align: usize) -> Result<Item, Error> {
        startup::tier()?;
        Ok(Item { open: region::lock().allocate(size, align)? + READY_BIT, size })
    }

    /// Recreates an item from the result of [`open`](Self::open).
    ///
    /// # Safety
    ///
    /// The item is allocated and has this size, and only one `Item` of it is dropped.
    #[cfg(not(thiscpu_model))]
    pub(crate) unsafe fn from_open(open: usize, size: usize) -> Item {
        Item { open, size }
    }

    /// Returns the word that sections take: like a gate that is never closed.
    #[inline(always)]
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    pub(crate) fn address(&self) -> usize {
        self.open & !READY_BIT
    }

    /// Returns the item's address in each lane in use, the shared lane first.
    pub(crate) fn in_all_lanes(&self) -> impl Iterator<Item = usize> + use<> {
        let address = self.address();
        (0..=table::in_use()).map(move |lane| address + lane * table::STRIDE)
    }
}

impl Drop for Item {
    fn drop(&mut self) {
        region::free(self.address(), self.size);
    }
}

/// Unwraps the result of a constructor that cannot return an error.
///
/// # Panics
///
/// If `result` is an error; the message says what failed, why, and what to do.
pub(crate) fn expect<T>(result: Result<T, Error>) -> T {
    result.unwrap_or_else(|error| panic!("thiscpu: {error}"))
}
