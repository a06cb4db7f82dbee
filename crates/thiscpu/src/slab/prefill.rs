//! Prefilled objects, for code in which an allocation must not fail.

use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;

use super::cache::{Cache, CacheBox, UninitObject};
use super::constructed::{Constructed, ConstructedCache, despite_panics};
use super::raw::RawCache;
use crate::error::Error;

/// Objects of a [`RawCache`], allocated in advance. Dropping it frees those left.
#[derive(Debug)]
pub struct RawPrefilled<'a> {
    cache: &'a RawCache,
    /// The first object; each holds the next one in its mark.
    first: Option<NonNull<u8>>,
    count: usize,
    /// The distance of an object's mark from the object; not 0 if objects stay constructed.
    mark: usize,
}

// SAFETY: this value owns its objects exclusively, and any thread may free an object.
unsafe impl Send for RawPrefilled<'_> {}

impl RawCache {
    /// Allocates `n` objects in advance, for code in which an allocation must not fail.
    ///
    /// # Errors
    ///
    /// [`Error::NoMemory`]; then none of them is kept.
    pub fn prefill(&self, n: usize) -> Result<RawPrefilled<'_>, Error> {
        let none = || Error::NoMemory { objects: n, bytes: self.object_bytes() };
        RawPrefilled::filled(self, n, || self.alloc().ok_or_else(none))
    }
}

impl RawPrefilled<'_> {
    /// Allocates `n` objects of a cache, each by `alloc`.
    pub(super) fn filled<E>(
        cache: &RawCache,
        n: usize,
        mut alloc: impl FnMut() -> Result<NonNull<u8>, E>,
    ) -> Result<RawPrefilled<'_>, E> {
        let mark = cache.class.shape.mark;
        let mut prefilled = RawPrefilled { cache, mark, first: None, count: 0 };
        while prefilled.count < n {
            prefilled.put(alloc()?);
        }
        Ok(prefilled)
    }

    /// Returns how many objects are left.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether no object is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn put(&mut self, object: NonNull<u8>) {
        // SAFETY: this value owns the object, whose mark is a word in it, or a word of the cache
        // behind it. Nothing else accesses the mark of an object in use.
        unsafe { object.byte_add(self.mark).cast::<Option<NonNull<u8>>>().write(self.first) };
        self.first = Some(object);
        self.count += 1;
    }

    /// Takes one of the objects; returns `None` if none is left. Touches only the object.
    ///
    /// Its first 8 bytes are 0, as for [`RawCache::alloc`].
    pub fn alloc(&mut self) -> Option<NonNull<u8>> {
        let object = self.first?;
        // SAFETY: this value owns the object, and `put` wrote the address of the next one to its
        // mark. The mark of an object in use is 0.
        unsafe {
            let mark = object.byte_add(self.mark);
            self.first = mark.cast::<Option<NonNull<u8>>>().read();
            mark.cast::<usize>().write(0);
        }
        self.count -= 1;
        Some(object)
    }
}

impl Drop for RawPrefilled<'_> {
    fn drop(&mut self) {
        // A free may drop values of unneeded slabs. If such a drop panics, the object is freed, and
        // the others remain.
        despite_panics(|| {
            while let Some(object) = self.alloc() {
                // SAFETY: the object is from this cache, and this value owned it.
                unsafe {
                    match self.mark {
                        0 => self.cache.free(object),
                        _ => self.cache.free_constructed(object),
                    }
                }
            }
        });
    }
}

