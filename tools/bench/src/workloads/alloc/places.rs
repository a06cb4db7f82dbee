//! The objects of one thread, each at a place with a number.

use std::{mem, ptr};

use super::touch::alloc_and_touch_each;
use crate::contenders::allocators::Allocator;

/// A byte is written to each page of an object.
const PAGE: usize = 4096;

/// An object with its size; null at a place without one.
type Object = (*mut u8, usize);

const NONE: Object = (ptr::null_mut(), 0);

/// Places for objects of one allocator, which are freed when this is dropped.
pub(super) struct Places<'a, A: Allocator> {
    allocator: &'a A,
    objects: Vec<Object>,
}

impl<'a, A: Allocator> Places<'a, A> {
    /// Makes `count` places without objects.
    pub(super) fn new(allocator: &'a A, count: usize) -> Self {
        Self { allocator, objects: vec![NONE; count] }
    }

    /// Frees the object at a place, if there is one, and returns whether there was.
    #[inline(always)]
    pub(super) fn free(&mut self, place: usize) -> bool {
        let (object, size) = mem::replace(&mut self.objects[place], NONE);
        if object.is_null() {
            return false;
        }
        // SAFETY: objects at places are from `alloc`, with their sizes. The place has just
        // forgotten this one, and nothing else uses it.
        unsafe { self.allocator.free(object, size) };
        true
    }

    /// Frees the object at a place, if there is one, and allocates one of `size` bytes there.
    #[inline(always)]
    pub(super) fn alloc(&mut self, place: usize, size: usize) {
        self.free(place);
        self.objects[place] = (alloc_and_touch_each(self.allocator, size, PAGE), size);
    }
}

impl<A: Allocator> Drop for Places<'_, A> {
    fn drop(&mut self) {
        for place in 0..self.objects.len() {
            self.free(place);
        }
    }
}
