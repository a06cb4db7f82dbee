//! Groups of classes, which share a gate, a key, and an item in the lanes.

use core::ptr;

use crate::gate::{Gate, ITEM_ALIGN};
use crate::lanes::direct::CacheTable;
#[cfg(all(target_arch = "x86_64", not(thiscpu_model)))]
use crate::lanes::direct::ITEMS_OFFSET;
use crate::lanes::{direct, region};
use crate::slab::lane;
use crate::slab::lane::encoding::Key;
use crate::sys::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};
use crate::sys::lock::Lock;
use crate::sys::startup;
use crate::tier::Tier;

/// The state that all classes of a group share.
#[derive(Debug)]
#[repr(C)]
pub struct Group {
    /// First, so that sections reach it and the direct table by one pointer.
    pub(crate) gate: Gate,
    /// The key that pointers are encoded with; odd once the group is used, 0 before.
    pub(crate) key: AtomicUsize,
    /// Held by the thread that opens or closes the gate.
    pub(super) lock: Lock,
    /// Number of cells in the group's item.
    pub(super) cells: u32,
    pub(crate) direct_use: DirectUse,
    /// Whether the item must not be published in the direct table; changed under `lock`.
    pub(super) direct_disabled: AtomicBool,
    no_lanes_calls: AtomicU32,
    /// The group's own direct table, which direct sections load instead of the gate.
    pub(super) direct_table: CacheTable,
}

// Sections expect the gate first, and direct ones the table at this distance from it.
const _: () = assert!(core::mem::offset_of!(Group, gate) == 0);
#[cfg(all(target_arch = "x86_64", not(thiscpu_model)))]
const _: () = assert!(
    core::mem::offset_of!(Group, direct_table) + ITEMS_OFFSET
        == crate::section::DIRECT_TABLE_OFFSET
);

/// Calls without lanes after which memory for lanes is requested again.
const CALLS_TO_RETRY: u32 = 64;

/// The direct table that direct sections find a group's item by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DirectUse {
    /// None: all sections load the gate.
    None,
    /// The group's own table, which leads to the item.
    Own,
    /// `MALLOC_TABLE`, which leads to the item's first `top`.
    Malloc,
}

impl Group {
    /// Creates a group whose item has `cells` cells.
    ///
    /// That is one for a single class, or one more than it has classes; see
    /// [`handle`](Group::handle).
    pub const fn new(cells: usize) -> Group {
        Group {
            gate: Gate::new(),
            key: AtomicUsize::new(0),
            lock: Lock::new(),
            cells: cells as u32,
            direct_use: DirectUse::None,
            direct_disabled: AtomicBool::new(false),
            no_lanes_calls: AtomicU32::new(0),
            direct_table: CacheTable::new(),
        }
    }

    /// Creates a group of a single class, with a direct table of its own.
    pub(crate) const fn with_direct_table() -> Group {
        Group {
            direct_use: if direct::HAS_DIRECT { DirectUse::Own } else { DirectUse::None },
            ..Group::new(1)
        }
    }

    /// Creates a group of a single class whose direct sections are modeled.
    #[cfg(thiscpu_model)]
    pub(crate) const fn direct_in_model() -> Group {
        Group { direct_use: DirectUse::Own, ..Group::new(1) }
    }

    /// Creates malloc's group, which uses the shared `MALLOC_TABLE`.
    ///
    /// # Safety
    ///
    /// The caller guarantees that there is only one such group, and that it lives as long as the
    /// process.
    pub const unsafe fn for_malloc(cells: usize) -> Group {
        let is_used = direct::HAS_DIRECT || cfg!(thiscpu_model);
        Group {
            direct_use: if is_used { DirectUse::Malloc } else { DirectUse::None },
            ..Group::new(cells)
        }
    }

    #[inline(always)]
    pub(super) fn key(&self) -> Key {
        // Relaxed: a thread that has an object, or an encoded pointer, got it after the store.
        Key(self.key.load(Relaxed))
    }

    /// Returns the address of the gate, which the direct table follows.
    #[inline(always)]
    pub(super) const fn gate_ptr(&self) -> *const AtomicUsize {
        ptr::from_ref(self).cast()
    }

    /// Returns the direct table that follows a gate.
    ///
    /// # Safety
    ///
    /// The caller guarantees that `gate` is from [`gate_ptr`](Self::gate_ptr) of a group that
    /// outlives `'a`.
    #[cfg(thiscpu_model)]
    pub(crate) unsafe fn direct_table_after<'a>(
        gate: *const AtomicUsize,
    ) -> &'a crate::lanes::direct::DirectTable {
        // SAFETY: `gate` is the first field of a `Group`, which the caller keeps alive.
        unsafe { &(*gate.cast::<Group>()).direct_table }
    }

    fn item_bytes(&self) -> usize {
        self.cells as usize * lane::CELL_BYTES
    }

    /// Initializes the group at its first use, and returns the key; the caller holds `lock`.
    pub(super) fn init(&self) -> Key {
        if self.key.load(Relaxed) != 0 {
            return self.key();
        }
        let key = Key::random();
        // Stored before anything can be in a lane.
        self.key.store(key.0, Relaxed);
        if direct::HAS_DIRECT && self.direct_use == DirectUse::Malloc {
            // Relaxed: read by calls in assembly with an object, or an encoded pointer, like `key`.
            direct::MALLOC_TABLE.key.store(key.0, Relaxed);
        }
        self.alloc_lanes();
        key
    }

    /// Allocates an item in the lanes, and opens the gate; the caller holds `lock`.
    ///
    /// Where there is no memory for it, each call goes to the slabs.
    fn alloc_lanes(&self) -> Option<usize> {
        let item = region::lock().allocate_if_possible(self.item_bytes(), ITEM_ALIGN)?;
        let open = self.gate.load().opened(item);
        // In the atomic tier the gate stays closed, and only says where the item is.
        let is_closed = startup::tier_or_panic() == Tier::Atomic;
        self.gate.set(if is_closed { open.closed() } else { open });
        Some(item)
    }

    /// Returns the item; without one, one call in [`CALLS_TO_RETRY`] asks for memory again.
    pub(super) fn item(&self) -> Option<usize> {
        self.gate.load().item().or_else(|| {
            if !self.no_lanes_calls.fetch_add(1, Relaxed).is_multiple_of(CALLS_TO_RETRY) {
                return None;
            }
            let _guard = self.lock.try_lock()?;
            self.gate.load().item().or_else(|| self.alloc_lanes())
        })
    }

    /// Frees the lanes of a group whose cache is closed.
    pub(crate) fn close(&self) {
        if let Some(item) = self.gate.load().item() {
            self.gate.close_forever();
            self.unpublish();
            region::free(item, self.item_bytes());
        }
        self.key.store(0, Relaxed);
    }
}
