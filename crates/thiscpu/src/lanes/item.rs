//! An item: zeroed memory of one size in each lane, given back when dropped.

use super::region;
use super::table::{self, READY_BIT};
use crate::error::Error;
use crate::sys::startup;

#[derive(Debug)]
pub(crate) struct Item {
    /// Its address in lane 0, plus `READY_BIT`.
    open: usize,
    size: usize,
}

impl Item {
    pub(crate) fn try_new(size: usize, align: usize) -> Result<Item, Error> {
        startup::tier()?;
        Ok(Item { open: region::lock().allocate(size, align)? + READY_BIT, size })
    }

    /// The item that this is [`open`](Self::open) of.
    ///
    /// # Safety
    ///
    /// It is allocated, has this size, and is dropped once.
    #[cfg(not(thiscpu_model))]
    pub(crate) unsafe fn from_open(open: usize, size: usize) -> Item {
        Item { open, size }
    }

    /// As sections take it: as a gate that is never closed.
    #[inline(always)]
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// The item's address in lane 0.
    pub(crate) fn address(&self) -> usize {
        self.open & !READY_BIT
    }

    /// The item's address in each lane that can hold something, the slow lane first.
    pub(crate) fn in_all_lanes(&self) -> impl Iterator<Item = usize> + use<> {
        let address = self.address();
        (0..=table::in_use()).map(move |lane| address + lane * table::STRIDE)
    }
}

impl Drop for Item {
    fn drop(&mut self) {
        region::lock().free(self.address(), self.size);
    }
}

/// For constructors that have no error to return.
///
/// # Panics
///
/// With what was asked for and what to do.
pub(crate) fn expect<T>(result: Result<T, Error>) -> T {
    result.unwrap_or_else(|error| panic!("thiscpu: {error}"))
}
