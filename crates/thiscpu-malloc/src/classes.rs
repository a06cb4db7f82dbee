//! Size classes: 8 bytes, multiples of 16 up to 256, then eight per doubling up to 32 KiB, then
//! sixteen per doubling up to 4 MiB.
//!
//! A block of its own class wastes at most 12.5 % if it is larger than 128 bytes, and 6.25 % if it
//! is larger than 32 KiB; smaller ones are rounded up to multiples of 16. The classes above 32 KiB
//! are *large*. More classes would let fewer calls find a block in their lane; fewer classes would
//! waste too much of a limit on address space, which counts whole blocks.
//!
//! A class is known by its number, or by its *cell*: the offset of its part of the item that the
//! heap has in each lane. Sections need the cell, so that is what the tables hold.

use thiscpu::__internal::CELL_BYTES;

/// The largest block that belongs to a class, in bytes. Larger blocks are runs of chunks.
pub(crate) const CLASS_SIZE_MAX: usize = 4 * 1024 * 1024;
/// The largest alignment that a class can have, because its slabs begin at multiples of it.
pub(crate) const CLASS_ALIGN_MAX: usize = 64 * 1024;
/// The number of classes.
pub(crate) const CLASS_COUNT: usize = large_class(CLASS_SIZE_MAX) + 1;
/// The largest medium size, in bytes. The classes of larger sizes are large.
pub(crate) const MEDIUM_SIZE_MAX: usize = 32 * 1024;
/// The first large class.
pub(crate) const FIRST_LARGE: usize = geometric_class(MEDIUM_SIZE_MAX) + 1;
/// The largest small size, in bytes: each size up to it has an entry in [`CELLS`].
pub const SMALL_SIZE_MAX: usize = 1024;
/// The step in which medium sizes are looked up. All their classes are multiples of it.
const MEDIUM_STEP: usize = 128;
/// The class of the smallest blocks, the only one whose blocks are not aligned to 16 bytes.
const SMALLEST_CLASS: usize = 0;
/// The size and alignment of its blocks.
const SMALLEST_SIZE: usize = 8;
/// The class of 256 bytes, the last one of the linear part.
const CLASS_256: usize = 16;

/// Returns the class for `size`, which is at most [`CLASS_SIZE_MAX`].
pub(crate) fn class_of(size: usize) -> usize {
    if size <= SMALL_SIZE_MAX {
        class_of_cell(cell_of_small(size))
    } else if size <= MEDIUM_SIZE_MAX {
        geometric_class(size)
    } else {
        large_class(size)
    }
}

/// Returns whether a class is large: its slabs have negative tags.
#[inline(always)]
pub(crate) const fn is_large(class: usize) -> bool {
    class >= FIRST_LARGE
}

/// Returns the cell of a class. It is above 0, so 0 can mean "no cell".
pub(crate) const fn cell_of_class(class: usize) -> usize {
    (class + 1) * CELL_BYTES
}

/// Returns the class that has that cell.
pub(crate) const fn class_of_cell(cell: usize) -> usize {
    cell / CELL_BYTES - 1
}

/// Returns the cell for a small size: at most [`SMALL_SIZE_MAX`].
#[inline(always)]
pub(crate) fn cell_of_small(size: usize) -> usize {
    debug_assert!(size <= SMALL_SIZE_MAX);
    // SAFETY: the table has an entry for each size up to `SMALL_SIZE_MAX`, and callers check that.
    usize::from(unsafe { *CELLS.get_unchecked(size) })
}

/// Returns the cell for a medium size: above [`SMALL_SIZE_MAX`], at most [`MEDIUM_SIZE_MAX`].
#[inline(always)]
pub(crate) fn cell_of_medium(size: usize) -> usize {
    debug_assert!((SMALL_SIZE_MAX + 1..=MEDIUM_SIZE_MAX).contains(&size));
    // SAFETY: the table has an entry for each step up to `MEDIUM_SIZE_MAX`, and callers check that.
    usize::from(unsafe { *MEDIUM_CELLS.get_unchecked(size.div_ceil(MEDIUM_STEP)) })
}

