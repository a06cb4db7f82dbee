//! Objects of slab caches that are full of what only their number says.

use std::alloc::Layout;
use std::ptr::NonNull;

use thiscpu::RawCache;

/// A cache of objects of so many bytes.
pub(crate) fn cache_of(size: usize) -> RawCache {
    RawCache::new(Layout::from_size_align(size, 8).expect("a layout"))
}

/// An object that a test has. Each of its bytes is part of its pattern.
#[derive(Debug)]
pub(crate) struct Object {
    at: NonNull<u8>,
    size: usize,
    number: u64,
}

// SAFETY: the object is this value's alone.
unsafe impl Send for Object {}

impl Object {
    /// An object of the cache with its pattern in it; `None` if there is no memory.
    pub(crate) fn alloc(cache: &RawCache, number: u64) -> Option<Object> {
        cache.alloc().map(|at| Object::fill(cache, at, number))
    }

    /// The same for one that was just handed out.
    pub(crate) fn fill(cache: &RawCache, at: NonNull<u8>, number: u64) -> Object {
        let mut object = Object { at, size: cache.object_bytes(), number };
        assert!(object.words().next().is_none_or(|first| *first == 0), "not 0 at first");
        object.words().zip(pattern(number)).for_each(|(word, wanted)| *word = wanted);
        object
    }

    fn words(&mut self) -> impl Iterator<Item = &mut u64> {
        assert!(self.at.cast::<u64>().is_aligned() && self.size.is_multiple_of(8));
        // SAFETY: objects are aligned to words, and the bytes are this value's alone; the first word was written by
        // the cache, and for the others any value will do, as nobody reads them before they are written.
        unsafe { std::slice::from_raw_parts_mut(self.at.cast().as_ptr(), self.size / 8) }.iter_mut()
    }

    pub(crate) fn address(&self) -> usize {
        self.at.addr().get()
    }

    /// Whether every byte is what it was.
    pub(crate) fn is_intact(&mut self) -> bool {
        let number = self.number;
        self.words().zip(pattern(number)).all(|(word, wanted)| *word == wanted)
    }

    /// Looks at every byte, and frees it.
    pub(crate) fn free(mut self, cache: &RawCache) {
        assert!(self.is_intact(), "{self:?} has changed");
        // SAFETY: it is from this cache, and this value ends here.
        unsafe { cache.free(self.at) };
    }
}

fn pattern(number: u64) -> impl Iterator<Item = u64> {
    let first = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..).map(move |index: u64| first ^ index.wrapping_mul(0x0101_0101_0000_0000))
}

/// So many objects, numbered from `first` on.
pub(crate) fn alloc_many(cache: &RawCache, first: u64, count: u64) -> Vec<Object> {
    let one = |number| Object::alloc(cache, number).expect("there is memory");
    (first..first + count).map(one).collect()
}

/// Looks at all of them, and only then frees them: two that share a byte are seen.
pub(crate) fn free_all(cache: &RawCache, mut objects: Vec<Object>) {
    objects.iter_mut().for_each(|object| assert!(object.is_intact(), "{object:?} has changed"));
    objects.into_iter().for_each(|object| object.free(cache));
}

/// Closes a cache of which nothing is out.
pub(crate) fn close(cache: RawCache) {
    cache.close().unwrap_or_else(|error| panic!("{error}"));
}
