//! The pool: [`SLOTS`] slots that hold a block each.

use core::cell::UnsafeCell;
use core::ptr;
use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use thiscpu::probe::{Guard, Lock};

use super::error::{Error, ErrorKind};
use super::pages::{self, PoolAddress, close, locate, open, page};
use super::quarantine::{Quarantine, SLOTS};
use super::random;
use super::slot::{Block, Canary, Slot, State};
use super::stack::Stack;

/// When fewer slots than these are free, they are for blocks from where none is in use in the pool. Else the pool would fill with blocks of a few
/// places that stay for ever, and what is allocated elsewhere would never be guarded.
const RESERVED_SLOTS: usize = SLOTS / 4;

/// How often a report tries for the lock.
const LOCK_ATTEMPTS: usize = 1_000;

/// All zeros is an empty pool.
struct Pool {
    slots: [Slot; SLOTS],
    quarantine: UnsafeCell<Quarantine>,
    /// How many slots hold no block, for whoever looks whether there is any; and how many blocks there ever were.
    free_slots: AtomicUsize,
    total: AtomicUsize,
    /// Set while the above is changed: a process that was forked then has something to recover.
    is_changing: AtomicBool,
}

static LOCK: Lock = Lock::new();
static POOL: AtomicPtr<Pool> = AtomicPtr::new(ptr::null_mut());

/// Makes the pool, once; whether there is one. One thread at a time may be here.
pub(super) fn init() -> bool {
    if !POOL.load(Relaxed).is_null() {
        return true;
    }
    let Some(pool) = pages::reserve(size_of::<Pool>()) else { return false };
    let pool = pool.as_ptr().cast::<Pool>();
    // SAFETY: zeros are an empty pool, and nobody else knows it yet.
    let quarantine = unsafe { &mut *(*pool).quarantine.get() };
    (0..SLOTS).for_each(|slot| quarantine.put(slot));
    // SAFETY: as above.
    unsafe { (*pool).free_slots.store(SLOTS, Relaxed) };
    // Release: pairs with the Acquire in `get`.
    POOL.store(pool, Release);
    true
}

fn get() -> Option<&'static Pool> {
    // Acquire: pairs with the Release in `init`.
    let pool = POOL.load(Acquire);
    // SAFETY: null, or what `init` has made, which is never unmapped. All of it may be shared but the quarantine, which is
    // reached under the lock.
    unsafe { pool.as_ref() }
}

/// The right to change the pool.
struct PoolGuard<'a> {
    pool: &'a Pool,
    _guard: Guard<'a>,
}

impl Pool {
    fn change(&self) -> PoolGuard<'_> {
        let guard = LOCK.lock();
        let mut guard = PoolGuard { pool: self, _guard: guard };
        // Relaxed, here and below: the lock orders it; what a forked child sees is what its parent's threads had done.
        if guard._guard.first_in_generation && self.is_changing.load(Relaxed) {
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
        // SAFETY: under the lock, and borrowed from its only holder.
        unsafe { &mut *self.pool.quarantine.get() }
    }

    /// This process was forked while another thread of its parent was changing the pool. What the slots say is true; the order
    /// in which they were freed is lost.
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

/// Whether a slot may be free, for who has not taken the trouble to find out who called. Also while the pool is changed: in a child whose
/// parent did that only who tries finds out.
pub(super) fn has_room() -> bool {
    get().is_some_and(|pool| pool.free_slots.load(Relaxed) > 0 || pool.is_changing.load(Relaxed))
}

/// How many blocks there are, and how many there ever were.
pub(super) fn counts() -> [usize; 2] {
    get().map_or([0; 2], |pool| [SLOTS - pool.free_slots.load(Relaxed), pool.total.load(Relaxed)])
}

/// A block of `size` bytes that takes `span` with what its alignment adds; `span` [`fits_page`](pages::fits_page). Of the last slots one only `use_reserve`, or for who calls
/// from where no block is from.
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
    // SAFETY: the page was opened, and this slot holds no block.
    unsafe { Canary::of(start, size, page).fill() };
    slot.set_allocated(start, size, stack);
    slot.set_state(State::Live);
    pool.total.store(pool.total.load(Relaxed) + 1, Relaxed);
    Some(start)
}

