//! What the slabs of a cache need to know of it, and how their objects are encoded and marked.

use crate::slab::arena::heap_error::HeapError;
use crate::slab::arena::slab::{Shape, TakenObject};
use crate::slab::arena::{Tag, is_large_class};
use crate::slab::lane::encoding::{self, Key};

/// The properties of a cache that its slabs depend on.
#[derive(Clone, Copy)]
pub(crate) struct CacheInfo {
    pub(crate) owner: u32,
    pub(crate) shape: Shape,
    pub(crate) tag: Tag,
    pub(crate) key: Key,
}

/// Distance from an object's address to the one that stands for it if the object is all zero.
///
/// Objects begin at multiples of eight bytes, so no object begins there.
const ZERO_SHIFT: usize = 2;

impl CacheInfo {
    /// Returns whether the objects are those of a class of large objects.
    pub(crate) fn is_large(self) -> bool {
        is_large_class(self.tag)
    }

    /// Encodes the pointer to an object just taken; only one that was never handed out is even.
    ///
    /// An object that is all zero is encoded as if it began [`ZERO_SHIFT`] bytes further on.
    pub(super) fn encode_taken(self, taken: TakenObject) -> usize {
        let object = taken.object + ZERO_SHIFT * usize::from(taken.is_zero);
        self.key.encode(object) & !usize::from(taken.is_fresh)
    }

    /// Checks or sets the mark of an object that leaves its slab; returns its encoded pointer.
    ///
    /// An object that was never handed out gets its mark now. Any other must still have it.
    pub(super) fn leave_slab(self, encoded: usize) -> usize {
        let odd = encoded | 1;
        if encoded != odd {
            return self.leave_slab_fresh(self.key.decode(odd));
        } else if !self.is_marked(odd) {
            HeapError::WriteAfterFree.report(self.key.decode(odd), self.shape.size);
        }
        odd
    }

    /// Marks an object that was never handed out; returns its encoded pointer.
    fn leave_slab_fresh(self, shifted: usize) -> usize {
        let object = shifted & !ZERO_SHIFT;
        let encoded = self.key.encode(object);
        self.mark_fresh(encoded);
        if self.is_large() {
            // Cleared otherwise: the object that was here before may have left its zero mark, and
            // the memory may have been in use since.
            let mark = if object != shifted { encoding::zero_mark(encoded) } else { 0 };
            encoding::set_mark(encoding::zero_word(object), mark);
        }
        encoded
    }

    pub(crate) fn mark_of(self, encoded: usize) -> usize {
        self.key.decode(encoded) + self.shape.mark
    }

    fn mark_fresh(self, encoded: usize) {
        let stays_constructed = self.shape.mark != 0;
        encoding::set_mark(
            self.mark_of(encoded),
            if stays_constructed { encoding::unconstructed_mark(encoded) } else { encoded },
        );
    }

    pub(super) fn is_marked(self, encoded: usize) -> bool {
        let mark = encoding::load_mark(self.mark_of(encoded));
        mark == encoded || (self.shape.mark != 0 && mark == encoding::unconstructed_mark(encoded))
    }
}

#[cfg(all(test, not(thiscpu_model)))]
mod tests {
    use super::*;

    #[test]
    fn zero_mark_is_cleared_when_memory_is_no_longer_zero() {
        let mut memory = [0_usize; 4];
        let object = (&raw mut memory).expose_provenance();
        let info = CacheInfo {
            tag: -100,
            owner: 0,
            shape: Shape::of_large(64 * 1024),
            key: Key(0x1234_5678_9abc_def1),
        };
        let word = |is_zero| {
            let taken = TakenObject { object, is_fresh: true, is_zero };
            let encoded = info.leave_slab(info.encode_taken(taken));
            assert_eq!(encoded, info.key.encode(object));
            encoding::load_mark(encoding::zero_word(object)) == encoding::zero_mark(encoded)
        };
        // The second time, the object is of another slab, whose memory was in use.
        assert_eq!([true, false, true].map(word), [true, false, true]);
    }
}
