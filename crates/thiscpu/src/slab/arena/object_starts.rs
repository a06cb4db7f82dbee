//! Where the objects of a slab begin, for calls that must know it without a division.

use super::slab::Shape;

/// The offsets in a slab at which objects begin.
///
/// A size is an odd number times a power of two. A multiple of the odd number, times its inverse
/// modulo 2^32, is the quotient. Any other number gets a larger product than every multiple does
/// (Granlund and Montgomery, 1994). The rotation does the same for the power of two.
#[derive(Clone, Copy, Debug)]
pub(in crate::slab) struct ObjectStarts {
    inverse: u32,
    shift: u32,
    objects: u32,
}

impl ObjectStarts {
    pub(in crate::slab) const fn of(shape: Shape) -> ObjectStarts {
        let shift = shape.size.trailing_zeros();
        let odd = (shape.size >> shift) as u32;
        // Each step doubles the number of correct bits; an odd number is its own inverse modulo 8.
        let (mut inverse, mut bits) = (odd, 3);
        while bits < u32::BITS {
            inverse = inverse.wrapping_mul(2_u32.wrapping_sub(odd.wrapping_mul(inverse)));
            bits *= 2;
        }
        ObjectStarts { inverse, shift, objects: shape.objects() as u32 }
    }

    /// Returns whether an object begins at an offset.
    #[inline(always)]
    pub(in crate::slab) const fn contain(self, offset: u32) -> bool {
        offset.wrapping_mul(self.inverse).rotate_right(self.shift) < self.objects
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::arena::CHUNK_BYTES;

    #[test]
    fn object_starts_are_the_multiples_of_the_size() {
        for size in [8, 24, 4096, 34 * 1024, 62 * 1024, 544 * 1024, 4 << 20] {
            for shape in [Shape::of(size), Shape::of_large(size)] {
                let starts = ObjectStarts::of(shape);
                // In steps that meet every multiple, and many other offsets.
                for offset in
                    (0..shape.chunks * CHUNK_BYTES).step_by(if size < 4096 { 1 } else { 8 })
                {
                    let is_start = offset % size == 0 && offset / size < shape.objects();
                    assert_eq!(starts.contain(offset as u32), is_start, "{offset} in {shape:?}");
                }
            }
        }
    }
}
