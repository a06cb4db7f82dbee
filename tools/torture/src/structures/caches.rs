//! Caches whose objects threads hand to each other. Each byte of an object is part of a pattern.
//!
//! Handlers use no cache: an allocation may wait for a lock that the interrupted thread holds.

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering::SeqCst};

use thiscpu::RawCache;

use super::{Actor, Structure};
use crate::violation::{Checked, Violation, equal, holds};

/// The object sizes of the caches in bytes.
///
/// The smallest size, many and few objects to a slab, and objects of more than a chunk.
const SIZES: [usize; 6] = [8, 48, 200, 1_024, 9_000, 70_000];
/// The number of places for shared objects, for each cache and slot.
const SHARED_PER_SLOT: usize = 16;
/// The most objects that a thread holds at a time.
const HELD_MAX: usize = 64;
/// The most bytes of objects that a thread holds: large objects take long to check.
const BYTES_HELD_MAX: usize = 128 * 1024;

/// An allocation that fails.
const NO_OBJECT: Violation = Violation { what: "an allocated object", low: 1, high: 1, found: 0 };

/// An object with one owner. Its first word is its number, and all others follow from that.
#[derive(Clone, Copy)]
struct Object {
    at: NonNull<u64>,
    words: usize,
    number: u64,
}

/// Returns the word at `place` in the object with this number.
fn pattern(number: u64, place: usize) -> u64 {
    (number ^ place as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Object {
    fn words(&mut self) -> &mut [u64] {
        // SAFETY: the object has `words` initialized words, and `self` is its only owner (unless
        // the cache under test is broken).
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.words) }
    }

    /// Fills a new object with its pattern.
    fn fill(mut self) -> Checked<Self> {
        // SAFETY: the cache initializes the first word of a new object, and the caller owns the
        // object.
        let first = unsafe { self.at.read() };
        equal("the first word of a new object", 0, first as i64)?;
        for place in 1..self.words {
            // SAFETY: `place` is below the number of words, and the caller owns the object.
            unsafe { self.at.add(place).write(pattern(self.number, place)) };
        }
        self.words()[0] = self.number;
        Ok(self)
    }

    fn check(&mut self) -> Checked {
        let number = self.number;
        equal("the number of an object", number as i64, self.words()[0] as i64)?;
        let is_whole = |(place, &word): (usize, &u64)| word == pattern(number, place);
        holds("an object is unchanged", self.words().iter().enumerate().skip(1).all(is_whole))
    }
}

/// A cache, and objects of it that any thread may take.
struct SharedCache {
    cache: RawCache,
    /// SeqCst: the thread that takes an object sees what was written to it.
    objects: Box<[AtomicPtr<u64>]>,
}

impl SharedCache {
    fn new(size: usize, slots: usize) -> SharedCache {
        let layout = Layout::from_size_align(size, 8).expect("a layout");
        let objects = (0..slots * SHARED_PER_SLOT).map(|_| AtomicPtr::default()).collect();
        SharedCache { cache: RawCache::new(layout), objects }
    }

    fn held_max(&self) -> usize {
        (BYTES_HELD_MAX / self.cache.object_bytes()).clamp(2, HELD_MAX)
    }

    /// Returns a shared object, of which the caller is now the owner.
    fn object(&self, at: NonNull<u64>) -> Object {
        // SAFETY: its last owner has initialized it and does not use it any more.
        Object { at, words: self.cache.object_bytes() / 8, number: unsafe { at.read() } }
    }

    fn alloc(&self, actor: &mut Actor) -> Checked<Object> {
        actor.ops += 1;
        self.fill(actor, self.cache.alloc())
    }

    /// Returns a new object, filled with its pattern.
    fn fill(&self, actor: &mut Actor, new: Option<NonNull<u8>>) -> Checked<Object> {
        let at = new.ok_or(NO_OBJECT)?.cast();
        Object { at, words: self.cache.object_bytes() / 8, number: actor.random.u64(..) }.fill()
    }

    fn free(&self, actor: &mut Actor, mut object: Object) -> Checked {
        object.check()?;
        actor.ops += 1;
        // SAFETY: the object was allocated from `cache`, and the caller is its only owner.
        unsafe { self.cache.free(object.at.cast()) };
        Ok(())
    }

