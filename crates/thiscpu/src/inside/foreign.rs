//! What the sections of code that is no Rust have to know: where the same things are that Rust's know.

use core::ptr::NonNull;
use core::sync::atomic::{
    AtomicI64, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, Release},
};

pub use crate::budget::{GATE_AT as BUDGET_GATE_AT, SCALE as BUDGET_SCALE};
pub use crate::counter::GATE_AT as COUNTER_GATE_AT;
pub use crate::ledger::AccountSlot;
pub use crate::slab::GATE_AND_KEY_AT as CACHE_GATE_AND_KEY_AT;

use crate::RawCache;
use crate::lanes::table::TABLE;
use crate::ledger::Account;
use crate::sys::rseq::{self, OFFSETS};

/// Where sections find a thread's lane, for whoever has a symbol for it. `thiscpu_inline.h` declares the same.
///
/// It is that copy's of the library whose table it has. A program may have several, which as a rule share the variables and functions of one. But
/// linkers can be told to bind functions within each shared object and not variables (`-Bsymbolic-functions`): handles are in the lanes of
/// one copy then and sections in those of another, so that no section must be entered from then on.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Inside {
    /// The offsets of `cpu_id` and, in the upper half, of the index from the thread pointer: in one word, so that whoever loads it has both
    /// or neither. As long as no section is to be entered they are those of an area of each thread's that nobody registers, and sections
    /// leave at once. `UNKNOWN` before this copy of the library was started: sections then take the area below, which is all threads'.
    offsets: AtomicU64,
    table: *const AtomicUsize,
    /// The offset from the thread pointer of a 32-bit word that is 0 as long as this thread's charges are to look into its lane first. Else a
    /// charge is one of `Account::charge`, which knows what to do.
    habit: AtomicI64,
    /// A gate that is never open, for who has a null handle.
    shut: usize,
    /// The offset of `cpu_id` in an area that nobody registers, of this copy's; 0 before it was started.
    nobodys_cpu_id: AtomicI64,
    /// What follows is stored to, and not in the line of what is loaded.
    _rest: [u64; 3],
    /// An area that nobody registers. Sections store to it, and nobody reads that.
    nobodys: [AtomicU32; 8],
}

// As `struct thiscpu_inside` has them.
const _: () = {
    use core::mem::offset_of;
    assert!(offset_of!(Inside, offsets) == 0 && offset_of!(Inside, table) == 8);
    assert!(offset_of!(Inside, habit) == 16 && offset_of!(Inside, shut) == 24);
    assert!(offset_of!(Inside, nobodys) == 64);
};

// SAFETY: the table is static, and of atomics.
unsafe impl Sync for Inside {}

const UNKNOWN: u64 = 0;

/// Offsets by which no section gets anywhere, until others are published: of an area that nobody registers, where `cpu_id` is that far from
/// the thread pointer, or not known to be if that is 0.
fn waiting(cpu_id: isize) -> u64 {
    pack(cpu_id, cpu_id)
}

/// The same for ever. What is taken for the index is never looked at, and only has to be readable.
fn apart(cpu_id: isize) -> u64 {
    pack(cpu_id, cpu_id + 1)
}

/// Both offsets in a word; `UNKNOWN` if they are too far from the thread pointer, but no program has that much of static TLS.
fn pack(cpu_id: isize, index: isize) -> u64 {
    match (i32::try_from(cpu_id), i32::try_from(index)) {
        (Ok(cpu_id), Ok(index)) => u64::from(cpu_id as u32) | u64::from(index as u32) << 32,
        _ => UNKNOWN,
    }
}

impl Inside {
    /// Of which no section can be entered.
    pub const fn shut() -> Inside {
        let mut nobodys = [const { AtomicU32::new(0) }; 8];
        nobodys[rseq::CPU_ID / 4] = AtomicU32::new(u32::MAX);
        Inside {
            offsets: AtomicU64::new(UNKNOWN),
            table: TABLE.as_ptr(),
            habit: AtomicI64::new(0),
            shut: 0,
            nobodys_cpu_id: AtomicI64::new(0),
            _rest: [0; 3],
            nobodys,
        }
    }

