//! Lists of free objects, linked through their first words.

use std::{
    mem, ptr,
    sync::atomic::{AtomicPtr, Ordering::Relaxed},
};

/// A list of `count` free objects: each links to the next, and the last to null.
pub(super) struct Chain {
    head: *mut u8,
    count: usize,
}

// SAFETY: the chain owns its objects, which are plain memory that is not bound to a thread.
unsafe impl Send for Chain {}

impl Default for Chain {
    fn default() -> Self {
        Self { head: ptr::null_mut(), count: 0 }
    }
}

impl Chain {
    /// Returns the chain that begins at `head`.
    ///
    /// # Safety
    ///
    /// The chain must have `count` objects, and the caller must own all of them.
    pub(super) unsafe fn from_parts(head: *mut u8, count: usize) -> Self {
        Self { head, count }
    }

    pub(super) fn into_parts(self) -> (*mut u8, usize) {
        (self.head, self.count)
    }

    #[inline(always)]
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Makes `object` the first object.
    ///
    /// # Safety
    ///
    /// The object must have room for an aligned word, and the caller must own it.
    #[inline(always)]
    pub(super) unsafe fn push(&mut self, object: *mut u8) {
        // SAFETY: the caller guarantees that the object has room for an aligned word and that no
        // other thread uses it.
        unsafe { link(object).store(self.head, Relaxed) };
        self.head = object;
        self.count += 1;
    }

    /// Removes and returns the first object; null if the chain is empty.
    #[inline(always)]
    pub(super) fn pop(&mut self) -> *mut u8 {
        if self.head.is_null() {
            return ptr::null_mut();
        }
        // SAFETY: the head is a free object of this chain, whose first word is its link. Relaxed:
        // the code that passes a chain to another thread also orders its content.
        let next = unsafe { link(self.head).load(Relaxed) };
        self.count -= 1;
        mem::replace(&mut self.head, next)
    }
}

/// Returns the word of a free object that links to the next one.
///
/// # Safety
///
/// The object must be valid for reads and writes of an aligned word for as long as the link is
/// used.
#[inline(always)]
pub(super) unsafe fn link<'a>(object: *mut u8) -> &'a AtomicPtr<u8> {
    // SAFETY: the caller guarantees that the object is valid for reads and writes of an aligned
    // word while the reference lives.
    unsafe { AtomicPtr::from_ptr(object.cast()) }
}
