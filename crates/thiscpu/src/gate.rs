//! The gate: the word that sections and slow paths load to find an object's lanes.
//!
//! A slow path takes over an object's lanes by changing the gate and then fencing. Each section
//! loads the gate after it began, or a direct table that is cleared together with the gate (see
//! [`crate::lanes::direct`]). So after the fence, every section that saw the old gate has
//! committed, or restarts and sees the new one. This file has the first half of that protocol;
//! [`crate::section`] has the second half, and [`crate::sys::fence`] the fence.
//!
//! | bits of the word | meaning |
//! |---|---|
//! | 63 | open; while it is 0, every operation takes the slow path. See [`crate::lanes::table`] |
//! | 5 to 62 | the item's address in lane 0, or 0 before it has one |
//! | 4 | the active bank |

use crate::lanes::table::READY_BIT;
use crate::sys::atomic::{AtomicUsize, Ordering::SeqCst};

const OPEN: usize = READY_BIT;
/// The distance between an item's banks in bytes, and the gate's bit that tells them apart.
pub(crate) const BANK_BYTES: usize = 16;
/// The alignment of an item with a gate, in bytes.
pub(crate) const ITEM_ALIGN: usize = 2 * BANK_BYTES;

#[derive(Debug)]
pub(crate) struct Gate(AtomicUsize);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GateState(usize);

impl Gate {
    /// Returns a gate that is closed and has no item; bank 0 is active.
    pub(crate) const fn new() -> Self {
        Gate(AtomicUsize::new(0))
    }

    /// Returns the word itself, for sections.
    #[inline(always)]
    pub(crate) fn word(&self) -> &AtomicUsize {
        &self.0
    }

    #[inline]
    pub(crate) fn load(&self) -> GateState {
        // SeqCst: pairs with the store in `set`, which precedes the exchange that freezes a pair of
        // the shared lane. A thread that loaded a pair before this load, and sees the old gate, has
        // the pair from before it was frozen; so its exchange fails or comes first. It also pairs
        // with `set` for `lanes::table::in_use`.
        GateState(self.0.load(SeqCst))
    }

    /// Closes the gate and forgets the item. No other thread may use the object any more.
    pub(crate) fn close_forever(&self) {
        self.0.store(0, SeqCst);
    }

    /// Changes the gate. The caller holds the object's lock.
    pub(crate) fn set(&self, to: GateState) {
        // SeqCst: pairs with `load`, as said there.
        self.0.store(to.0, SeqCst);
    }
}

impl GateState {
    /// Returns whether every operation has to take the slow path.
    pub(crate) fn is_closed(self) -> bool {
        self.0 & OPEN == 0
    }

    pub(crate) fn bank(self) -> usize {
        self.0 / BANK_BYTES % 2
    }

    /// Returns the item's address in lane 0, if there is an item.
    pub(crate) fn item(self) -> Option<usize> {
        match self.0 & !OPEN & !(ITEM_ALIGN - 1) {
            0 => None,
            item => Some(item),
        }
    }

    /// Returns this state with the other bank active.
    pub(crate) fn flipped(self) -> Self {
        GateState(self.0 ^ BANK_BYTES)
    }

    pub(crate) fn closed(self) -> Self {
        GateState(self.0 & !OPEN)
    }

    /// Returns this state, open and leading to `item`.
    pub(crate) fn opened(self, item: usize) -> Self {
        debug_assert!(item != 0 && item.is_multiple_of(ITEM_ALIGN));
        GateState((self.0 & (ITEM_ALIGN - 1)) | item | OPEN)
    }
}
