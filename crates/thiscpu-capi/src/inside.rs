//! What inlined calls read of the library: where sections find a thread's lane. `thiscpu_inline.h` declares the same, and declares it
//! constant, so that a loop of adds loads it once. It changes once, from nothing to what it is from then on, when the first handle is made; who has
//! loaded it before that calls the library's functions, which is slower and no less right.
//!
//! A program that is linked with the shared library may have a copy of `thiscpu_inside_1` of its own in its place, as of any variable (a copy
//! relocation). It is changed in here by its address, which is then that of the copy.

use std::sync::atomic::{
    AtomicI64, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, Release},
};

use thiscpu::inside::foreign;

/// In the order in which the header has it.
#[repr(C)]
pub struct Inside {
    /// The offsets of the rseq area and, in the upper half, of the index from the thread pointer: in one word, so that whoever loads it
    /// has both or neither. No section can be entered if the first is 0.
    offsets: AtomicU64,
    table: *const AtomicUsize,
    /// The offset of the thread's habit from the thread pointer.
    habit: AtomicI64,
}

// SAFETY: the table is static, and of atomics.
unsafe impl Sync for Inside {}

/// Its name changes with anything that inlined calls rely on: what was compiled with another header does not start with this library then.
#[unsafe(export_name = "thiscpu_inside_1")]
pub static INSIDE: Inside =
    Inside { offsets: AtomicU64::new(0), table: foreign::table(), habit: AtomicI64::new(0) };

const UNKNOWN: u64 = 0;
/// No section is to be entered, ever.
const NEVER: u64 = 1 << 32;

/// Called whenever a handle is made: whoever has one finds what is known.
pub(crate) fn publish() {
    let [area, index] = foreign::offsets();
    // No program has that much of static TLS.
    let (Ok(area), Ok(index)) = (i32::try_from(area), i32::try_from(index)) else { return };
    let offsets = u64::from(area as u32) | u64::from(index as u32) << 32;
    // Relaxed: known before `offsets` are.
    INSIDE.habit.store(foreign::habit_offset() as i64, Relaxed);
    // Release: whoever was handed a handle finds what was stored before it was made.
    let _ = INSIDE.offsets.compare_exchange(UNKNOWN, offsets, Release, Relaxed);
}

/// Two copies of the library in one process have two of these variables, unless the linker was told to bind functions within each shared object
/// and not variables (`-Bsymbolic-functions`). Inlined calls of one would then use the other's lanes, so there must be none.
extern "C" fn begin() {
    // By its address as others see it, which the compiler must not think it knows.
    let inside = std::hint::black_box(&raw const INSIDE);
    // SAFETY: it is this static, or another copy's, which has the same fields.
    let inside = unsafe { &*inside };
    if std::hint::black_box(inside.table) != foreign::table() {
        inside.offsets.store(NEVER, Relaxed);
    }
}

/// Of those functions that are called when the library is loaded, before any of the code that it is loaded for.
#[used]
#[unsafe(link_section = ".init_array.00101")]
static BEGIN: extern "C" fn() = begin;