/// Ends the block at `address`, or returns what is wrong with that.
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
    // SAFETY: the page of a block in use.
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

/// Makes the block at `address` end sooner, if one begins there: what is behind its new end nobody may write to. What is wrong, if somebody
/// has written beside it before, which would not be seen after this.
pub(super) fn shrink(address: usize, size: usize) -> Option<Error> {
    let (Some(pool), PoolAddress::Slot(index)) = (get(), locate(address)) else { return None };
    let _guard = pool.change();
    let slot = &pool.slots[index];
    if slot.state() != State::Live || slot.start() != address || size >= slot.size() {
        return None;
    }
    // SAFETY: the page of a block in use.
    if let Some(at) = unsafe { Canary::of(address, slot.size(), page(index)).first_damaged() } {
        let (kind, block) = (ErrorKind::CanaryDamage { at }, Some(slot.block()));
        return Some(Error { address, kind, block, is_torn: false });
    }
    // First: a child that is forked in between has the old end, behind which nothing was changed but what it looks at by the new one.
    // SAFETY: the page of a block in use, of which the caller does not use what is behind the new end.
    unsafe { Canary::of(address, size, page(index)).fill_behind() };
    slot.set_size(size);
    None
}

/// How many bytes were asked for when the block at `address` was allocated; 0 if there is none.
pub(super) fn size(address: usize) -> usize {
    match (get(), locate(address)) {
        (Some(pool), PoolAddress::Slot(index)) => pool.slots[index].size(),
        _ => 0,
    }
}

/// What an access to `address`, which faulted, was. Waits for nobody.
pub(super) fn explain(address: usize, is_write: Option<bool>) -> Error {
    let guard = (0..LOCK_ATTEMPTS).find_map(|_| {
        // SAFETY: lets others run.
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
        PoolAddress::Between { before, behind } => {
            nearest(address, before.and_then(at), behind.and_then(at))
        }
    };
    Error { address, kind: ErrorKind::Access { is_write }, block, is_torn }
}

/// Whose fault an access between two blocks is: rather that of one in use, and rather that of the nearer.
fn nearest(address: usize, before: Option<Block>, behind: Option<Block>) -> Option<Block> {
    [before, behind]
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

    /// Takes all slots that hold no block; whether each of their pages is zero, and how many there were.
    fn take_all() -> (bool, usize) {
        let starts = || allocate(16, 16, &Stack::default(), true);
        core::iter::from_fn(starts).fold((true, 0), |(is_zero, count), start| {
            // SAFETY: a block of 16 bytes, which begins and ends on its page.
            let word = unsafe { ptr::read_volatile(start as *const u128) };
            (is_zero && word == 0, count + 1)
        })
    }

    // One test, as there is one pool.
    #[test]
    fn pool_recovers_when_forked_during_a_change() {
        assert!(enable());
        let live = allocate(16, 16, &Stack::default(), true).unwrap();
        let pool = get().unwrap();
        let mut guard = pool.change();
        // As `allocate` does it, and no further.
        let index = guard.quarantine().take(|_| 0).unwrap();
        pool.slots[index].set_state(State::Changing);
        assert!(open(index));
        // SAFETY: the page was opened, and nobody else uses it.
        unsafe { ptr::write_bytes(page(index).start as *mut u8, 1, pages::page_bytes()) };

        assert!(explain(live, None).is_torn);
        // SAFETY: the child uses the pool, which allocates nothing, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let is_ok = take_all() == (true, SLOTS - 1) && !explain(live, None).is_torn;
            // SAFETY: ends the child without running anything.
            unsafe { libc::_exit(i32::from(!is_ok)) };
        }
        let mut status = 0;
        // SAFETY: waits for the child.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }
}