    /// When a copy of the library is started, with the one that its inlined calls use, its own or another's, and the
    /// [`table`](Self::own_table) of the copy whose functions they call.
    pub fn start(&self, of_functions: *const AtomicUsize) {
        if self.table == of_functions && self.table != TABLE.as_ptr() {
            return;
        }
        if self.table == of_functions {
            let cpu_id = rseq::unregistered_offset() + rseq::CPU_ID as isize;
            self.nobodys_cpu_id.store(cpu_id as i64, Relaxed);
            self.change(|now| match now {
                UNKNOWN => Some(waiting(cpu_id)),
                now if now == apart(0) => Some(apart(cpu_id)),
                _ => None,
            });
        } else {
            let cpu_id = self.nobodys_cpu_id.load(Relaxed) as isize;
            self.change(|_| Some(apart(cpu_id)));
        }
    }

    /// What tells copies of the library apart.
    pub fn own_table() -> *const AtomicUsize {
        TABLE.as_ptr()
    }

    /// Lets sections in, if they can be entered by now.
    pub fn publish(&self) {
        let cpu_id = OFFSETS.cpu_id();
        let offsets = pack(cpu_id, OFFSETS.index());
        // The line is loaded by every call: nothing is stored to it in vain.
        let is_known = self.offsets.load(Relaxed) == offsets;
        if cpu_id == 0 || is_known || self.table != TABLE.as_ptr() {
            return;
        }
        // Relaxed: known before `offsets` are.
        self.habit.store(rseq::habit_offset() as i64, Relaxed);
        let nobodys = self.nobodys_cpu_id.load(Relaxed) as isize;
        self.change(|now| (now == UNKNOWN || now == waiting(nobodys)).then_some(offsets));
    }

    fn change(&self, to: impl FnMut(u64) -> Option<u64>) {
        // Release: whoever was handed something after this finds what was stored before it.
        let _ = self.offsets.fetch_update(Release, Relaxed, to);
    }
}

/// The object of an entry that was taken out of a lane of this cache, as its own `alloc` hands it out.
pub fn hand_out(cache: &RawCache, entry: usize) -> Option<NonNull<u8>> {
    cache.hand_out(entry)
}

/// What a charge of this account says to its section; the same as long as it is open.
pub fn slot_of<const N: usize>(account: &Account<N>) -> AccountSlot {
    account.slot()
}

#[cfg(test)]
mod tests {
    use super::*;

    static OTHER: [AtomicUsize; 1] = [AtomicUsize::new(0)];

    fn offsets(inside: &Inside) -> u64 {
        inside.offsets.load(Relaxed)
    }

    fn nobodys() -> isize {
        rseq::unregistered_offset() + rseq::CPU_ID as isize
    }

    #[test]
    fn sections_are_let_in_once_they_can_be_entered() {
        let inside = Inside::shut();
        inside.start(Inside::own_table());
        assert_eq!(offsets(&inside), waiting(nobodys()));
        // In a process in which nobody has used the library, and then somebody has.
        inside.publish();
        let tier = crate::tier().expect("a tier");
        inside.publish();
        let are_in = tier != crate::Tier::Atomic;
        assert_eq!(offsets(&inside) != waiting(nobodys()), are_in, "{inside:?}");
    }

    #[test]
    fn nobody_is_let_in_where_functions_and_variables_are_of_two_copies() {
        crate::tier().expect("a tier");
        let others = || Inside { table: OTHER.as_ptr(), ..Inside::shut() };
        // Its own copy was started before, or will be.
        for known in [0, 4000] {
            let inside = others();
            inside.nobodys_cpu_id.store(known, Relaxed);
            inside.start(Inside::own_table());
            inside.publish();
            assert_eq!(offsets(&inside), apart(known as isize));
        }
        // All of the other's: nothing is wrong, and nothing of this copy's is in it.
        let inside = others();
        inside.start(OTHER.as_ptr());
        inside.publish();
        assert_eq!(offsets(&inside), UNKNOWN);
        // Its own, whose functions another copy has used.
        let inside = Inside::shut();
        inside.offsets.store(apart(0), Relaxed);
        inside.start(Inside::own_table());
        inside.publish();
        assert_eq!(offsets(&inside), apart(nobodys()));
    }
}