    /// Puts an object, or none, in a random shared place, and returns the object that was there.
    fn exchange(&self, actor: &mut Actor, object: Option<Object>) -> Option<Object> {
        let place = &self.objects[actor.random.usize(..self.objects.len())];
        let new = object.map_or(std::ptr::null_mut(), |object| object.at.as_ptr());
        NonNull::new(place.swap(new, SeqCst)).map(|at| self.object(at))
    }

    /// Frees the objects in the first shared places.
    fn free_shared(&self, actor: &mut Actor, places: usize) -> Checked {
        for place in self.objects.iter().take(places) {
            if let Some(at) = NonNull::new(place.swap(std::ptr::null_mut(), SeqCst)) {
                self.free(actor, self.object(at))?;
            }
        }
        Ok(())
    }

    /// Allocates objects, exchanges some with other threads, and frees those that it has then.
    fn use_some(&self, actor: &mut Actor) -> Checked {
        let mut held = [None; HELD_MAX];
        let count = 1 + actor.random.usize(..self.held_max());
        for place in &mut held[..count] {
            *place = Some(self.alloc(actor)?);
        }
        for place in &mut held[..count] {
            if actor.random.bool() {
                *place = self.exchange(actor, place.take());
            }
        }
        // In either order.
        if actor.random.bool() {
            held.reverse();
        }
        held.into_iter().flatten().try_for_each(|object| self.free(actor, object))
    }

    /// Allocates enough objects to trade sheaves, and to make and free slabs.
    fn use_many(&self, actor: &mut Actor) -> Checked {
        let mut kept: [Option<Object>; HELD_MAX] = [None; HELD_MAX];
        for round in 0..16 * self.held_max() {
            let place = &mut kept[round % self.held_max()];
            let new = self.alloc(actor)?;
            if let Some(old) = place.replace(new).and_then(|old| self.exchange(actor, Some(old))) {
                self.free(actor, old)?;
            }
        }
        kept.into_iter().flatten().try_for_each(|object| self.free(actor, object))
    }

    /// Checks that prefilled objects are available.
    fn prefill(&self, actor: &mut Actor) -> Checked {
        let count = actor.random.usize(..self.held_max());
        let mut prefilled = self.cache.prefill(count).map_err(|_| NO_OBJECT)?;
        for _ in 0..count / 2 {
            let object = self.fill(actor, prefilled.alloc())?;
            self.free(actor, object)?;
        }
        equal(
            "objects left in a prefilled handle",
            (count - count / 2) as i64,
            prefilled.len() as i64,
        )
    }
}

pub(super) struct Caches(Box<[SharedCache]>);

impl Caches {
    pub(super) fn new(slots: usize) -> Self {
        Caches(SIZES.into_iter().map(|size| SharedCache::new(size, slots)).collect())
    }
}

impl Structure for Caches {
    fn step(&self, actor: &mut Actor) -> Checked {
        let shared = &self.0[actor.random.usize(..self.0.len())];
        match actor.random.u8(..) {
            0..2 => {
                actor.counted(shared.cache.shrink());
                Ok(())
            }
            2..12 => shared.use_many(actor),
            12..20 => shared.prefill(actor),
            _ => (0..1 << actor.random.u8(..4)).try_for_each(|_| shared.use_some(actor)),
        }
    }

    /// Checks shared objects, which were whole when their owners left them.
    ///
    /// Objects that the parent's threads held are lost in the child.
    fn check_in_child(&self, actor: &mut Actor) -> Checked {
        for shared in &self.0 {
            shared.free_shared(actor, 8)?;
            shared.use_some(actor)?;
            shared.use_many(actor)?;
        }
        self.0[actor.random.usize(..self.0.len())].cache.shrink();
        self.0.iter().try_for_each(|shared| shared.use_some(actor))
    }

    fn verify(&mut self) -> Checked {
        let mut actor = Actor::new(0, 0);
        for (shared, size) in self.0.iter_mut().zip(SIZES) {
            shared.free_shared(&mut actor, usize::MAX)?;
            let SharedCache { cache, .. } = std::mem::replace(shared, SharedCache::new(size, 1));
            let out = cache.close().map_or_else(|error| error.objects, |()| 0);
            equal("objects still allocated in the end", 0, out as i64)?;
        }
        Ok(())
    }
}
