//! Objects that are set aside, for where an allocation must not fail.

use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;

use super::cache::{Cache, CacheBox, UninitObject};
use super::raw::RawCache;
use crate::error::Error;

/// Objects of a [`RawCache`] that belong to whoever has this. Those that are left are freed when it is dropped.
#[derive(Debug)]
pub struct RawPrefilled<'a> {
    cache: &'a RawCache,
    /// Each holds the next in its first word.
    first: Option<NonNull<u8>>,
    count: usize,
}

// SAFETY: the objects are this value's alone, and may be freed on any thread.
unsafe impl Send for RawPrefilled<'_> {}

impl RawCache {
    /// A handle that owns `n` objects, for where an allocation must not fail.
    ///
    /// # Errors
    ///
    /// [`Error::NoMemory`]; then none is kept.
    pub fn prefill(&self, n: usize) -> Result<RawPrefilled<'_>, Error> {
        let mut prefilled = RawPrefilled { cache: self, first: None, count: 0 };
        while prefilled.count < n {
            let object =
                self.alloc().ok_or(Error::NoMemory { objects: n, bytes: self.object_bytes() })?;
            prefilled.put(object);
        }
        Ok(prefilled)
    }
}

impl RawPrefilled<'_> {
    /// How many objects are left.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether none is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn put(&mut self, object: NonNull<u8>) {
        // SAFETY: it is this value's alone, of at least a word, and aligned to one.
        unsafe { object.cast::<Option<NonNull<u8>>>().write(self.first) };
        self.first = Some(object);
        self.count += 1;
    }

    /// One of the objects; `None` if there are no more. Touches nothing but the object.
    pub fn alloc(&mut self) -> Option<NonNull<u8>> {
        let object = self.first?;
        // SAFETY: `put` wrote the next one there. The word is 0 from then on, as `RawCache::alloc` promises.
        unsafe {
            self.first = object.cast::<Option<NonNull<u8>>>().read();
            object.cast::<usize>().write(0);
        }
        self.count -= 1;
        Some(object)
    }
}

impl Drop for RawPrefilled<'_> {
    fn drop(&mut self) {
        while let Some(object) = self.alloc() {
            // SAFETY: it is from there, and nobody else's.
            unsafe { self.cache.free(object) };
        }
    }
}

/// Objects of a [`Cache`] that belong to whoever has this. Those that are left are freed when it is dropped.
///
/// ```
/// static NODES: thiscpu::Cache<[u64; 4]> = thiscpu::Cache::new();
///
/// // Here it may fail:
/// let mut nodes = NODES.prefill(2)?;
/// // And here it must not:
/// let node = nodes.alloc([1, 2, 3, 4]).unwrap();
/// assert_eq!((node[3], nodes.len()), (4, 1));
/// # Ok::<(), thiscpu::Error>(())
/// ```
pub struct Prefilled<T> {
    /// Nothing once no object is left: then nothing keeps the cache from being closed.
    raw: Option<RawPrefilled<'static>>,
    holds: PhantomData<fn(T) -> T>,
}

impl<T> Cache<T> {
    /// A handle that owns `n` objects, for where an allocation must not fail.
    ///
    /// # Errors
    ///
    /// [`Error::NoMemory`]; then none is kept.
    pub fn prefill(&self, n: usize) -> Result<Prefilled<T>, Error> {
        Prefilled::of(self, n)
    }
}

impl<T> Prefilled<T> {
    fn of(cache: &Cache<T>, n: usize) -> Result<Prefilled<T>, Error> {
        let raw = match n {
            0 => None,
            _ => {
                let none = Error::NoMemory { objects: n, bytes: size_of::<T>() };
                Some(cache.raw().ok_or(none)?.prefill(n)?)
            }
        };
        Ok(Prefilled { raw, holds: PhantomData })
    }

    /// How many objects are left.
    #[must_use]
    pub fn len(&self) -> usize {
        self.raw.as_ref().map_or(0, RawPrefilled::len)
    }

    /// Whether none is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts a value into one of the objects.
    ///
    /// # Errors
    ///
    /// The value, if there are no more.
    pub fn alloc(&mut self, value: T) -> Result<CacheBox<T>, T> {
        let slot = self
            .raw
            .as_mut()
            .and_then(|raw| Some(UninitObject { object: raw.alloc()?, cache: raw.cache }));
        if self.is_empty() {
            self.raw = None;
        }
        match slot {
            Some(slot) => Ok(slot.fill(|| value)),
            None => Err(value),
        }
    }
}

impl<T> fmt::Debug for Prefilled<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prefilled").field("len", &self.len()).finish_non_exhaustive()
    }
}
