//! A list of free cells or records, which any process pushes to and takes from.
//!
//! The head is the first item and a version, exchanged as one. Each item has a word that names the
//! next one. A process that stops between its loads and its exchange finds another version, unless
//! nothing has changed. A version has 64 bits, so none comes again.

use crate::sys::atomic::{AtomicU64, Ordering::Relaxed};
use crate::sys::double::Double;

/// The head of a list: its first item or 0, and its version.
#[derive(Debug)]
#[repr(transparent)]
pub(in crate::segment) struct FreeList(Double);

impl FreeList {
    /// Returns a list as zeroed memory is: empty.
    #[cfg(thiscpu_model)]
    pub(in crate::segment) const fn new() -> FreeList {
        FreeList(Double::new([0, 0]))
    }

    /// Takes an item, if there is one.
    ///
    /// `link` returns the word of an item that names the next one. If there is none, and the list
    /// has not changed, somebody has damaged it. Its items are not used any more.
    pub(in crate::segment) fn take<'a>(
        &self,
        link: impl Fn(u64) -> Option<&'a AtomicU64>,
    ) -> Option<u64> {
        loop {
            // Acquire: pairs with the exchange in `push`. So the link is that of the push, unless
            // the item was taken since; then the exchange below fails.
            let [first, version] = self.0.load();
            if first == 0 {
                return None;
            }
            let Some(link) = link(first) else {
                // Another process may have taken the item, and used its memory.
                if self.0.second() == version {
                    return None;
                }
                continue;
            };
            let next = link.load(Relaxed);
            // An acquire: the stores of the process that pushed the item precede those of this one.
            if self.0.exchange([first, version], [next, version.wrapping_add(1)]) {
                return Some(first);
            }
        }
    }

    /// Pushes an item that nobody else uses, whose link is a given word.
    pub(in crate::segment) fn push(&self, item: u64, link: &AtomicU64) {
        loop {
            let [first, version] = self.0.load();
            link.store(first, Relaxed);
            // A release: pairs with the loads in `take`.
            if self.0.exchange([first, version], [item, version.wrapping_add(1)]) {
                return;
            }
        }
    }

    /// Returns the version, which each change of the list changes.
    #[cfg(not(thiscpu_model))]
    pub(in crate::segment) fn version(&self) -> u64 {
        self.0.second()
    }

    /// Calls `each` with each item, until it returns false; at most `max` items.
    ///
    /// Others may change the list meanwhile, so the items are those of one moment only if the
    /// [`version`](Self::version) is the same before and after the call. Returns whether the list
    /// has an end.
    #[cfg(not(thiscpu_model))]
    pub(in crate::segment) fn for_each<'a>(
        &self,
        max: u64,
        link: impl Fn(u64) -> Option<&'a AtomicU64>,
        mut each: impl FnMut(u64),
    ) -> bool {
        let mut item = self.0.first();
        for _ in 0..max {
            if item == 0 {
                return true;
            }
            each(item);
            let Some(link) = link(item) else { return false };
            item = link.load(Relaxed);
        }
        item == 0
    }
}
