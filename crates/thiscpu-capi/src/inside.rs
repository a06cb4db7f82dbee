//! What inlined calls read of the library: where sections find a thread's lane. `thiscpu_inline.h` declares the same, and declares it
//! constant, so that a loop of adds loads it once. That is true because it is stored before anything else of the program runs.
//!
//! A program that is linked with the shared library may have a copy of `thiscpu_inside_1` of its own in its place, as of any variable (a copy
//! relocation). It is changed in here by its address, which is then that of the copy.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use thiscpu::inside::foreign;

/// In the order in which the header has it.
#[repr(C)]
pub struct Inside {
    /// The offsets of the rseq area and, in the upper half, of the index from the thread pointer: in one word, so that whoever loads it
    /// has both or neither.
    offsets: AtomicU64,
    table: *const AtomicUsize,
}

// SAFETY: the table is static, and of atomics.
unsafe impl Sync for Inside {}

/// Its name changes with anything that inlined calls rely on: what was compiled with another header does not start with this library then.
#[unsafe(export_name = "thiscpu_inside_1")]
pub static INSIDE: Inside = Inside { offsets: AtomicU64::new(0), table: foreign::table() };

/// Chooses a tier, as the first use would. A wrong `THISCPU_TIER` is said by whatever is used first.
extern "C" fn begin() {
    let is_chosen = std::panic::catch_unwind(thiscpu::tier).is_ok_and(|tier| tier.is_ok());
    let [area, index] = if is_chosen { foreign::offsets() } else { [0, 0] };
    // No program has that much of static TLS.
    let (Ok(area), Ok(index)) = (i32::try_from(area), i32::try_from(index)) else { return };
    // Relaxed: whoever loads it comes after it in program order, or was started by somebody who does.
    INSIDE.offsets.store(u64::from(area as u32) | u64::from(index as u32) << 32, Relaxed);
}

/// Of those functions that are called before `main`, after the C library's own and before those of programs.
#[used]
#[unsafe(link_section = ".init_array.00101")]
static BEGIN: extern "C" fn() = begin;
