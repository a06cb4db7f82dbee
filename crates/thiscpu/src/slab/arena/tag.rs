//! Tags: what the memory of a chunk is used for.
//!
//! ```text
//! of a fast path, as stored: | bits that no address has : 8 | 0 : 8 | tag : 16 |
//! of another use, as stored: | negated tag : 16                     | 0 : 16   |
//! ```
//!
//! The objects of a slab lie at multiples of their size, so their addresses lack the lowest bits
//! that the size lacks. The fast path of `free` finds a misaligned address by one `and` of two
//! bytes, for blocks of 8 bytes as for those at multiples of 256. A test for multiples of 16 would
//! send half of the blocks of 8 bytes on another path, by a branch that no processor predicts.

/// The kind of a chunk.
///
/// A slab whose class has a tag of its own has that tag. It is above 0 if fast paths are to find
/// the class. It is below `ANY_CACHE` if the class is one of large objects, and at most
/// [`LANELESS`] if the class has no cells in lanes.
///
/// A slab of other objects has the negated tag while some of its pages are dropped.
///
/// A tag is at least `-0xffff`, and at most `0xffff`.
pub type Tag = i32;
/// The tag of a chunk that is free, or not the first one of a large block.
pub const NO_TAG: Tag = 0;
/// The tag of the first chunk of a large block.
pub(crate) const LARGE: Tag = -1;
/// The tag of a slab of a cache that has no tag of its own.
pub(crate) const ANY_CACHE: Tag = -2;
/// The first tag, downwards, for classes whose objects are only in slabs.
pub const LANELESS: Tag = -(1 << 15);

/// The bytes from a stored tag to its bits that no address has.
pub const BITS_OFFSET: usize = 3;
/// The bits of addresses that fast paths test.
const TESTED_BITS: usize = 0xff;

/// Returns whether a tag is that of a class of large objects.
///
/// The tag is the class's own, or that of a slab without dropped pages.
pub(crate) const fn is_large_class(tag: Tag) -> bool {
    LANELESS < tag && tag < ANY_CACHE
}

/// Returns whether a tag belongs to a class with a tag of its own, which can be negated.
pub(crate) const fn is_of_class(tag: Tag) -> bool {
    is_large_class(tag) || is_large_class(-tag)
}

/// Returns the stored form of the tag of a slab with objects of `size`.
pub(super) const fn encode(tag: Tag, size: usize) -> u32 {
    debug_assert!(tag.unsigned_abs() <= 0xffff);
    if tag > NO_TAG {
        let bits = ((1 << size.trailing_zeros()) - 1) & TESTED_BITS;
        (bits << (8 * BITS_OFFSET)) as u32 | tag.unsigned_abs()
    } else {
        tag.unsigned_abs() << 16
    }
}

/// Returns the tag of a stored one.
#[inline(always)]
pub(super) const fn decode(stored: u32) -> Tag {
    match stored & 0xffff {
        0 => -((stored >> 16) as Tag),
        tag => tag as Tag,
    }
}

/// Returns the tag of a stored one if it is above 0, and if the address may be an object's.
#[inline(always)]
pub(super) const fn decode_fast(stored: u32, address: usize) -> Option<Tag> {
    if (stored >> (8 * BITS_OFFSET)) as usize & address & 0xff != 0 {
        return None;
    }
    match stored & 0xffff {
        0 => None,
        tag => Some(tag as Tag),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoding_returns_each_tag() {
        for tag in [0, 1, 5280, 0xffff, LARGE, ANY_CACHE, -5280, LANELESS - 80, -0xffff] {
            assert_eq!(decode(encode(tag, 48)), tag);
        }
        assert_eq!(encode(NO_TAG, 48), 0, "fresh memory is a chunk without a tag");
    }

    #[test]
    fn fast_paths_find_multiples_of_what_divides_the_size() {
        for (size, multiple) in [(8, 8), (24, 8), (16, 16), (48, 16), (320, 64), (4096, 256)] {
            let stored = encode(32, size);
            for address in 0x7000..0x7400 {
                let expected = (address % multiple == 0).then_some(32);
                assert_eq!(decode_fast(stored, address), expected, "{address:#x}");
            }
        }
    }

    #[test]
    fn fast_paths_find_no_tag_below_1() {
        for tag in [0, LARGE, ANY_CACHE, -32, -5280, LANELESS, LANELESS - 80, -0xffff] {
            let stored = encode(tag, 16);
            assert!((0..256).all(|address| decode_fast(stored, address).is_none()), "{tag}");
        }
    }
}
