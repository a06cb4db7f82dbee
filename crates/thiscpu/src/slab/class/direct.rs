//! Where near sections find a group's item: in a front, which is hidden while the gate is closed.
//!
//! See [`crate::lanes::direct`]. Each CPU shows the item to its own index, on a way that one of its calls took because it had not found it.

use super::group::{DirectUse, Group};
use crate::lanes::current;
use crate::lanes::direct::{DirectTable, MALLOC_TABLE};
use crate::section::TOP;
use crate::sys::atomic::Ordering::Relaxed;

impl Group {
    /// Lets the calling thread take the shortest ways from now on, if it may: for who has just taken another. Never waits.
    #[inline]
    pub fn enable_direct(&self) {
        current::enable_direct();
        if let Some((table, offset)) = self.table_and_offset()
            && !current::is_published(table)
        {
            self.publish_item(table, offset);
        }
    }

    /// Lets calls take the way by the front, or has all of them go another; who keeps them from it does not mind a few calls.
    pub fn set_direct_enabled(&self, is_enabled: bool) {
        let _guard = self.lock.lock();
        // Relaxed: the lock orders it.
        self.direct_disabled.store(!is_enabled, Relaxed);
        if !is_enabled {
            self.unpublish();
        }
    }

    /// Its front, if it has one, and how far into the item it leads.
    fn table_and_offset(&self) -> Option<(&DirectTable, usize)> {
        match self.direct_use {
            DirectUse::None => None,
            DirectUse::Own => Some((&self.direct_table, 0)),
            DirectUse::Malloc => Some((&MALLOC_TABLE, TOP)),
        }
    }

    /// Lets no section find the item in its front: for who closes the gate, before the fence.
    pub(super) fn unpublish(&self) {
        if let Some((table, _)) = self.table_and_offset() {
            table.clear();
        }
    }

    /// Lets the calling thread's sections find the item in its front. Where the lock is held, by who closes the gate or just does the same, that is
    /// left to the next call.
    #[cold]
    fn publish_item(&self, table: &DirectTable, offset: usize) {
        // First without the lock, because where it is not to be found there every call comes here.
        if self.publishable_item().is_none() {
            return;
        }
        let Some(_guard) = self.lock.try_lock() else { return };
        if let Some(item) = self.publishable_item() {
            current::publish(table, item + offset);
        }
    }

    /// What is to be found at the front, if anything is; for sure under the lock.
    fn publishable_item(&self) -> Option<usize> {
        let seen = self.gate.load();
        let may_publish = !seen.is_closed() && !self.direct_disabled.load(Relaxed);
        seen.item().filter(|_| may_publish)
    }
}
