//! What the sections of code that is no Rust have to know: where the same things are that Rust's know.

use core::ptr::NonNull;
use core::sync::atomic::AtomicUsize;

pub use crate::budget::{GATE_AT as BUDGET_GATE_AT, SCALE as BUDGET_SCALE};
pub use crate::counter::GATE_AT as COUNTER_GATE_AT;
pub use crate::ledger::Way as AccountWay;
pub use crate::slab::GATE_AND_KEY_AT as CACHE_GATE_AND_KEY_AT;

use crate::lanes::table::TABLE;
use crate::ledger::Account;
use crate::sys::rseq::{self, OFFSETS};
use crate::{PerCpu, RawCache, Word};

/// The lane table.
pub const fn table() -> *const AtomicUsize {
    TABLE.as_ptr()
}

/// The offsets of the rseq area and of the index from the thread pointer; zeros as long as no section can be entered.
pub fn offsets() -> [isize; 2] {
    match OFFSETS.area() {
        0 => [0, 0],
        area => [area, OFFSETS.index()],
    }
}

/// The offset from the thread pointer of a 32-bit word that is 0 as long as this thread's charges are to look into its lane first. Else a charge
/// is one of `Account::charge`, which knows what to do.
pub fn habit_offset() -> isize {
    rseq::habit_offset()
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
