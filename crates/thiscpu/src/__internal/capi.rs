//! What the sections of code that is no Rust have to know: where the same things are that Rust's know.

use core::any::Any;
use core::ptr::NonNull;
use core::sync::atomic::{
    AtomicI64, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, Release},
};

pub use crate::budget::{GATE_AT as BUDGET_GATE_AT, SCALE as BUDGET_SCALE};
pub use crate::counter::GATE_AT as COUNTER_GATE_AT;
pub use crate::ledger::AccountSlot;
pub use crate::slab::GATE_AND_KEY_OFFSETS as CACHE_GATE_AND_KEY_OFFSETS;

use crate::RawCache;
use crate::budget::OVER_RELEASED;
use crate::lanes::table::TABLE;
use crate::ledger::{Account, NO_MEMORY};
use crate::sys::fence::FENCE_DENIED;
use crate::sys::rseq::{self, OFFSETS};

/// Where sections find a thread's lane, for whoever has a symbol for it. `thiscpu_inline.h` declares the same.
///
/// It is that copy's of the library whose table it has. A program may have several, which as a rule share the variables and functions of one. But
/// linkers can be told to bind functions within each shared object and not variables (`-Bsymbolic-functions`): handles are in the lanes of
/// one copy then and sections in those of another, so that no section must be entered from then on.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct InlineAbi {
    /// The offsets of `cpu_id` and, in the upper half, of the index from the thread pointer: in one word, so that whoever loads it has both
    /// or neither. As long as no section is to be entered they are those of an area of each thread's that nobody registers, and sections
    /// leave at once. `UNKNOWN` before this copy of the library was started: sections then take the area below, which is all threads'.
    offsets: AtomicU64,
    table: *const AtomicUsize,
    /// The offset from the thread pointer of a 32-bit word that is 0 as long as this thread's charges are to look into its lane first. Else a
    /// charge is one of `Account::charge`, which knows what to do.
    bypass: AtomicI64,
    /// A gate that is never open, for who has a null handle.
    closed_gate: usize,
    /// The offset of `cpu_id` in an area that nobody registers, of this copy's; 0 before it was started.
    unregistered_cpu_id: AtomicI64,
    /// What follows is stored to, and not in the line of what is loaded.
    _rest: [u64; 3],
    /// An area that nobody registers. Sections store to it, and nobody reads that.
    unregistered: [AtomicU32; 8],
}

// As `struct thiscpu_inline_abi` has them.
const _: () = {
    use core::mem::offset_of;
    assert!(offset_of!(InlineAbi, offsets) == 0 && offset_of!(InlineAbi, table) == 8);
    assert!(offset_of!(InlineAbi, bypass) == 16 && offset_of!(InlineAbi, closed_gate) == 24);
    assert!(offset_of!(InlineAbi, unregistered) == 64);
};

// SAFETY: the table is static, and of atomics.
unsafe impl Sync for InlineAbi {}

const UNKNOWN: u64 = 0;

/// Offsets by which no section gets anywhere, until others are published: of an area that nobody registers, where `cpu_id` is that far from
/// the thread pointer, or not known to be if that is 0.
fn pending(cpu_id: isize) -> u64 {
    pack(cpu_id, cpu_id)
}

/// The same for ever. What is taken for the index is never looked at, and only has to be readable.
fn disabled(cpu_id: isize) -> u64 {
    pack(cpu_id, cpu_id + 1)
}

/// Both offsets in a word; `UNKNOWN` if they are too far from the thread pointer, but no program has that much of static TLS.
fn pack(cpu_id: isize, index: isize) -> u64 {
    match (i32::try_from(cpu_id), i32::try_from(index)) {
        (Ok(cpu_id), Ok(index)) => u64::from(cpu_id as u32) | u64::from(index as u32) << 32,
        _ => UNKNOWN,
    }
}

impl InlineAbi {
    /// Of which no section can be entered.
    pub const fn closed() -> InlineAbi {
        let mut unregistered = [const { AtomicU32::new(0) }; 8];
        unregistered[rseq::CPU_ID / 4] = AtomicU32::new(u32::MAX);
        InlineAbi {
            offsets: AtomicU64::new(UNKNOWN),
            table: TABLE.as_ptr(),
            bypass: AtomicI64::new(0),
            closed_gate: 0,
            unregistered_cpu_id: AtomicI64::new(0),
            _rest: [0; 3],
            unregistered,
        }
    }