/// Objects of a cache that is never dropped. Once none is left, the cache may be closed.
struct Objects(Option<RawPrefilled<'static>>);

impl Objects {
    fn len(&self) -> usize {
        self.0.as_ref().map_or(0, RawPrefilled::len)
    }

    /// Takes an object, and returns it with its cache.
    fn alloc(&mut self) -> Option<(NonNull<u8>, &'static RawCache)> {
        let raw = self.0.as_mut()?;
        let object = (raw.alloc()?, raw.cache);
        if self.len() == 0 {
            self.0 = None;
        }
        Some(object)
    }
}

/// Objects of a [`Cache`], allocated in advance. Dropping it frees those left.
///
/// ```
/// static NODES: thiscpu::Cache<[u64; 4]> = thiscpu::Cache::new();
///
/// // This may fail:
/// let mut nodes = NODES.prefill(2)?;
/// // This cannot:
/// let node = nodes.alloc([1, 2, 3, 4]).unwrap();
/// assert_eq!((node[3], nodes.len()), (4, 1));
/// # Ok::<(), thiscpu::Error>(())
/// ```
pub struct Prefilled<T> {
    objects: Objects,
    holds: PhantomData<fn(T) -> T>,
}

impl<T> Cache<T> {
    /// Allocates `n` objects in advance, for code in which an allocation must not fail.
    ///
    /// # Errors
    ///
    /// [`Error::NoMemory`]; then none of them is kept.
    pub fn prefill(&self, n: usize) -> Result<Prefilled<T>, Error> {
        let raw = match n {
            0 => None,
            _ => {
                let none = Error::NoMemory { objects: n, bytes: size_of::<T>() };
                Some(self.raw().ok_or(none)?.prefill(n)?)
            }
        };
        Ok(Prefilled { objects: Objects(raw), holds: PhantomData })
    }
}

impl<T> Prefilled<T> {
    /// Returns how many objects are left.
    #[must_use]
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Returns whether no object is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts a value into one of the objects.
    ///
    /// # Errors
    ///
    /// The value, if no object is left.
    pub fn alloc(&mut self, value: T) -> Result<CacheBox<T>, T> {
        match self.objects.alloc() {
            Some((object, cache)) => Ok(UninitObject { object, cache }.fill(|| value)),
            None => Err(value),
        }
    }
}

impl<T> fmt::Debug for Prefilled<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prefilled").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// Objects of a [`ConstructedCache`], allocated in advance. Dropping it frees those left.
///
/// Their values are constructed. To free an object may drop values of unneeded slabs, as the drop
/// of a [`Constructed`] may.
///
/// ```
/// static BUFFERS: thiscpu::ConstructedCache<Vec<u8>> =
///     thiscpu::ConstructedCache::new(|| Vec::with_capacity(4096));
///
/// // This may fail, and runs the constructor:
/// let mut buffers = BUFFERS.prefill(2)?;
/// // This cannot fail, and allocates nothing:
/// let mut buffer = buffers.alloc().unwrap();
/// buffer.extend_from_slice(b"GET /");
/// assert_eq!(buffers.len(), 1);
/// # buffer.clear();
/// # Ok::<(), thiscpu::Error>(())
/// ```
pub struct ConstructedPrefilled<T> {
    objects: Objects,
    owns: PhantomData<T>,
    /// The values outlive this, so lifetimes in `T` must not be shortened.
    holds: PhantomData<fn(T) -> T>,
}

impl<T> ConstructedCache<T> {
    /// Allocates `n` objects in advance, for code in which an allocation must not fail.
    ///
    /// Costs as much as `n` calls of [`alloc`](Self::alloc), and takes the locks that they take.
    ///
    /// # Errors
    ///
    /// [`Error::NoMemory`]; then none of them is kept.
    ///
    /// # Panics
    ///
    /// If the constructor does; then none of them is kept.
    pub fn prefill(&self, n: usize) -> Result<ConstructedPrefilled<T>, Error> {
        let none = || Error::NoMemory { objects: n, bytes: size_of::<T>() };
        let raw = match n {
            0 => None,
            _ => {
                let cache = self.raw().ok_or_else(none)?;
                let alloc = || cache.alloc_constructed().ok_or_else(none);
                Some(RawPrefilled::filled(cache, n, alloc)?)
            }
        };
        let objects = Objects(raw);
        Ok(ConstructedPrefilled { objects, owns: PhantomData, holds: PhantomData })
    }
}

impl<T> ConstructedPrefilled<T> {
    /// Returns how many objects are left.
    #[must_use]
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Returns whether no object is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes one of the objects with its value, as [`ConstructedCache::alloc`] returns it.
    ///
    /// Returns `None` if no object is left. Costs a few instructions, needs no memory, and runs no
    /// constructor.
    pub fn alloc(&mut self) -> Option<Constructed<T>> {
        self.objects.alloc().map(|(object, cache)| Constructed::new(object, cache))
    }
}

impl<T> fmt::Debug for ConstructedPrefilled<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConstructedPrefilled").field("len", &self.len()).finish_non_exhaustive()
    }
}
