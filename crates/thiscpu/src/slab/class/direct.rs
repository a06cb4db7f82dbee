//! The direct table of a group: where direct sections find the group's item without the gate.
//!
//! See [`crate::lanes::direct`]. A table has an entry for each lane index. A thread publishes the
//! item to its own index, in a call that did not find it there. Closing the gate clears the table.

use super::group::{DirectUse, Group};
use crate::lanes::current;
use crate::lanes::direct::{DirectTable, MALLOC_TABLE};
use crate::section::TOP_OFFSET;
use crate::sys::atomic::Ordering::Relaxed;

impl Group {
    /// Enables the direct path for the calling thread, if it may use it; never blocks.
    ///
    /// Slower paths call this, so that the thread's next call may be faster.
    #[inline]
    pub fn enable_direct(&self) {
        current::enable_direct();
        if let Some((table, offset)) = self.table_and_offset()
            && !current::is_published(table)
        {
            self.publish_item(table, offset);
        }
    }

    /// Enables or disables the direct path of this group, for all threads.
    ///
    /// Calls that have begun may still use the direct path after this returns.
    pub fn set_direct_enabled(&self, is_enabled: bool) {
        let _guard = self.lock.lock();
        // Relaxed: the lock orders it.
        self.direct_disabled.store(!is_enabled, Relaxed);
        if !is_enabled {
            self.unpublish();
        }
    }

    /// Returns the table, if the group uses one, and the offset into the item that it leads to.
    fn table_and_offset(&self) -> Option<(&DirectTable, usize)> {
        match self.direct_use {
            DirectUse::None => None,
            DirectUse::Own => Some((&self.direct_table, 0)),
            DirectUse::Malloc => Some((&MALLOC_TABLE.items, TOP_OFFSET)),
        }
    }

    /// Clears the group's table. A thread that closes the gate calls this before the fence.
    pub(super) fn unpublish(&self) {
        if let Some((table, _)) = self.table_and_offset() {
            table.clear();
        }
    }

    /// Publishes the item to the calling thread's index, if no thread has the lock.
    ///
    /// A holder of the lock closes the gate or publishes the item. The next call then tries again.
    #[cold]
    fn publish_item(&self, table: &DirectTable, offset: usize) {
        // Checked without the lock first, because every call comes here while nothing is published.
        if self.publishable_item().is_none() {
            return;
        }
        let Some(_guard) = self.lock.try_lock() else { return };
        if let Some(item) = self.publishable_item() {
            current::publish(table, item + offset);
        }
    }

    /// Returns the item if it may be published; an estimate without the lock.
    fn publishable_item(&self) -> Option<usize> {
        let seen = self.gate.load();
        let may_publish = !seen.is_closed() && !self.direct_disabled.load(Relaxed);
        seen.item().filter(|_| may_publish)
    }
}
