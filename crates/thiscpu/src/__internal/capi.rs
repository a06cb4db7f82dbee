//! What `thiscpu-capi` needs: layouts for sections in C, reasons for panics, texts.

use core::ffi::CStr;
use core::ptr::NonNull;
use core::sync::atomic::{
    AtomicI64, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, Release},
};

pub use crate::budget::{GATE_AT as BUDGET_GATE_AT, SCALE as BUDGET_SCALE};
pub use crate::counter::{DynCounters, GATE_AT as COUNTER_GATE_AT, try_sum_all};
pub use crate::lanes::region::handles;
pub use crate::ledger::AccountSlot;
#[cfg(not(thiscpu_model))]
pub use crate::segment::{DynCountersView, DynSharedCounters, can_merge};
pub use crate::slab::{GATE_AND_KEY_OFFSETS as CACHE_GATE_AND_KEY_OFFSETS, RawConstructedCache};
pub use crate::sys::panic_reason::PanicReason;

use crate::DegradationKind;
use crate::RawCache;
use crate::lanes::table::TABLE;
use crate::ledger::Account;
use crate::sys::rseq::{self, OFFSETS};

/// The variable from which inlined calls in C learn where the calling thread's lane is.
///
/// `thiscpu_inline.h` declares a structure of the same layout.
///
/// The variable belongs to the copy of the library whose table it holds. A process may load several
/// copies, which usually share the variables and functions of one. But a linker may bind functions
/// within each shared object and variables to another one (`-Bsymbolic-functions`). Handles are
/// then in the lanes of one copy and sections in those of another, so no section may commit any
/// more.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct InlineAbi {
    /// Offsets from the thread pointer: of `cpu_id`, and in the upper half of the index.
    ///
    /// Both are in one word, so that a load gets both or neither. While no section may commit, they
    /// are those of an area in each thread's TLS that is never registered, so that sections leave
    /// at once. Until this copy of the library has started they are `UNKNOWN`; sections then use
    /// the field `unregistered`, which all threads share.
    offsets: AtomicU64,
    table: *const AtomicUsize,
    /// The offset from the thread pointer of a 32-bit word; not 0 if charges bypass the lane.
    ///
    /// A charge then calls `Account::charge`, which handles the bypass.
    bypass: AtomicI64,
    /// A gate that is always closed, for null handles.
    closed_gate: usize,
    /// The offset of the vfork word from the thread pointer, once sections may commit.
    ///
    /// Compilers may load this field long before `offsets`, because C declares it constant. So it
    /// leads to a word that keeps every thread out of lanes before that. Until this copy of the
    /// library has started it is [`POINTER_HALF`].
    vfork_word: AtomicI64,
    /// The offset of `cpu_id` in this copy's unregistered area in TLS; 0 until it has started.
    unregistered_cpu_id: AtomicI64,
    /// Padding: sections store to the next field, which must not share a line with the others.
    _rest: [u64; 2],
    /// An rseq area that is never registered. Sections store to it; its content is never used.
    unregistered: [AtomicU32; 8],
}

// The offsets of `struct thiscpu_inline_abi` in thiscpu_inline.h.
const _: () = {
    use core::mem::offset_of;
    assert!(offset_of!(InlineAbi, offsets) == 0 && offset_of!(InlineAbi, table) == 8);
    assert!(offset_of!(InlineAbi, bypass) == 16 && offset_of!(InlineAbi, closed_gate) == 24);
    assert!(offset_of!(InlineAbi, vfork_word) == 32 && offset_of!(InlineAbi, unregistered) == 64);
};

// SAFETY: the pointer leads to a static table of atomics. All other fields are atomics or constant.
unsafe impl Sync for InlineAbi {}

const UNKNOWN: u64 = 0;

/// The offset of a word that is not negative: the upper half of a pointer.
///
/// The thread pointer leads to its own value (x86-64), or to a pointer or zeros (AArch64). Sections
/// leave if `cpu_id` is less, and `unregistered` has a `cpu_id` of -1.
const POINTER_HALF: i64 = 4;

/// Returns offsets with which no section commits, until others are published.
///
/// `cpu_id` is the offset of that field in the area that is never registered; 0 if it is unknown.
fn pending(cpu_id: isize) -> u64 {
    pack(cpu_id, cpu_id)
}

/// Returns offsets with which no section ever commits.
///
/// They differ from `pending` in the index, which sections load but do not use: its address only
/// has to be readable.
fn disabled(cpu_id: isize) -> u64 {
    pack(cpu_id, cpu_id + 1)
}

/// Packs both offsets into a word; `UNKNOWN` if one exceeds 32 bits, as no static TLS does.
fn pack(cpu_id: isize, index: isize) -> u64 {
    match (i32::try_from(cpu_id), i32::try_from(index)) {
        (Ok(cpu_id), Ok(index)) => u64::from(cpu_id as u32) | u64::from(index as u32) << 32,
        _ => UNKNOWN,
    }
}

