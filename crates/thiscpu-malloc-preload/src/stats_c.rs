//! The statistics for programs: `thiscpu_malloc.h`.
//!
//! Programs find these functions by `dlsym`, or link with the library.

use core::ffi::c_char;
use core::fmt::{self, Write};
use core::{mem, ptr};

use thiscpu_malloc::export::{ClassTotals, Totals};
use thiscpu_malloc::write_stats_json;

use crate::errno::keep_errno;

/// Stores the first `bytes` bytes of the totals; returns how many bytes there are.
#[unsafe(no_mangle)]
unsafe extern "C" fn thiscpu_malloc_stats(to: *mut Totals, bytes: usize) -> usize {
    let totals = keep_errno(Totals::now);
    // SAFETY: the caller guarantees that many writable bytes, or passes null with 0.
    unsafe { copy_prefix(&totals, to, bytes) };
    size_of::<Totals>()
}

/// Stores up to `count` classes of `bytes` bytes each; returns how many classes there are.
#[unsafe(no_mangle)]
unsafe extern "C" fn thiscpu_malloc_class_stats(
    to: *mut ClassTotals,
    bytes: usize,
    count: usize,
) -> usize {
    let mut classes = 0;
    for class in keep_errno(ClassTotals::all) {
        if classes < count {
            // SAFETY: the caller guarantees an array of `count` elements of that many bytes.
            unsafe { copy_prefix(&class, to.byte_add(classes * bytes), bytes) };
        }
        classes += 1;
    }
    classes
}

/// Copies the first `bytes` bytes of a structure, and fills the rest of `to` with zeros.
///
/// # Safety
///
/// `to` has `bytes` writable bytes.
unsafe fn copy_prefix<T>(from: &T, to: *mut T, bytes: usize) {
    let known = bytes.min(mem::size_of::<T>());
    // SAFETY: the caller guarantees that `to` has `bytes` bytes, and `from` has `known` ones.
    unsafe {
        ptr::copy_nonoverlapping(ptr::from_ref(from).cast::<u8>(), to.cast(), known);
        ptr::write_bytes(to.cast::<u8>().add(known), 0, bytes - known);
    }
}

/// Writes the statistics as JSON, cut to `bytes - 1` bytes and a zero byte, like `snprintf`.
///
/// Returns the length of the whole text without the zero byte.
#[unsafe(no_mangle)]
unsafe extern "C" fn thiscpu_malloc_stats_json(to: *mut c_char, bytes: usize) -> usize {
    let mut text = Text { to: to.cast(), room: bytes.saturating_sub(1), length: 0 };
    // `Text` never returns an error.
    let _ = keep_errno(|| write_stats_json(&mut text));
    if bytes > 0 {
        // SAFETY: the caller guarantees that many writable bytes, and this is one of them.
        unsafe { to.add(text.length.min(bytes - 1)).write(0) };
    }
    text.length
}

/// A buffer of the caller, which keeps the beginning of a text, and the text's length.
struct Text {
    to: *mut u8,
    room: usize,
    length: usize,
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let kept = text.len().min(self.room.saturating_sub(self.length));
        if kept > 0 {
            // SAFETY: the caller of `thiscpu_malloc_stats_json` guarantees `room` writable bytes,
            // and `length + kept` is not more.
            unsafe { ptr::copy_nonoverlapping(text.as_ptr(), self.to.add(self.length), kept) };
        }
        self.length += text.len();
        Ok(())
    }
}
