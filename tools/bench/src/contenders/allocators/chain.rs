//! Free objects, linked through their first words.

use std::{
    mem, ptr,
    sync::atomic::{AtomicPtr, Ordering::Relaxed},
};

/// So many free objects, of which each leads to the next and the last to null.
pub(super) struct Chain {
    head: *mut u8,
    count: usize,
}

// SAFETY: nobody else has its objects, and they are memory like any other.
unsafe impl Send for Chain {}

impl Default for Chain {
    fn default() -> Self {
        Self { head: ptr::null_mut(), count: 0 }
    }
}

impl Chain {
    /// The chain that begins at `head`.
    ///
    /// # Safety
    ///
    /// There are `count` objects in it, which nobody else has.
    pub(super) unsafe fn from_parts(head: *mut u8, count: usize) -> Self {
        Self { head, count }
    }

    /// Where it begins, and how many objects it has.
    pub(super) fn into_parts(self) -> (*mut u8, usize) {
        (self.head, self.count)
    }

    /// How many objects it has.
    #[inline(always)]
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Makes `object` the first one.
    ///
    /// # Safety
    ///
    /// It has room for a word, aligned, and nobody else has it.
    #[inline(always)]
    pub(super) unsafe fn push(&mut self, object: *mut u8) {
        // SAFETY: by this function's own contract.
        unsafe { link(object).store(self.head, Relaxed) };
        self.head = object;
        self.count += 1;
    }

    /// Takes the first object out; null if there is none.
    #[inline(always)]
    pub(super) fn pop(&mut self) -> *mut u8 {
        if self.head.is_null() {
            return ptr::null_mut();
        }
        // SAFETY: it is a free object, which has its link in its first word. Relaxed: whoever hands chains
        // from thread to thread orders what is in them.
        let next = unsafe { link(self.head).load(Relaxed) };
        self.count -= 1;
        mem::replace(&mut self.head, next)
    }
}

/// The word of a free object that leads to the next.
///
/// # Safety
///
/// The object is valid for reads and writes of a word, aligned, for as long as the link is used.
#[inline(always)]
pub(super) unsafe fn link<'a>(object: *mut u8) -> &'a AtomicPtr<u8> {
    // SAFETY: by this function's own contract.
    unsafe { AtomicPtr::from_ptr(object.cast()) }
}
