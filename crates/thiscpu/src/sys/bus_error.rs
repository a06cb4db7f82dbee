//! Mapped files that somebody shortens.
//!
//! An access to a part of a mapping that its file does not have raises SIGBUS. The handler here
//! replaces such a mapping with zeroed memory of this process, and marks it as lost. Then the
//! access starts over, and succeeds. Any other SIGBUS goes to the handler that the program had
//! before, or to the default action.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use super::chained_handler::ChainedHandler;
use super::lock::Lock;
use super::slots::{Slot, Slots};
use super::{errno, fork, keep_mapped};

/// A watched mapping, in one word, which a handler loads at once.
#[derive(Debug, Default)]
struct Range {
    /// The address (36 bits, in 4 KiB), the length (27 bits, in 64 KiB), whether it is writable.
    ///
    /// 0 for none.
    word: AtomicU64,
    is_lost: AtomicBool,
}

const ADDRESS_UNIT: u32 = 12;
const LEN_UNIT: u32 = 16;
const LEN_BITS: u32 = 27;

static RANGES: Slots<Range> = Slots::new();

/// A watched mapping, which becomes zeroed memory if a missing part is accessed.
#[derive(Debug)]
pub(crate) struct Watch(&'static Slot<Range>);

impl Watch {
    /// Watches a mapping; `None` if this process or its address space does not allow it.
    ///
    /// # Safety
    ///
    /// The mapping is the caller's, who accesses it as atomics only, and who drops the result
    /// before it unmaps the mapping. All contents of the memory are valid for it.
    pub(crate) unsafe fn new(address: usize, bytes: usize, is_writable: bool) -> Option<Watch> {
        let is_aligned = |value: usize, unit: u32| value.is_multiple_of(1 << unit);
        let fits = address >> ADDRESS_UNIT < 1 << (u64::BITS - LEN_BITS - 1)
            && bytes >> LEN_UNIT < 1 << LEN_BITS;
        if !fits || !is_aligned(address, ADDRESS_UNIT) || !is_aligned(bytes, LEN_UNIT) || !install()
        {
            return None;
        }
        let slot = RANGES.take();
        // Relaxed: the store of the word releases it.
        slot.value.is_lost.store(false, Relaxed);
        let (address, len) = ((address >> ADDRESS_UNIT) as u64, (bytes >> LEN_UNIT) as u64);
        let word = address << (LEN_BITS + 1) | len << 1 | u64::from(is_writable);
        // Release: pairs with the Acquire in `find`.
        slot.value.word.store(word, Release);
        Some(Watch(slot))
    }

    /// Returns whether the mapping has been replaced, or [`lose`](Self::lose) was called.
    pub(crate) fn is_lost(&self) -> bool {
        // Acquire: pairs with the Release in `Range::replace` and `lose`.
        self.0.value.is_lost.load(Acquire)
    }

    /// Marks the mapping as lost.
    pub(crate) fn lose(&self) {
        // Release: pairs with the Acquire in `is_lost`.
        self.0.value.is_lost.store(true, Release);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Relaxed: nobody accesses the mapping any more, so no fault in it is under way.
        self.0.value.word.store(0, Relaxed);
        self.0.give_back();
    }
}

/// Returns the range that an address lies in: with its begin, its length and its access.
fn find(address: usize) -> Option<(&'static Range, usize, usize, i32)> {
    RANGES.iter().find_map(|slot| {
        // Acquire: pairs with the Release in `new`.
        let word = slot.value.word.load(Acquire);
        let begin = (word >> (LEN_BITS + 1) << ADDRESS_UNIT) as usize;
        let bytes = ((word >> 1 & ((1 << LEN_BITS) - 1)) as usize) << LEN_UNIT;
        let access =
            if word & 1 == 1 { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        (address.wrapping_sub(begin) < bytes).then_some((&slot.value, begin, bytes, access))
    })
}

/// Replaces a mapping that is watched, and in which an access has failed.
fn replace(address: usize) -> bool {
    let Some((range, begin, bytes, access)) = find(address) else { return false };
    // Release: pairs with the Acquire in `is_lost`. Before the mapping: a
    // thread that finds zeros there finds the mark too.
    range.is_lost.store(true, Release);
    let map = |begin: usize, bytes: usize| {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        // SAFETY: the range lies in a mapping whose owner has promised in `Watch::new` that all
        // contents are valid. An owner that accesses it has not unmapped it.
        let mapped = unsafe { libc::mmap(begin as *mut c_void, bytes, access, flags, -1, 0) };
        mapped != libc::MAP_FAILED
    };
    // All of it: then all of the memory is this process's own, and no other part can fail. If there
    // is no memory for that, a page must do.
    let page = fork::page_bytes();
    map(begin, bytes) || map(address & !(page - 1), page)
}

static HANDLER: ChainedHandler = ChainedHandler::new(libc::SIGBUS);

/// Installs the handler once, and returns whether it is installed.
fn install() -> bool {
    static LOCK: Lock = Lock::new();
    let _guard = LOCK.lock();
    // SAFETY: this thread holds the lock, and the handler's code stays mapped. The handler makes
    // only async-signal-safe calls: loads, and `mmap` as a bare system call.
    keep_mapped::init() && unsafe { HANDLER.install(on_bus_error) }
}

unsafe extern "C" fn on_bus_error(_: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let _errno = errno::save();
    // SAFETY: the kernel passes a valid structure, with an address if the code is that of a fault.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    if code != libc::BUS_ADRERR || !replace(address) {
        // SAFETY: the kernel has passed these arguments.
        unsafe { HANDLER.chain(info, context) };
    }
}
