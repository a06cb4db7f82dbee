//! Recovery after a fork in the middle of a change.
//!
//! The contents of columns and the bits of slots in use say which memory belongs to items. Each of
//! them changes by one store. All counts, masks and lists follow from them.

use super::Heap;
use super::header::{Content, Header, columns};

impl Heap {
    /// Computes all counts, masks and lists. The caller holds the lock.
    ///
    /// A slot whose item was being allocated or freed may stay in use.
    pub(super) fn recover(&self) {
        self.slots.clear();
        self.free.clear();
        self.regions().for_each(|region| self.recover_region(region));
    }

    fn recover_region(&self, region: &'static Header) {
        (0..columns()).for_each(|at| region.column(at).links().reset());
        let (mut free, mut emptied, mut at) = (0, 0, 0);
        while at < columns() {
            let column = region.column(at);
            at += match column.content() {
                Content::Run(count) => count,
                Content::Slots(grains) if self.slots.recover(column, grains) > 0 => 1,
                content => {
                    if content != Content::None {
                        emptied |= 1 << at;
                        column.set_content(Content::None);
                    }
                    free |= 1 << at;
                    1
                }
            };
        }
        self.free.recover(region, free, emptied);
    }
}
