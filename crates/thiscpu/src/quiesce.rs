//! The gate: the word that sections and slow paths load to find an object's lanes.
//!
//! A slow path comes to own lanes by changing the gate and then fencing: each section loads the
//! gate after it began (or what is cleared with it, see [`crate::lanes::front`]), so once the fence
//! is through, every section that saw the old gate has committed or restarts and sees the new one. What is written here is the start half of that
//! protocol; the end half is in [`crate::section`], and the fence in [`crate::sys::fence`].
//!
//! | bits of the word | meaning |
//! |---|---|
//! | 63 | open; else every op takes the slow path. See [`crate::lanes::table`] |
//! | 5 to 62 | the item's address in lane 0, 0 if it has none yet |
//! | 4 | the active bank |

use crate::lanes::table::HALF;
use crate::sys::atomic::{AtomicUsize, Ordering::SeqCst};

const OPEN: usize = HALF;
/// The distance between an item's banks, in bytes, and the bit that tells them apart.
pub(crate) const BANK_BYTES: usize = 16;
/// What an item with a gate is aligned to.
pub(crate) const ITEM_ALIGN: usize = 2 * BANK_BYTES;

#[derive(Debug)]
pub(crate) struct Gate(AtomicUsize);

/// What a gate held when it was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen(usize);

impl Gate {
    /// Closed, with no item, bank 0 active.
    pub(crate) const fn new() -> Self {
        Gate(AtomicUsize::new(0))
    }

    /// The word, for sections.
    #[inline(always)]
    pub(crate) fn word(&self) -> &AtomicUsize {
        &self.0
    }

    /// SeqCst: pairs with `turn`, which comes before the exchange that freezes a pair. Who has loaded a
    /// pair before this and sees the old gate has loaded the pair from before it was frozen, so its
    /// exchange fails or comes first. And see `lanes::table::in_use`.
    #[inline]
    pub(crate) fn look(&self) -> Seen {
        Seen(self.0.load(SeqCst))
    }

    /// Closes it, and leads nowhere from then on. Only when nobody uses the object any more.
    pub(crate) fn close_for_good(&self) {
        self.0.store(0, SeqCst);
    }

    /// Changes the gate. Only the holder of the object's lock does.
    pub(crate) fn turn(&self, to: Seen) {
        self.0.store(to.0, SeqCst);
    }
}

impl Seen {
    pub(crate) fn is_closed(self) -> bool {
        self.0 & OPEN == 0
    }

    pub(crate) fn bank(self) -> usize {
        self.0 / BANK_BYTES % 2
    }

    /// The item's address in lane 0, if there is one.
    pub(crate) fn item(self) -> Option<usize> {
        match self.0 & !OPEN & !(ITEM_ALIGN - 1) {
            0 => None,
            item => Some(item),
        }
    }

    pub(crate) fn flipped(self) -> Self {
        Seen(self.0 ^ BANK_BYTES)
    }

    pub(crate) fn closed(self) -> Self {
        Seen(self.0 & !OPEN)
    }

    pub(crate) fn opened(self, item: usize) -> Self {
        debug_assert!(item != 0 && item.is_multiple_of(ITEM_ALIGN));
        Seen((self.0 & (ITEM_ALIGN - 1)) | item | OPEN)
    }
}
