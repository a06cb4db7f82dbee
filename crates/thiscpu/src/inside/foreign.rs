//! What the sections of code that is no Rust have to know: where the same things are that Rust's know.

use core::ptr::NonNull;
use core::sync::atomic::{
    AtomicI64, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, Release},
};

pub use crate::budget::{GATE_AT as BUDGET_GATE_AT, SCALE as BUDGET_SCALE};
pub use crate::counter::GATE_AT as COUNTER_GATE_AT;
pub use crate::ledger::Way as AccountWay;
pub use crate::slab::GATE_AND_KEY_AT as CACHE_GATE_AND_KEY_AT;

use crate::RawCache;
use crate::lanes::table::TABLE;
use crate::ledger::Account;
use crate::sys::rseq::{self, OFFSETS};
use crate::sys::tier;

/// Where sections find a thread's lane, for whoever has a symbol for it. `thiscpu_inline.h` declares the same.
#[derive(Debug)]
#[repr(C)]
pub struct Inside {
    /// The offsets of `cpu_id` and, in the upper half, of the index from the thread pointer: in one word, so that whoever loads it has both
    /// or neither. Where no section is to be entered they are those of an area that nobody registers, and sections leave at once. 0 before
    /// the first handle is there: sections then take the area below, whose address needs no thread to be known.
    offsets: AtomicU64,
    table: *const AtomicUsize,
    /// The offset from the thread pointer of a 32-bit word that is 0 as long as this thread's charges are to look into its lane first. Else a
    /// charge is one of `Account::charge`, which knows what to do.
    habit: AtomicI64,
    /// A gate that is never open, for who has a null handle.
    shut: usize,
    /// An area that nobody registers. Sections store to it, and nobody reads that.
    nobodys: [AtomicU32; 8],
}

// SAFETY: the table is static, and of atomics.
unsafe impl Sync for Inside {}

const UNKNOWN: u64 = 0;

impl Inside {
    /// Of which no section can be entered.
    pub const fn shut() -> Inside {
        let (offsets, habit) = (AtomicU64::new(UNKNOWN), AtomicI64::new(0));
        let mut nobodys = [const { AtomicU32::new(0) }; 8];
        nobodys[rseq::CPU_ID / 4] = AtomicU32::new(u32::MAX);
        Inside { offsets, table: TABLE.as_ptr(), habit, shut: 0, nobodys }
    }

    /// Once the tier is chosen: lets sections in if they can be entered, and keeps them out for ever if not.
    pub fn publish(&self) {
        if tier::chosen().is_none() {
            return;
        }
        let offsets = match OFFSETS.cpu_id() {
            0 => unregistered(),
            cpu_id => pack(cpu_id, OFFSETS.index()),
        };
        // Relaxed: known before `offsets` are.
        self.habit.store(rseq::habit_offset() as i64, Relaxed);
        // Release: whoever was handed something after this finds what was stored before it.
        let _ = self.offsets.compare_exchange(UNKNOWN, offsets, Release, Relaxed);
    }

    /// Keeps sections out for ever, if this is another copy of the library's: its lanes are others.
    pub fn keep_apart(&self) {
        if self.table != TABLE.as_ptr() {
            self.offsets.store(unregistered(), Relaxed);
        }
    }
}

/// Both offsets in a word; `UNKNOWN` if they are too far from the thread pointer, but no program has that much of static TLS.
fn pack(cpu_id: isize, index: isize) -> u64 {
    match (i32::try_from(cpu_id), i32::try_from(index)) {
        (Ok(cpu_id), Ok(index)) => u64::from(cpu_id as u32) | u64::from(index as u32) << 32,
        _ => UNKNOWN,
    }
}

/// The offsets of an area, each thread's own, that nobody registers.
fn unregistered() -> u64 {
    let cpu_id = rseq::unregistered_offset() + rseq::CPU_ID as isize;
    pack(cpu_id, cpu_id)
}

/// The object of an entry that was taken out of a lane of this cache, as its own `alloc` hands it out.
pub fn hand_out(cache: &RawCache, entry: usize) -> Option<NonNull<u8>> {
    cache.hand_out(entry)
}

/// What a charge of this account says to its section; the same as long as it is open.
pub fn way_of<const N: usize>(account: &Account<N>) -> AccountWay {
    account.way()
}