/// Returns the class for a size above [`MEDIUM_SIZE_MAX`], at most [`CLASS_SIZE_MAX`].
///
/// The four bits below the highest choose one of the sixteen classes of a doubling.
pub(crate) const fn large_class(size: usize) -> usize {
    let last = size - 1;
    let doubling = last.ilog2() as usize;
    FIRST_LARGE + (doubling - 15) * 16 + (last >> (doubling - 4) & 15)
}

/// Returns the class for `size`, which is above 256 and at most [`MEDIUM_SIZE_MAX`].
///
/// The three bits below the highest choose one of the eight classes of a doubling.
const fn geometric_class(size: usize) -> usize {
    let last = size - 1;
    let doubling = last.ilog2() as usize;
    CLASS_256 + (doubling - 8) * 8 + (last >> (doubling - 3) & 7) + 1
}

/// Returns the class for `size`, which is at most 256.
const fn linear_class(size: usize) -> usize {
    if size <= SMALLEST_SIZE { SMALLEST_CLASS } else { size.div_ceil(16) }
}

/// The cell for each small size: one load finds it. A program uses few of the cache lines.
pub static CELLS: [u16; SMALL_SIZE_MAX + 1] = {
    let mut cells = [0; SMALL_SIZE_MAX + 1];
    let mut size = 0;
    while size < cells.len() {
        let class = if size <= 256 { linear_class(size) } else { geometric_class(size) };
        cells[size] = cell_of_class(class) as u16;
        size += 1;
    }
    cells
};

/// The cell for each multiple of [`MEDIUM_STEP`]. Entries of small sizes are unused.
static MEDIUM_CELLS: [u16; MEDIUM_SIZE_MAX / MEDIUM_STEP + 1] = {
    let mut cells = [0; MEDIUM_SIZE_MAX / MEDIUM_STEP + 1];
    let mut steps = SMALL_SIZE_MAX / MEDIUM_STEP + 1;
    while steps < cells.len() {
        cells[steps] = cell_of_class(geometric_class(steps * MEDIUM_STEP)) as u16;
        steps += 1;
    }
    cells
};

/// Returns the size of a class's blocks, in bytes.
pub(crate) const fn size_of_class(class: usize) -> usize {
    match class {
        SMALLEST_CLASS => SMALLEST_SIZE,
        1..=CLASS_256 => class * 16,
        FIRST_LARGE.. => {
            let (doubling, sixteenth) = ((class - FIRST_LARGE) / 16, (class - FIRST_LARGE) % 16);
            (MEDIUM_SIZE_MAX << doubling) / 16 * (17 + sixteenth)
        }
        _ => {
            let (doubling, eighth) = ((class - CLASS_256 - 1) / 8, (class - CLASS_256 - 1) % 8);
            (256 << doubling) / 8 * (9 + eighth)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_is_the_smallest_that_holds_the_size() {
        for size in 0..=CLASS_SIZE_MAX {
            let class = class_of(size);
            assert!(size_of_class(class) >= size, "{size}");
            assert!(class == 0 || size_of_class(class - 1) < size, "{size}");
            assert_eq!(is_large(class), size > MEDIUM_SIZE_MAX, "{size}");
            if size > SMALL_SIZE_MAX && size <= MEDIUM_SIZE_MAX {
                assert_eq!(cell_of_medium(size), cell_of_class(class), "{size}");
            }
        }
        assert_eq!(size_of_class(CLASS_COUNT - 1), CLASS_SIZE_MAX);
    }

    #[test]
    fn class_wastes_at_most_an_eighth_and_large_one_a_sixteenth() {
        for size in 129..=CLASS_SIZE_MAX {
            let block = size_of_class(class_of(size));
            let divisor = if size > MEDIUM_SIZE_MAX { 16 } else { 8 };
            assert!(block - size <= block / divisor, "{size} in {block}");
        }
        for class in 1..CLASS_COUNT {
            assert!(size_of_class(class).is_multiple_of(16));
        }
    }
}
