//! The pool: [`SLOTS`] slots, each for one block.

use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use thiscpu::__internal::{Guard, Lock};

use super::error::{Error, ErrorKind};
use super::pages::{self, PoolAddress, close, locate, open, page};
use super::quarantine::{Quarantine, SLOTS};
use super::slot::{Block, Canary, Slot, State};
use crate::random;
use crate::stack::Stack;

/// The slots that are reserved for call sites without a block in the pool.
///
/// Otherwise the pool would fill with long-lived blocks of a few call sites, and no other call
/// would ever get a guarded block.
const RESERVED_SLOTS: usize = SLOTS / 4;

/// The number of times that a report tries to take the lock.
const LOCK_ATTEMPTS: usize = 1_000;

/// The pool. All zeros is an empty one.
struct Pool {
    slots: [Slot; SLOTS],
    quarantine: UnsafeCell<Quarantine>,
    /// The number of slots without a block, for `has_room`.
    free_slots: AtomicUsize,
    /// The number of blocks allocated so far.
    total: AtomicUsize,
    /// Set while a thread changes the pool. A child that is forked meanwhile has to recover it.
    is_changing: AtomicBool,
}

static LOCK: Lock = Lock::new();
static POOL: AtomicPtr<Pool> = AtomicPtr::new(ptr::null_mut());

/// Creates the pool, once, and returns whether there is one. The caller holds a lock.
pub(super) fn init() -> bool {
    if !POOL.load(Relaxed).is_null() {
        return true;
    }
    let Some(pool) = pages::reserve(size_of::<Pool>()) else { return false };
    let pool = pool.as_ptr().cast::<Pool>();
    // SAFETY: zeros are a valid pool, and no other thread knows it yet.
    let quarantine = unsafe { &mut *(*pool).quarantine.get() };
    (0..SLOTS).for_each(|slot| quarantine.put(slot));
    // SAFETY: the pool is valid, and no other thread knows it yet.
    unsafe { (*pool).free_slots.store(SLOTS, Relaxed) };
    // Release: pairs with the Acquire in `get`.
    POOL.store(pool, Release);
    true
}

fn get() -> Option<&'static Pool> {
    // Acquire: pairs with the Release in `init`.
    let pool = POOL.load(Acquire);
    // SAFETY: the pointer is null or the pool that `init` has created, which is never unmapped. All
    // of it may be shared; only the lock's holder accesses the quarantine.
    unsafe { pool.as_ref() }
}

/// The right to change the pool: its lock.
struct PoolGuard<'a> {
    pool: &'a Pool,
    lock: Guard<'a>,
}

impl Pool {
    /// Takes the lock, and recovers the pool if a fork has interrupted another thread's change.
    fn change(&self) -> PoolGuard<'_> {
        let mut guard = PoolGuard { pool: self, lock: LOCK.lock() };
        // Relaxed, here and below: the lock orders changes. A forked child sees what its parent's
        // threads had stored at the fork.
        if guard.lock.first_in_generation && self.is_changing.load(Relaxed) {
            guard.recover();
        }
        self.is_changing.store(true, Relaxed);
        guard
    }
}

impl Drop for PoolGuard<'_> {
    fn drop(&mut self) {
        let free = self.quarantine().len();
        self.pool.free_slots.store(free, Relaxed);
        self.pool.is_changing.store(false, Relaxed);
    }
}

impl PoolGuard<'_> {
    fn quarantine(&mut self) -> &mut Quarantine {
        // SAFETY: this guard holds the lock and is borrowed mutably, so there is one reference.
        unsafe { &mut *self.pool.quarantine.get() }
    }

    /// Recovers the pool in a child that was forked while another thread was changing it.
    ///
    /// The states of slots are right, but the order in which they were freed is lost.
    fn recover(&mut self) {
        self.quarantine().clear();
        for (index, slot) in self.pool.slots.iter().enumerate() {
            if slot.state() == State::Changing {
                close(index);
                slot.set_state(State::Unused);
            }
            if slot.state() != State::Live {
                self.quarantine().put(index);
            }
        }
    }
}

/// Returns whether a slot may be free, for a caller that has not walked its stack yet.
///
/// Returns `true` while the pool is being changed: in a forked child, that may be wrong, and only
/// `allocate` finds it out.
pub(super) fn has_room() -> bool {
    get().is_some_and(|pool| pool.free_slots.load(Relaxed) > 0 || pool.is_changing.load(Relaxed))
}

/// Returns the numbers of blocks in use and of those allocated so far.
pub(super) fn counts() -> [usize; 2] {
    get().map_or([0; 2], |pool| [SLOTS - pool.free_slots.load(Relaxed), pool.total.load(Relaxed)])
}

/// Allocates a block of `size` bytes that takes `span` bytes with its alignment padding.
///
/// `span` fits a page. If only reserved slots are free, takes one if `use_reserve` is set, or if no
/// block in use is from the call site of `stack`.
pub(super) fn allocate(
    size: usize,
    span: usize,
    stack: &Stack,
    use_reserve: bool,
) -> Option<usize> {
    let pool = get()?;
    let mut guard = pool.change();
    let keep_reserve = !use_reserve && guard.quarantine().len() < RESERVED_SLOTS;
    if keep_reserve && pool.slots.iter().any(|slot| slot.is_live_from(stack)) {
        return None;
    }
    let index = guard.quarantine().take(random::below)?;
    let slot = &pool.slots[index];
    let before = slot.state();
    slot.set_state(State::Changing);
    if !open(index) {
        slot.set_state(before);
        guard.quarantine().put(index);
        return None;
    }
    let page = page(index);
    let start = if random::below(2) == 0 { page.start } else { page.end - span };
    // SAFETY: the page was just made accessible, and this slot holds no block yet.
    unsafe { Canary::of(start, size, page).fill() };
    slot.set_allocated(start, size, stack);
    slot.set_state(State::Live);
    pool.total.store(pool.total.load(Relaxed) + 1, Relaxed);
    Some(start)
}

