//! Objects of slab caches, filled with a pattern that their number determines.

use std::alloc::Layout;
use std::ptr::NonNull;

use thiscpu::RawCache;

/// Makes a cache of objects of `size` bytes, aligned to 8.
pub(crate) fn cache_of(size: usize) -> RawCache {
    RawCache::new(Layout::from_size_align(size, 8).expect("a layout"))
}

/// An allocated object, whose every byte belongs to its pattern.
#[derive(Debug)]
pub(crate) struct Object {
    at: NonNull<u8>,
    size: usize,
    number: u64,
}

// SAFETY: an object has one owner, this value, so it may be used on any one thread.
unsafe impl Send for Object {}

impl Object {
    /// Allocates an object and fills it; returns `None` if memory has run out.
    pub(crate) fn alloc(cache: &RawCache, number: u64) -> Option<Object> {
        cache.alloc().map(|at| Object::fill(cache, at, number))
    }

    /// Fills an object that the cache has just returned.
    pub(crate) fn fill(cache: &RawCache, at: NonNull<u8>, number: u64) -> Object {
        let mut object = Object { at, size: cache.object_bytes(), number };
        assert!(object.words().next().is_none_or(|first| *first == 0), "the first word is not 0");
        object.words().zip(pattern(number)).for_each(|(word, wanted)| *word = wanted);
        object
    }

    fn words(&mut self) -> impl Iterator<Item = &mut u64> {
        assert!(self.at.cast::<u64>().is_aligned() && self.size.is_multiple_of(8));
        // SAFETY: the assertion checks alignment, and this value owns the bytes. The cache has
        // written the first word; `fill` writes the others before any code reads them.
        unsafe { std::slice::from_raw_parts_mut(self.at.cast().as_ptr(), self.size / 8) }.iter_mut()
    }

    pub(crate) fn address(&self) -> usize {
        self.at.addr().get()
    }

    /// Returns whether the whole pattern is unchanged.
    pub(crate) fn is_intact(&mut self) -> bool {
        let number = self.number;
        self.words().zip(pattern(number)).all(|(word, wanted)| *word == wanted)
    }

    /// Checks the whole pattern and frees the object.
    pub(crate) fn free(mut self, cache: &RawCache) {
        assert!(self.is_intact(), "{self:?} has changed");
        // SAFETY: the object came from this cache, and this call consumes its only owner.
        unsafe { cache.free(self.at) };
    }
}

fn pattern(number: u64) -> impl Iterator<Item = u64> {
    let first = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..).map(move |index: u64| first ^ index.wrapping_mul(0x0101_0101_0000_0000))
}

/// Allocates `count` objects, with numbers from `first` on.
pub(crate) fn alloc_many(cache: &RawCache, first: u64, count: u64) -> Vec<Object> {
    let one = |number| Object::alloc(cache, number).expect("memory");
    (first..first + count).map(one).collect()
}

/// Allocates objects until memory has run out; asserts that `objects` has room for all.
pub(crate) fn exhaust(cache: &RawCache, objects: &mut Vec<Object>) {
    while let Some(object) = Object::alloc(cache, objects.len() as u64) {
        assert!(objects.len() < objects.capacity(), "memory has no limit");
        objects.push(object);
    }
}

/// Checks all objects before it frees the first, so any two that overlap are found.
pub(crate) fn free_all(cache: &RawCache, mut objects: Vec<Object>) {
    objects.iter_mut().for_each(|object| assert!(object.is_intact(), "{object:?} has changed"));
    objects.into_iter().for_each(|object| object.free(cache));
}

/// Closes a cache without objects in use.
pub(crate) fn close(cache: RawCache) {
    cache.close().unwrap_or_else(|error| panic!("{error}"));
}
