//! Groups of classes: a gate, a key, and an item in the lanes.

use core::ptr;

use crate::gate::{Gate, ITEM_ALIGN};
use crate::lanes::direct::CacheTable;
#[cfg(all(target_arch = "x86_64", not(thiscpu_model)))]
use crate::lanes::direct::ITEMS_AT;
use crate::lanes::{direct, region};
use crate::slab::lane;
use crate::slab::lane::encoding::Key;
use crate::sys::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};
use crate::sys::lock::Lock;
use crate::sys::startup;
use crate::tier::Tier;

/// What classes share.
#[derive(Debug)]
#[repr(C)]
pub struct Group {
    /// First, so that sections need no register of their own for it.
    pub(crate) gate: Gate,
    /// The key that entries are made with; odd once it is used.
    pub(crate) key: AtomicUsize,
    /// LockedArena by whoever opens or closes the gate.
    pub(super) lock: Lock,
    /// How many cells its item has.
    pub(super) cells: u32,
    pub(crate) direct_use: DirectUse,
    /// Whether its item is not to be found in a front all the same. Changed under the lock.
    pub(super) direct_disabled: AtomicBool,
    /// How many calls there were that found no lanes.
    no_lanes_calls: AtomicU32,
    /// What near sections load in place of the gate, by their way.
    pub(super) direct_table: CacheTable,
}

// Where sections look for it, and near ones for the front.
const _: () = assert!(core::mem::offset_of!(Group, gate) == 0);
#[cfg(all(target_arch = "x86_64", not(thiscpu_model)))]
const _: () = assert!(
    core::mem::offset_of!(Group, direct_table) + ITEMS_AT == crate::section::DIRECT_TABLE_AT
);

/// Where its key is.
#[cfg(not(thiscpu_model))]
pub const KEY: usize = core::mem::offset_of!(Group, key);

/// After so many calls without lanes memory for them is asked for again.
const CALLS_TO_RETRY: u32 = 64;

/// Where near sections find a group's item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DirectUse {
    /// Nowhere: all look in the gate.
    None,
    /// In its own front.
    Own,
    /// In [`MALLOC_TABLE`], and there its first top.
    Malloc,
}

impl Group {
    /// A group whose item has so many cells: one, of its one class, or one more than it has classes; see [`handle`](Group::handle).
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

    /// The same for a class by itself, which near sections find in a front of its own.
    pub(crate) const fn with_direct_table() -> Group {
        Group {
            direct_use: if direct::HAS_DIRECT { DirectUse::Own } else { DirectUse::None },
            ..Group::new(1)
        }
    }

    /// The same where nothing looks there but the model.
    #[cfg(thiscpu_model)]
    pub(crate) const fn direct_in_model() -> Group {
        Group { direct_use: DirectUse::Own, ..Group::new(1) }
    }

    /// The same for the classes with the most calls, which are found without their gate; see [`crate::lanes::direct`].
    ///
    /// # Safety
    ///
    /// There is one such group, for as long as the process lives.
    pub const unsafe fn for_malloc(cells: usize) -> Group {
        let is_looked_at = direct::HAS_DIRECT || cfg!(thiscpu_model);
        Group {
            direct_use: if is_looked_at { DirectUse::Malloc } else { DirectUse::None },
            ..Group::new(cells)
        }
    }

    /// Relaxed: who has an object, or an entry, got it after the key was stored.
    #[inline(always)]
    pub(super) fn key(&self) -> Key {
        Key(self.key.load(Relaxed))
    }

    /// Where its gate is, and behind that its front.
    #[inline(always)]
    pub(super) const fn gate_ptr(&self) -> *const AtomicUsize {
        ptr::from_ref(self).cast()
    }

    /// The front that is behind such a gate.
    ///
    /// # Safety
    ///
    /// It is a group's, from [`gate_ptr`](Self::gate_ptr), and that lives.
    #[cfg(thiscpu_model)]
    pub(crate) unsafe fn direct_table_after<'a>(
        gate: *const AtomicUsize,
    ) -> &'a crate::lanes::direct::DirectTable {
        // SAFETY: a group begins with its gate.
        unsafe { &(*gate.cast::<Group>()).direct_table }
    }

    fn item_bytes(&self) -> usize {
        self.cells as usize * lane::CELL_BYTES
    }

    /// Its first use. Under the lock.
    pub(super) fn begin(&self) -> Key {
        if self.key.load(Relaxed) != 0 {
            return self.key();
        }
        let key = Key::random();
        // Before anything can be in a lane.
        self.key.store(key.0, Relaxed);
        self.alloc_lanes();
        key
    }

    /// Gets memory in the lanes. Where there is none each call goes to the slabs. Under the lock.
    fn alloc_lanes(&self) -> Option<usize> {
        let item = region::lock().allocate(self.item_bytes(), ITEM_ALIGN).ok()?;
        let open = self.gate.load().opened(item);
        // Where there are no sections it stays closed, and says where the lanes are all the same.
        let is_closed = startup::tier_or_panic() == Tier::Atomic;
        self.gate.set(if is_closed { open.closed() } else { open });
        Some(item)
    }

    /// Where the lanes are; after there was no memory for them, one call in a few asks for it again.
    pub(super) fn item(&self) -> Option<usize> {
        self.gate.load().item().or_else(|| {
            if !self.no_lanes_calls.fetch_add(1, Relaxed).is_multiple_of(CALLS_TO_RETRY) {
                return None;
            }
            let _guard = self.lock.try_lock()?;
            self.gate.load().item().or_else(|| self.alloc_lanes())
        })
    }

    /// Of a cache that is closed.
    pub(crate) fn give_up(&self) {
        if let Some(item) = self.gate.load().item() {
            self.gate.close_forever();
            self.unpublish();
            region::lock().free(item, self.item_bytes());
        }
        self.key.store(0, Relaxed);
    }
}