/// Frees the block at `address`, or returns the error in doing so.
pub(super) fn free(address: usize, stack: &Stack) -> Option<Error> {
    let pool = get()?;
    let mut guard = pool.change();
    let PoolAddress::Slot(index) = locate(address) else {
        return Some(Error { address, kind: ErrorKind::InvalidFree, block: None, is_torn: false });
    };
    let slot = &pool.slots[index];
    let error = |kind| Error { address, kind, block: Some(slot.block()), is_torn: false };
    match slot.state() {
        State::Live if slot.start() == address => {}
        State::Freed if slot.start() == address => return Some(error(ErrorKind::DoubleFree)),
        State::Live | State::Freed => return Some(error(ErrorKind::InteriorFree)),
        State::Unused | State::Changing => {
            return Some(Error { block: None, ..error(ErrorKind::InvalidFree) });
        }
    }
    // SAFETY: the page belongs to a block in use, so it is accessible.
    if let Some(at) = unsafe { Canary::of(address, slot.size(), page(index)).first_damaged() } {
        return Some(error(ErrorKind::CanaryDamage { at }));
    }
    slot.set_state(State::Changing);
    close(index);
    slot.set_freed(stack);
    slot.set_state(State::Freed);
    guard.quarantine().put(index);
    None
}

/// Shrinks the block at `address`, if there is one, and extends its canary to the new end.
///
/// Returns an error if its canary was overwritten, because the new one would hide that.
pub(super) fn shrink(address: usize, size: usize) -> Option<Error> {
    let (Some(pool), PoolAddress::Slot(index)) = (get(), locate(address)) else { return None };
    let _guard = pool.change();
    let slot = &pool.slots[index];
    if slot.state() != State::Live || slot.start() != address || size >= slot.size() {
        return None;
    }
    // SAFETY: the page belongs to a block in use, so it is accessible.
    if let Some(at) = unsafe { Canary::of(address, slot.size(), page(index)).first_damaged() } {
        let (kind, block) = (ErrorKind::CanaryDamage { at }, Some(slot.block()));
        return Some(Error { address, kind, block, is_torn: false });
    }
    // Before the size: a child that is forked in between keeps the old size, and no byte outside of
    // that has changed.
    // SAFETY: the page belongs to a block in use, and the caller does not use it beyond `size`.
    unsafe { Canary::of(address, size, page(index)).fill_after() };
    slot.set_size(size);
    None
}

/// Returns the size that was requested for the block at `address`, or 0 if there is none.
pub(super) fn size(address: usize) -> usize {
    match (get(), locate(address)) {
        (Some(pool), PoolAddress::Slot(index)) => pool.slots[index].size(),
        _ => 0,
    }
}

/// Returns the error that a fault at `address` was. Does not wait for the lock.
pub(super) fn explain(address: usize, is_write: Option<bool>) -> Error {
    let guard = (0..LOCK_ATTEMPTS).find_map(|_| {
        // SAFETY: sched_yield has no preconditions.
        LOCK.try_lock().or_else(|| unsafe {
            libc::sched_yield();
            None
        })
    });
    let is_torn = guard.is_none();
    let slots: &[Slot] = get().map_or(&[], |pool| &pool.slots);
    let at = |index: usize| slots.get(index).map(Slot::block);
    let block = match locate(address) {
        PoolAddress::Slot(index) => at(index).filter(|block| block.state != State::Unused),
        PoolAddress::Between { before, after } => {
            nearest(address, before.and_then(at), after.and_then(at))
        }
    };
    Error { address, kind: ErrorKind::Access { is_write }, block, is_torn }
}

/// Returns the block that an access between two blocks belongs to.
///
/// A block in use takes precedence over a freed one, then the nearer one does.
fn nearest(address: usize, before: Option<Block>, after: Option<Block>) -> Option<Block> {
    [before, after]
        .into_iter()
        .flatten()
        .filter(|block| matches!(block.state, State::Live | State::Freed))
        .min_by_key(|block| {
            let end = block.start + block.size;
            let distance = block.start.saturating_sub(address).max(address.saturating_sub(end));
            (block.state != State::Live, distance)
        })
}

#[cfg(test)]
mod tests {
    use super::super::enable;
    use super::*;

    /// Allocates all free slots. Returns whether all their blocks are zero, and their number.
    fn take_all() -> (bool, usize) {
        let starts = || allocate(16, 16, &Stack::default(), true);
        core::iter::from_fn(starts).fold((true, 0), |(is_zero, count), start| {
            // SAFETY: the block has 16 bytes and is aligned to 16.
            let word = unsafe { ptr::read_volatile(start as *const u128) };
            (is_zero && word == 0, count + 1)
        })
    }

    // One test, because the process has one pool.
    #[test]
    fn pool_recovers_when_forked_during_a_change() {
        assert!(enable());
        let live = allocate(16, 16, &Stack::default(), true).unwrap();
        let pool = get().unwrap();
        let mut guard = pool.change();
        // Begin like `allocate`, and stop in the middle.
        let index = guard.quarantine().take(|_| 0).unwrap();
        pool.slots[index].set_state(State::Changing);
        assert!(open(index));
        // SAFETY: the page was just made accessible, and nothing else uses it.
        unsafe { ptr::write_bytes(page(index).start as *mut u8, 1, pages::page_bytes()) };

        assert!(explain(live, None).is_torn);
        thiscpu_test_support::child::assert_holds(|| {
            take_all() == (true, SLOTS - 1) && !explain(live, None).is_torn
        });
    }
}