impl InlineAbi {
    /// Returns a variable with which no section commits.
    pub const fn closed() -> InlineAbi {
        let mut unregistered = [const { AtomicU32::new(0) }; 8];
        unregistered[rseq::CPU_ID / 4] = AtomicU32::new(u32::MAX);
        InlineAbi {
            offsets: AtomicU64::new(UNKNOWN),
            table: TABLE.as_ptr(),
            bypass: AtomicI64::new(0),
            closed_gate: 0,
            vfork_word: AtomicI64::new(POINTER_HALF),
            unregistered_cpu_id: AtomicI64::new(0),
            _rest: [0; 2],
            unregistered,
        }
    }

    /// Prepares the variable when a copy of the library is loaded.
    ///
    /// `self` is the variable that this copy's symbol is bound to, which may be another copy's.
    /// `table_of_functions` is the [`own_table`](Self::own_table) of the copy that its functions
    /// are bound to. If these are different copies, sections are disabled.
    pub fn start(&self, table_of_functions: *const AtomicUsize) {
        if self.table == table_of_functions && self.table != TABLE.as_ptr() {
            return;
        }
        if self.table == table_of_functions {
            let cpu_id = rseq::unregistered_offset() + rseq::CPU_ID as isize;
            self.unregistered_cpu_id.store(cpu_id as i64, Relaxed);
            let no_lane = rseq::no_lane_offset() as i64;
            // Fails if another copy's start-up has run this before, and offsets are published.
            let _ = self.vfork_word.compare_exchange(POINTER_HALF, no_lane, Relaxed, Relaxed);
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

    /// Returns an address that identifies this copy of the library.
    pub fn own_table() -> *const AtomicUsize {
        TABLE.as_ptr()
    }

    /// Enables sections, once the process knows where lanes are.
    pub fn publish(&self) {
        let cpu_id = OFFSETS.cpu_id();
        let offsets = pack(cpu_id, OFFSETS.index());
        // Every inlined call loads this cache line, so this avoids stores that change nothing.
        let is_known = self.offsets.load(Relaxed) == offsets;
        if cpu_id == 0 || is_known || self.table != TABLE.as_ptr() {
            return;
        }
        // Relaxed: the Release in `change` orders these stores before that of `offsets`.
        self.bypass.store(rseq::bypass_offset() as i64, Relaxed);
        self.vfork_word.store(OFFSETS.vfork() as i64, Relaxed);
        let unregistered = self.unregistered_cpu_id.load(Relaxed) as isize;
        self.change(|now| (now == UNKNOWN || now == pending(unregistered)).then_some(offsets));
    }

    fn change(&self, to: impl FnMut(u64) -> Option<u64>) {
        // Release: a thread that gets a handle after this finds the stores before it. It pairs with
        // the program's own synchronization, by which the handle is passed on.
        let _ = self.offsets.fetch_update(Release, Relaxed, to);
    }
}

/// Returns the object of an encoded pointer that a section has popped from the cache's lane.
///
/// Reports a write after free and aborts, if the object's free mark is wrong.
pub fn finish_alloc(cache: &RawCache, encoded: usize) -> Option<NonNull<u8>> {
    cache.hand_out(encoded)
}

/// Returns the operands of an account's charge section, which are constant while it is open.
pub fn slot_of<const N: usize>(account: &Account<N>) -> AccountSlot {
    account.slot()
}

/// Returns the name and the reason of a degradation.
pub fn degradation_texts(kind: DegradationKind) -> (&'static CStr, &'static CStr) {
    kind.texts()
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
        // Before the first use of the library in this process, and after it.
        abi.publish();
        let tier = crate::tier().expect("a tier");
        abi.publish();
        let is_enabled = tier != crate::Tier::Atomic;
        assert_eq!(offsets(&abi) != pending(unregistered()), is_enabled, "{abi:?}");
    }

    #[test]
    fn sections_disabled_when_functions_and_data_bind_to_different_copies() {
        crate::tier().expect("a tier");
        let others = || InlineAbi { table: OTHER.as_ptr(), ..InlineAbi::closed() };
        // The variable's own copy has started (4000), or has not (0).
        for known in [0, 4000] {
            let abi = others();
            abi.unregistered_cpu_id.store(known, Relaxed);
            abi.start(InlineAbi::own_table());
            abi.publish();
            assert_eq!(offsets(&abi), disabled(known as isize));
        }
        // Variable and functions are the other copy's: this copy changes nothing.
        let abi = others();
        abi.start(OTHER.as_ptr());
        abi.publish();
        assert_eq!(offsets(&abi), UNKNOWN);
        // This copy's variable, which another copy has disabled before.
        let abi = InlineAbi::closed();
        abi.offsets.store(disabled(0), Relaxed);
        abi.start(InlineAbi::own_table());
        abi.publish();
        assert_eq!(offsets(&abi), disabled(unregistered()));
    }
}
