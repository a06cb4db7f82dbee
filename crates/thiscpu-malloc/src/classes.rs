//! Size classes: 8 bytes, multiples of 16 up to 256, and from there eight to each doubling, up to 32 KiB.
//!
//! A block of a class above 128 bytes has at most 12.5 % that was not asked for; below that, what alignment to 16 bytes takes.

use thiscpu::inside::CELL_BYTES;

/// The largest class.
pub(crate) const SIZE_MAX: usize = 32 * 1024;
/// How many there are.
pub(crate) const COUNT: usize = class_of_larger(SIZE_MAX) + 1;
/// Sizes up to this one are looked up as they are; larger ones in steps, which no class has a part of.
pub const LOOKED_UP: usize = 1024;
const STEP: usize = 128;
/// The class of 256 bytes.
const CLASS_256: usize = 16;

/// The class of so many bytes, which are at most [`SIZE_MAX`].
pub(crate) fn class_of(size: usize) -> usize {
    if size <= LOOKED_UP { class_of_cell(cell_looked_up(size)) } else { class_of_larger(size) }
}

/// The cell of a class: where its part of the lanes' item begins. That is above 0, so that it can be the tag of its slabs.
pub(crate) const fn cell_of_class(class: usize) -> usize {
    (class + 1) * CELL_BYTES
}

/// The class that has that cell.
pub(crate) const fn class_of_cell(cell: usize) -> usize {
    cell / CELL_BYTES - 1
}

/// The cell of the class of at most [`LOOKED_UP`] bytes.
#[inline(always)]
pub(crate) fn cell_looked_up(size: usize) -> usize {
    debug_assert!(size <= LOOKED_UP);
    // SAFETY: there is one for each size up to that.
    usize::from(unsafe { *CELLS.get_unchecked(size) })
}

/// The cell of the class of more than [`LOOKED_UP`] bytes, and at most [`SIZE_MAX`].
#[inline(always)]
pub(crate) fn larger_cell_looked_up(size: usize) -> usize {
    debug_assert!((LOOKED_UP + 1..=SIZE_MAX).contains(&size));
    // SAFETY: there is one for each number of steps up to that.
    usize::from(unsafe { *LARGER_CELLS.get_unchecked(size.div_ceil(STEP)) })
}

/// The class of more than 256 bytes. Two bits below the highest, and one, say which of the eight.
const fn class_of_larger(size: usize) -> usize {
    let last = size - 1;
    let doubling = last.ilog2() as usize;
    CLASS_256 + (doubling - 8) * 8 + (last >> (doubling - 3) & 7) + 1
}

const fn class_of_smaller(size: usize) -> usize {
    if size <= 8 { 0 } else { size.div_ceil(16) }
}

/// The cell of the class of each size up to [`LOOKED_UP`]: one load finds it. A program uses few of its cache lines.
pub static CELLS: [u16; LOOKED_UP + 1] = {
    let mut cells = [0; LOOKED_UP + 1];
    let mut size = 0;
    while size < cells.len() {
        let class = if size <= 256 { class_of_smaller(size) } else { class_of_larger(size) };
        cells[size] = cell_of_class(class) as u16;
        size += 1;
    }
    cells
};

/// The same of so many steps. Those that are not above [`LOOKED_UP`] are nobody's.
static LARGER_CELLS: [u16; SIZE_MAX / STEP + 1] = {
    let mut cells = [0; SIZE_MAX / STEP + 1];
    let mut steps = LOOKED_UP / STEP + 1;
    while steps < cells.len() {
        cells[steps] = cell_of_class(class_of_larger(steps * STEP)) as u16;
        steps += 1;
    }
    cells
};

/// The bytes of a class's blocks.
pub(crate) const fn size_of_class(class: usize) -> usize {
    match class {
        0 => 8,
        1..=CLASS_256 => class * 16,
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
    fn each_size_has_the_smallest_class_that_holds_it() {
        for size in 0..=SIZE_MAX {
            let class = class_of(size);
            assert!(size_of_class(class) >= size, "{size}");
            assert!(class == 0 || size_of_class(class - 1) < size, "{size}");
            if size > LOOKED_UP {
                assert_eq!(larger_cell_looked_up(size), cell_of_class(class), "{size}");
            }
        }
        assert_eq!(size_of_class(COUNT - 1), SIZE_MAX);
    }

    #[test]
    fn little_is_left_over() {
        for size in 129..=SIZE_MAX {
            let block = size_of_class(class_of(size));
            assert!(block - size <= block / 8, "{size} in {block}");
        }
        for class in 1..COUNT {
            assert!(size_of_class(class).is_multiple_of(16));
        }
    }
}