    /// When a copy of the library is started, with the one that its inlined calls use, its own or another's, and the
    /// [`table`](Self::own_table) of the copy whose functions they call.
    pub fn start(&self, table_of_functions: *const AtomicUsize) {
        if self.table == table_of_functions && self.table != TABLE.as_ptr() {
            return;
        }
        if self.table == table_of_functions {
            let cpu_id = rseq::unregistered_offset() + rseq::CPU_ID as isize;
            self.unregistered_cpu_id.store(cpu_id as i64, Relaxed);
            self.change(|now| match now {
                UNKNOWN => Some(pending(cpu_id)),
                now if now == disabled(0) => Some(disabled(cpu_id)),
                _ => None,
            });
        } else {
            let cpu_id = self.unregistered_cpu_id.load(Relaxed) as isize;
            self.change(|_| Some(disabled(cpu_id)));
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
        self.bypass.store(rseq::bypass_offset() as i64, Relaxed);
        let unregistered = self.unregistered_cpu_id.load(Relaxed) as isize;
        self.change(|now| (now == UNKNOWN || now == pending(unregistered)).then_some(offsets));
    }

    fn change(&self, to: impl FnMut(u64) -> Option<u64>) {
        // Release: whoever was handed something after this finds what was stored before it.
        let _ = self.offsets.fetch_update(Release, Relaxed, to);
    }
}

/// Why a function of this library panicked, for callers that turn panics into status codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PanicReason {
    /// No fence is possible any more.
    FenceDenied,
    /// More units were released to a budget than were held.
    OverReleased,
    /// The system gave no memory for accounts.
    NoMemory,
    /// Anything else, which is a bug of this library.
    Other,
}

impl PanicReason {
    /// Returns the reason for a panic, from the payload that `catch_unwind` returned.
    pub fn of(payload: &(dyn Any + Send)) -> PanicReason {
        let message = match payload.downcast_ref::<String>() {
            Some(message) => message,
            None => payload.downcast_ref::<&str>().copied().unwrap_or_default(),
        };
        match () {
            () if message.starts_with(FENCE_DENIED) => PanicReason::FenceDenied,
            () if message.starts_with(OVER_RELEASED) => PanicReason::OverReleased,
            () if message.starts_with(NO_MEMORY) => PanicReason::NoMemory,
            () => PanicReason::Other,
        }
    }
}

/// The object of an entry that was taken out of a lane of this cache, as its own `alloc` hands it out.
pub fn finish_alloc(cache: &RawCache, entry: usize) -> Option<NonNull<u8>> {
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

    fn offsets(abi: &InlineAbi) -> u64 {
        abi.offsets.load(Relaxed)
    }

    fn unregistered() -> isize {
        rseq::unregistered_offset() + rseq::CPU_ID as isize
    }

    #[test]
    fn sections_enabled_once_they_can_be_entered() {
        let abi = InlineAbi::closed();
        abi.start(InlineAbi::own_table());
        assert_eq!(offsets(&abi), pending(unregistered()));
        // In a process in which nobody has used the library, and then somebody has.
        abi.publish();
        let tier = crate::tier().expect("a tier");
        abi.publish();
        let are_in = tier != crate::Tier::Atomic;
        assert_eq!(offsets(&abi) != pending(unregistered()), are_in, "{abi:?}");
    }

    #[test]
    fn sections_disabled_when_functions_and_data_bind_to_different_copies() {
        crate::tier().expect("a tier");
        let others = || InlineAbi { table: OTHER.as_ptr(), ..InlineAbi::closed() };
        // Its own copy was started before, or will be.
        for known in [0, 4000] {
            let abi = others();
            abi.unregistered_cpu_id.store(known, Relaxed);
            abi.start(InlineAbi::own_table());
            abi.publish();
            assert_eq!(offsets(&abi), disabled(known as isize));
        }
        // All of the other's: nothing is wrong, and nothing of this copy's is in it.
        let abi = others();
        abi.start(OTHER.as_ptr());
        abi.publish();
        assert_eq!(offsets(&abi), UNKNOWN);
        // Its own, whose functions another copy has used.
        let abi = InlineAbi::closed();
        abi.offsets.store(disabled(0), Relaxed);
        abi.start(InlineAbi::own_table());
        abi.publish();
        assert_eq!(offsets(&abi), disabled(unregistered()));
    }
}
