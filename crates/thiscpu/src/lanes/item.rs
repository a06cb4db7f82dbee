//! An item: zeroed memory of one size in each lane, given back when dropped.

use super::{region, table};
use crate::error::Error;
use crate::sys::tier;

#[derive(Debug)]
pub(crate) struct Item {
    address: usize,
    size: usize,
}

impl Item {
    pub(crate) fn try_new(size: usize, align: usize) -> Result<Item, Error> {
        tier::tier()?;
        Ok(Item { address: region::lock().allocate(size, align)?, size })
    }

    /// The item's address in lane 0.
    #[inline(always)]
    pub(crate) fn address(&self) -> usize {
        self.address
    }

    /// The item's address in each lane that can hold something, the slow lane first.
    pub(crate) fn in_all_lanes(&self) -> impl Iterator<Item = usize> + use<> {
        let address = self.address;
        (0..=table::in_use()).map(move |lane| address + lane * table::STRIDE)
    }
}

impl Drop for Item {
    fn drop(&mut self) {
        region::lock().free(self.address, self.size);
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
