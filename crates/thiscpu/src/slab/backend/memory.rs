//! The memory of backends, which is used again but never unmapped.

use super::Backend;
use crate::sys::Host;
use crate::sys::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use crate::sys::lock::Lock;
use crate::sys::machine::Machine as _;

static LOCK: Lock = Lock::new();
/// A list of backends that no cache uses.
static UNUSED: AtomicUsize = AtomicUsize::new(0);
static LAST_OWNER: AtomicU32 = AtomicU32::new(0);
/// Mapped memory that no backend has used yet: its beginning and its end.
static FRESH: AtomicUsize = AtomicUsize::new(0);
static FRESH_END: AtomicUsize = AtomicUsize::new(0);

impl Backend {
    /// Leaves an empty backend to other caches.
    pub(crate) fn release(&'static self) {
        let _guard = LOCK.lock();
        self.next.store(UNUSED.load(Relaxed), Relaxed);
        UNUSED.store(core::ptr::from_ref(self) as usize, Relaxed);
    }
}

/// Returns memory for a backend, and the owner number of its slabs.
///
/// No two backends have the same number. A backend that is used again keeps its number, because it
/// has no slabs left.
pub(super) fn alloc(bytes: usize) -> Option<(usize, u32)> {
    let bytes = bytes.next_multiple_of(64);
    let _guard = LOCK.lock();
    let unused = UNUSED.load(Relaxed);
    // SAFETY: the list holds backends that no cache uses, which are all of one size and stay
    // mapped.
    if let Some(backend) = unsafe { (unused as *const Backend).as_ref() } {
        UNUSED.store(backend.next.load(Relaxed), Relaxed);
        return Some((unused, backend.info.owner));
    }
    // Owner 0 is that of large blocks.
    let owner = LAST_OWNER.load(Relaxed).checked_add(1)?;
    if FRESH.load(Relaxed) + bytes > FRESH_END.load(Relaxed) {
        let mapping = bytes.next_power_of_two().max(64 * 1024);
        let memory = Host::map(mapping).ok()?;
        // In this order, a child forked in between finds no memory to use, and both words are
        // stored again.
        FRESH_END.store(0, Relaxed);
        FRESH.store(memory, Relaxed);
        FRESH_END.store(memory + mapping, Relaxed);
    }
    let at = FRESH.load(Relaxed);
    FRESH.store(at + bytes, Relaxed);
    LAST_OWNER.store(owner, Relaxed);
    Some((at, owner))
}
