//! What the sections of code that is no Rust have to know: where the same things are that Rust's know.

use core::ptr::NonNull;
use core::sync::atomic::{
    AtomicI64, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, Release},
};

pub use crate::budget::{GATE_AT as BUDGET_GATE_AT, SCALE as BUDGET_SCALE};
pub use crate::counter::GATE_AT as COUNTER_GATE_AT;
pub use crate::ledger::Way as AccountWay;
pub use crate::slab::GATE_AND_KEY_AT as CACHE_GATE_AND_KEY_AT;

use crate::lanes::table::TABLE;
use crate::ledger::Account;
use crate::sys::rseq::{self, OFFSETS};
use crate::{PerCpu, RawCache, Word};

/// Where sections find a thread's lane, for whoever has a symbol for it. `thiscpu_inline.h` declares the same.
#[derive(Debug)]
#[repr(C)]
pub struct Inside {
    /// The offsets of the rseq area and, in the upper half, of the index from the thread pointer: in one word, so that whoever loads it
    /// has both or neither. No section can be entered if the first is 0.
    offsets: AtomicU64,
    table: *const AtomicUsize,
    /// The offset from the thread pointer of a 32-bit word that is 0 as long as this thread's charges are to look into its lane first. Else a
    /// charge is one of `Account::charge`, which knows what to do.
    habit: AtomicI64,
}

// SAFETY: the table is static, and of atomics.
unsafe impl Sync for Inside {}

const UNKNOWN: u64 = 0;
/// No section is to be entered, ever.
const NEVER: u64 = 1 << 32;

impl Inside {
    /// Of which no section can be entered.
    pub const fn shut() -> Inside {
        let (offsets, habit) = (AtomicU64::new(UNKNOWN), AtomicI64::new(0));
        Inside { offsets, table: TABLE.as_ptr(), habit }
    }

    /// Lets sections in, if they can be entered by now.
    pub fn publish(&self) {
        let area = OFFSETS.area();
        // No program has that much of static TLS.
        let (Ok(area), Ok(index)) = (i32::try_from(area), i32::try_from(OFFSETS.index())) else {
            return;
        };
        if area != 0 {
            let offsets = u64::from(area as u32) | u64::from(index as u32) << 32;
            // Relaxed: known before `offsets` are.
            self.habit.store(rseq::habit_offset() as i64, Relaxed);
            // Release: whoever was handed something after this finds what was stored before it.
            let _ = self.offsets.compare_exchange(UNKNOWN, offsets, Release, Relaxed);
        }
    }

    /// Keeps sections out for ever, if this is another copy of the library's: its lanes are others.
    pub fn keep_apart(&self) {
        if self.table != TABLE.as_ptr() {
            self.offsets.store(NEVER, Relaxed);
        }
    }
}

/// The address of a word in lane 0.
pub fn item_of<T: Word>(word: &PerCpu<T>) -> usize {
    word.item()
}

/// The object of an entry that was taken out of a lane of this cache, as its own `alloc` hands it out.
pub fn hand_out(cache: &RawCache, entry: usize) -> Option<NonNull<u8>> {
    cache.hand_out(entry)
}

/// What a charge of this account says to its section; the same as long as it is open.
pub fn way_of<const N: usize>(account: &Account<N>) -> AccountWay {
    account.way()
}
