//! Slab caches: objects that threads hand to each other, each byte of which is part of its pattern. Handlers use none: an
//! allocation may wait for a lock that the interrupted thread has.

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering::SeqCst};

use thiscpu::RawCache;

use super::{Actor, Structure};
use crate::wrong::{Checked, Wrong, equal, holds};

/// The bytes of the caches' objects: the smallest, many to a slab, few, and more than a slab's unit.
const SIZES: [usize; 6] = [8, 48, 200, 1_024, 9_000, 70_000];
/// Objects that wait for anybody, for each cache and slot; and those that a thread has at a time.
const SHARED_PER_SLOT: usize = 16;
const HELD_MAX: usize = 64;
/// Few of the large ones, which take long to look at.
const BYTES_HELD_MAX: usize = 128 * 1024;

/// What is wrong where an object is missing.
const NO_OBJECT: Wrong = Wrong { what: "an object that must be there", low: 1, high: 1, found: 0 };

/// An object that somebody has. Its first word is its number, and all others follow from that.
#[derive(Clone, Copy)]
struct Object {
    at: NonNull<u64>,
    words: usize,
    number: u64,
}

/// The word at a place of the object with that number.
fn pattern(number: u64, place: usize) -> u64 {
    (number ^ place as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Object {
    fn words(&mut self) -> &mut [u64] {
        // SAFETY: it is an object of so many words that were written to, and only one has it, which is what is checked here.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.words) }
    }

    fn fill(mut self) -> Checked<Self> {
        // SAFETY: the first word of a new object is 0; the others are the caller's to write to.
        let first = unsafe { self.at.read() };
        equal("the first word of a new object", 0, first as i64)?;
        for place in 1..self.words {
            // SAFETY: in bounds of the object.
            unsafe { self.at.add(place).write(pattern(self.number, place)) };
        }
        self.words()[0] = self.number;
        Ok(self)
    }

    fn check(&mut self) -> Checked {
        let number = self.number;
        equal("the number of an object", number as i64, self.words()[0] as i64)?;
        let is_whole = |(place, &word): (usize, &u64)| word == pattern(number, place);
        holds("an object is as it was left", self.words().iter().enumerate().skip(1).all(is_whole))
    }
}

/// A cache, and objects of it that wait for anybody.
struct Kind {
    cache: RawCache,
    /// SeqCst: who takes an object sees what was written to it.
    shared: Box<[AtomicPtr<u64>]>,
}

impl Kind {
    fn new(size: usize, slots: usize) -> Kind {
        let layout = Layout::from_size_align(size, 8).expect("a layout");
        let shared = (0..slots * SHARED_PER_SLOT).map(|_| AtomicPtr::default()).collect();
        Kind { cache: RawCache::new(layout), shared }
    }

    fn held_max(&self) -> usize {
        (BYTES_HELD_MAX / self.cache.object_bytes()).clamp(2, HELD_MAX)
    }

    /// An object that somebody has left.
    fn object(&self, at: NonNull<u64>) -> Object {
        // SAFETY: whoever left it has written to it, and has it no more.
        Object { at, words: self.cache.object_bytes() / 8, number: unsafe { at.read() } }
    }

    fn alloc(&self, actor: &mut Actor) -> Checked<Object> {
        actor.ops += 1;
        self.fill(actor, self.cache.alloc())
    }

    /// A new object, full of its pattern.
    fn fill(&self, actor: &mut Actor, new: Option<NonNull<u8>>) -> Checked<Object> {
        let at = new.ok_or(NO_OBJECT)?.cast();
        Object { at, words: self.cache.object_bytes() / 8, number: actor.random.u64(..) }.fill()
    }

    fn free(&self, actor: &mut Actor, mut object: Object) -> Checked {
        object.check()?;
        actor.ops += 1;
        // SAFETY: the object was allocated here, and nobody else has it.
        unsafe { self.cache.free(object.at.cast()) };
        Ok(())
    }

    /// Leaves an object to others, or takes one; which one was there.
    fn exchange(&self, actor: &mut Actor, object: Option<Object>) -> Option<Object> {
        let place = &self.shared[actor.random.usize(..self.shared.len())];
        let new = object.map_or(std::ptr::null_mut(), |object| object.at.as_ptr());
        NonNull::new(place.swap(new, SeqCst)).map(|at| self.object(at))
    }

    /// Has some objects at a time, of which some go to others, who may free them.
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
        // As they come, or the other way round.
        if actor.random.bool() {
            held.reverse();
        }
        held.into_iter().flatten().try_for_each(|object| self.free(actor, object))
    }

    /// So many that sheaves are traded, and slabs come and go.
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

    /// What was set aside is there.
    fn prefill(&self, actor: &mut Actor) -> Checked {
        let count = actor.random.usize(..self.held_max());
        let mut prefilled = self.cache.prefill(count).map_err(|_| NO_OBJECT)?;
        for _ in 0..count / 2 {
            let object = self.fill(actor, prefilled.alloc())?;
            self.free(actor, object)?;
        }
        equal(
            "what is left of a prefilled handle",
            (count - count / 2) as i64,
            prefilled.len() as i64,
        )
    }
}

pub(super) struct Slabs {
    kinds: Box<[Kind]>,
}

impl Slabs {
    pub(super) fn new(slots: usize) -> Self {
        Slabs { kinds: SIZES.into_iter().map(|size| Kind::new(size, slots)).collect() }
    }
}

impl Structure for Slabs {
    fn name(&self) -> &'static str {
        "slabs"
    }

    fn turn(&self, actor: &mut Actor) -> Checked {
        let kind = &self.kinds[actor.random.usize(..self.kinds.len())];
        match actor.random.u8(..) {
            0..2 => {
                kind.cache.shrink();
                actor.ops += 1;
                Ok(())
            }
            2..12 => kind.use_many(actor),
            12..20 => kind.prefill(actor),
            _ => (0..1 << actor.random.u8(..4)).try_for_each(|_| kind.use_some(actor)),
        }
    }

    /// What waits for anybody was whole when it was left; what others had in hand is nobody's.
    fn child(&self, actor: &mut Actor) -> Checked {
        for kind in &self.kinds {
            for place in kind.shared.iter().take(8) {
                if let Some(at) = NonNull::new(place.swap(std::ptr::null_mut(), SeqCst)) {
                    kind.free(actor, kind.object(at))?;
                }
            }
            kind.use_some(actor)?;
            kind.use_many(actor)?;
        }
        self.kinds[actor.random.usize(..self.kinds.len())].cache.shrink();
        self.kinds.iter().try_for_each(|kind| kind.use_some(actor))
    }

    fn account(&mut self) -> Checked {
        let mut actor = Actor::new(0, 0);
        for (kind, size) in self.kinds.iter_mut().zip(SIZES) {
            for place in &kind.shared {
                if let Some(at) = NonNull::new(place.swap(std::ptr::null_mut(), SeqCst)) {
                    kind.free(&mut actor, kind.object(at))?;
                }
            }
            let Kind { cache, .. } = std::mem::replace(kind, Kind::new(size, 1));
            let out = cache.close().map_or_else(|error| error.objects, |()| 0);
            equal("objects that are out in the end", 0, out as i64)?;
        }
        Ok(())
    }
}
