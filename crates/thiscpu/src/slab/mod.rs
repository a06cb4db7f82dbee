//! Slab caches: objects of one size, from arrays that each CPU has of its own.
//!
//! [`RawCache`] is the whole of it; [`Cache`] puts a type on top. How it works: docs/slab.md.

mod barn;
mod bits;
mod cache;
mod close;
mod depot;
mod entry;
pub(crate) mod fault;
mod lane;
pub mod large;
mod objects;
pub(crate) mod purge;
mod reserve;
mod sheaf;
mod slow;
pub(crate) mod space;
mod stats;
mod stock;

pub use cache::{Cache, Owned};
pub use close::StillOut;
pub use reserve::{RawReserved, Reserved};
pub use stats::SlabStats;

use core::alloc::Layout;
use core::fmt;
use core::ptr::{self, NonNull};

use barn::Kind;
use depot::Depot;
use entry::Key;
use objects::Shape;

use crate::lanes::region;
use crate::quiesce::{Gate, ITEM_ALIGN};
use crate::section::{Outcome, Processor, SlabSections as _};
use crate::sys::atomic::{
    AtomicU32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::sys::lock::Lock;
use crate::sys::tier::{self, Tier};

/// The largest object of a cache, in bytes.
const SIZE_MAX: usize = 1024 * 1024;

/// Objects of one layout, allocated and freed on any CPU at about a nanosecond each: the kernel's `kmem_cache`, with its
/// per-CPU sheaves (Linux 6.18).
///
/// Each CPU keeps two arrays of free objects, its *sheaves*. [`alloc`](RawCache::alloc) takes the uppermost entry of one,
/// [`free`](RawCache::free) puts one on top, each in one section: no lock, no atomic instruction. When both
/// are empty, or full, a whole sheaf is traded with a store that the CPUs of a NUMA node share; behind that are
/// slabs, in that node's memory. Any thread may free any object; objects of another node go back there when sheaves are traded.
///
/// | | cost | waits for |
/// |---|---|---|
/// | `alloc`, `free` in the lane | one section | nobody |
/// | a trade, once in 4 to 252 calls | two locks at most, held for less than a microsecond | who trades at the same moment |
/// | `shrink`, `close`, drop | a fence, and a look at all that is free | each other |
///
/// A free object's first word says that it is free: to free it again, or an address that is no object of the cache, is noticed
/// (at once, or when the sheaf comes back to the slabs), and so is a write to a free object when it is handed out again. The process
/// is then ended with a message that names the address. A sheaf holds encoded addresses only.
///
/// `const`-constructible; takes memory when it is first used. Usable from thread-local destructors and in children of `fork`; a
/// child loses what a thread of its parent was trading at that moment, at most a sheaf. **Not to be used from signal handlers**,
/// which may have interrupted a trade. Slabs are mapped for ever, so that a late reader of a freed object never faults; their pages go
/// back to the system.
///
/// ```
/// use std::alloc::Layout;
///
/// static BUFFERS: thiscpu::RawCache = thiscpu::RawCache::new(Layout::new::<[u64; 8]>());
///
/// let buffer = BUFFERS.alloc().expect("no memory");
/// // SAFETY: it is from there, and not used any more.
/// unsafe { BUFFERS.free(buffer) };
/// ```
#[repr(C)]
pub struct RawCache {
    /// First, so that sections need no register of their own for it.
    gate: Gate,
    /// The key that entries are made with; odd once it is used.
    key: AtomicUsize,
    /// The address of its [`Depot`], once it is used.
    depot: AtomicUsize,
    shape: Shape,
    tag: u8,
    /// Held by whoever opens or closes the gate.
    lock: Lock,
}

impl RawCache {
    /// A cache of objects of that layout, each at least 8 bytes.
    ///
    /// # Panics
    ///
    /// If the layout has more than a mebibyte or an alignment of more than 65,536 bytes; in a constant, when that is
    /// compiled.
    #[must_use]
    pub const fn new(layout: Layout) -> RawCache {
        RawCache::with_tag(layout, space::ANY_CACHE)
    }

    /// The same; `tag` is what is said of its addresses.
    pub(crate) const fn with_tag(layout: Layout, tag: u8) -> RawCache {
        assert!(layout.size() <= SIZE_MAX, "objects of a cache have at most a mebibyte");
        assert!(
            layout.align() <= 64 * 1024,
            "objects of a cache are aligned to at most 65,536 bytes"
        );
        let size = layout.pad_to_align().size();
        let size = if size > objects::OBJECT_LEAST { size } else { objects::OBJECT_LEAST };
        RawCache {
            gate: Gate::new(),
            key: AtomicUsize::new(0),
            depot: AtomicUsize::new(0),
            shape: Shape::of(size.next_multiple_of(objects::OBJECT_LEAST)),
            tag,
            lock: Lock::new(),
        }
    }

    /// The bytes of an object: its size rounded up to its alignment, and to 8.
    #[must_use]
    pub const fn object_bytes(&self) -> usize {
        self.shape.size
    }

    /// An object that nobody else has, uninitialized but for its first 8 bytes, which are 0. `None` if there is no
    /// memory.
    ///
    /// # Panics
    ///
    /// If `THISCPU_TIER` is wrong.
    #[inline(always)]
    pub fn alloc(&self) -> Option<NonNull<u8>> {
        self.alloc_or(RawCache::alloc_slowly)
    }

    /// The same, with a way of the caller's to [`alloc_slowly`](RawCache::alloc_slowly).
    #[inline(always)]
    pub(crate) fn alloc_or(
        &self,
        slowly: impl FnOnce(&RawCache) -> Option<NonNull<u8>>,
    ) -> Option<NonNull<u8>> {
        // SAFETY: the gate is a cache's.
        match unsafe { Processor::take(self.gate.word()) } {
            0 => slowly(self),
            entry => self.hand_out(entry),
        }
    }

    /// The object of an entry that was just taken.
    #[inline(always)]
    fn hand_out(&self, entry: usize) -> Option<NonNull<u8>> {
        let object = self.key().object(entry);
        if !self.key().unmark(entry) {
            return fault::written_to(object, self.shape.size);
        }
        NonNull::new(ptr::with_exposed_provenance_mut(object))
    }

    /// Frees an object, on any thread.
    ///
    /// # Safety
    ///
    /// The object is from this cache, and nobody uses it any more. (What is not, is noticed sooner or later, and ends the process
    /// with a message.)
    #[inline(always)]
    pub unsafe fn free(&self, object: NonNull<u8>) {
        // SAFETY: the caller's promise.
        unsafe { self.free_or(object, RawCache::free_slowly) };
    }

    /// The same, with a way of the caller's to [`free_slowly`](RawCache::free_slowly).
    ///
    /// # Safety
    ///
    /// As for `free`.
    #[inline(always)]
    pub(crate) unsafe fn free_or(
        &self,
        object: NonNull<u8>,
        slowly: impl FnOnce(&RawCache, usize),
    ) {
        let key = self.key();
        let object = object.as_ptr().expose_provenance();
        let entry = key.entry(object);
        if key.is_marked(entry) {
            return fault::freed_twice(object, self.shape.size);
        }
        // SAFETY: the gate is a cache's; the object is the caller's, who gives it up, and has at least 8 bytes.
        if unsafe { Processor::give(self.gate.word(), object, entry) } != Outcome::Done {
            slowly(self, entry);
        }
    }

    /// Whether an object of this cache begins at an address.
    pub(crate) fn is_object(&self, address: usize) -> bool {
        let Some(depot) = self.depot_if_used() else { return false };
        let slab = objects::Slab::holding(address).filter(|slab| slab.owner() == depot.kind.owner);
        slab.is_some_and(|slab| slab.place(address).is_some())
    }

    /// Relaxed: who has an object, or an entry, got it after the key was stored.
    #[inline(always)]
    fn key(&self) -> Key {
        Key(self.key.load(Relaxed))
    }

    /// What is behind the lanes, if the cache was ever used.
    fn depot_if_used(&self) -> Option<&'static Depot> {
        // Acquire: pairs with the Release in `begin`.
        let depot = self.depot.load(Acquire) as *const Depot;
        // SAFETY: a depot lives for ever, and is this cache's until that is closed.
        unsafe { depot.as_ref() }
    }

    fn depot(&self) -> Option<&'static Depot> {
        self.depot_if_used().or_else(|| self.begin())
    }

    /// The first use. `None` if there is no memory.
    #[cold]
    fn begin(&self) -> Option<&'static Depot> {
        let tier = tier::expect();
        let _guard = self.lock.lock();
        if let Some(depot) = self.depot_if_used() {
            return Some(depot);
        }
        // Numbers are not used again, so that what an address belonged to before is never taken for what it belongs to.
        static OWNERS: AtomicU32 = AtomicU32::new(0);
        let owner = OWNERS.fetch_add(1, Relaxed) + 1;
        let key = Key::random();
        let depot = Depot::make(Kind { owner, shape: self.shape, tag: self.tag, key })?;
        // Before anything can be in a lane.
        self.key.store(key.0, Relaxed);
        // Release: pairs with the Acquire in `depot_if_used`.
        self.depot.store(core::ptr::from_ref(depot) as usize, Release);
        // Where there is no memory for lanes each call goes to the slabs.
        if let Ok(item) = region::lock().allocate(lane::BYTES, ITEM_ALIGN) {
            let open = self.gate.look().opened(item);
            // Where there are no sections it stays closed, and says where the lanes are all the same.
            self.gate.turn(if tier == Tier::Atomic { open.closed() } else { open });
        }
        Some(depot)
    }
}

impl fmt::Debug for RawCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawCache").field("object_bytes", &self.shape.size).finish_non_exhaustive()
    }
}
