//! Where near sections find a group's item: in a front, which is hidden while the gate is closed.
//!
//! See [`crate::lanes::direct`]. Each CPU shows the item to its own index, on a way that one of its calls took because it had not found it.

use super::group::{Group, Shown};
use crate::lanes::current;
use crate::lanes::direct::{DirectTable, MALLOC_TABLE};
use crate::section::TOP;
use crate::sys::atomic::Ordering::Relaxed;

impl Group {
    /// Lets the calling thread take the shortest ways from now on, if it may: for who has just taken another. Never waits.
    #[inline]
    pub fn come_near(&self) {
        current::enable_direct();
        if let Some((front, at)) = self.front_used()
            && !current::is_published(front)
        {
            self.come_to(front, at);
        }
    }

    /// Lets calls take the way by the front, or has all of them go another; who keeps them from it does not mind a few calls.
    pub fn keep_from_front(&self, is_kept: bool) {
        let _guard = self.lock.lock();
        // Relaxed: the lock orders it.
        self.is_kept_from_front.store(is_kept, Relaxed);
        if is_kept {
            self.hide();
        }
    }

    /// Its front, if it has one, and how far into the item it leads.
    fn front_used(&self) -> Option<(&DirectTable, usize)> {
        match self.shown {
            Shown::Nowhere => None,
            Shown::Near => Some((&self.front, 0)),
            Shown::AtFront => Some((&MALLOC_TABLE, TOP)),
        }
    }

    /// Lets no section find the item in its front: for who closes the gate, before the fence.
    pub(super) fn hide(&self) {
        if let Some((front, _)) = self.front_used() {
            front.clear();
        }
    }

    /// Lets the calling thread's sections find the item in its front. Where the lock is held, by who closes the gate or just does the same, that is
    /// left to the next call.
    #[cold]
    fn come_to(&self, front: &DirectTable, at: usize) {
        // First without the lock, because where it is not to be found there every call comes here.
        if self.item_for_front().is_none() {
            return;
        }
        let Some(_guard) = self.lock.try_lock() else { return };
        if let Some(item) = self.item_for_front() {
            current::publish(front, item + at);
        }
    }

    /// What is to be found at the front, if anything is; for sure under the lock.
    fn item_for_front(&self) -> Option<usize> {
        let seen = self.gate.load();
        let may_come = !seen.is_closed() && !self.is_kept_from_front.load(Relaxed);
        seen.item().filter(|_| may_come)
    }
}
