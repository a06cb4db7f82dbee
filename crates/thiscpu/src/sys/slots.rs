//! A list of slots that are used again and never freed, so signal handlers may read it.

use core::ptr;
use core::sync::atomic::{
    AtomicBool, AtomicPtr,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// Slots with a value each. No call takes a lock, so a fork leaves the list usable.
#[derive(Debug)]
pub(crate) struct Slots<T: 'static> {
    first: AtomicPtr<Slot<T>>,
}

/// A place in the list, which belongs to one owner at a time.
#[derive(Debug)]
pub(crate) struct Slot<T: 'static> {
    is_taken: AtomicBool,
    pub(crate) value: T,
    next: *const Slot<T>,
}

// SAFETY: `next` does not change once the slot is in a list, and leads to a slot that is never
// freed.
unsafe impl<T: Sync> Sync for Slot<T> {}

impl<T: Default + Sync> Slots<T> {
    /// Returns a list without slots.
    pub(crate) const fn new() -> Slots<T> {
        Slots { first: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Takes a slot that nobody has, or a new one. Its value is the one that the last owner left.
    pub(crate) fn take(&self) -> &'static Slot<T> {
        // Acquire: pairs with the Release in `give_back`.
        let take =
            |slot: &&Slot<T>| slot.is_taken.compare_exchange(false, true, Acquire, Relaxed).is_ok();
        self.iter().find(take).unwrap_or_else(|| self.push())
    }

    /// Adds a slot to the list.
    fn push(&self) -> &'static Slot<T> {
        let (is_taken, next) = (AtomicBool::new(true), ptr::null());
        let slot = Box::into_raw(Box::new(Slot { is_taken, value: T::default(), next }));
        let mut first = self.first.load(Acquire);
        loop {
            // SAFETY: the slot is not in the list yet, so this thread alone knows it.
            unsafe { (*slot).next = first };
            // AcqRel: pairs with the Acquire in `iter`, which then finds a complete slot.
            match self.first.compare_exchange(first, slot, AcqRel, Acquire) {
                // SAFETY: the slot is never freed, and from now on only its atomics change.
                Ok(_) => return unsafe { &*slot },
                Err(now) => first = now,
            }
        }
    }

    /// Returns all slots, also those that nobody has.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'static Slot<T>> {
        // Acquire: pairs with the exchange in `push`.
        let mut next = self.first.load(Acquire).cast_const();
        core::iter::from_fn(move || {
            // SAFETY: null, or a slot of the list, all of which are complete and never freed.
            let slot: &'static Slot<T> = unsafe { next.as_ref() }?;
            next = slot.next;
            Some(slot)
        })
    }
}

impl<T> Slot<T> {
    /// Lets another owner take the slot.
    pub(crate) fn give_back(&self) {
        // Release: pairs with the Acquire in `take`.
        self.is_taken.store(false, Release);
    }
}
