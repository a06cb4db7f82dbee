//! What inlined calls read of the library. `thiscpu_inline.h` declares it constant, so that a loop of adds loads it once. What changes is
//! where a thread's lane is found: nowhere, until the first handle is made. Who has loaded it before that calls the library's functions, which is slower
//! and no less right.
//!
//! A program that is linked with the shared library may have a copy of `thiscpu_inline_abi_3` of its own in its place, as of any variable (a copy
//! relocation). It is changed in here by its address, which is then that of the copy.

use std::sync::atomic::AtomicUsize;

use thiscpu::inside::foreign::InlineAbi;

/// Its name changes with anything that inlined calls rely on: what was compiled with another header does not start with this library then.
#[unsafe(export_name = "thiscpu_inline_abi_3")]
pub static INLINE_ABI: InlineAbi = InlineAbi::closed();

/// Called when the tier is asked for, and whenever a handle is made: whoever has one finds what is known.
pub(crate) fn publish() {
    INLINE_ABI.publish();
}

/// What tells by which copy of the library calls of this name are answered.
#[unsafe(no_mangle)]
pub extern "C" fn thiscpu_inline_abi_3_table() -> *const AtomicUsize {
    InlineAbi::own_table()
}

extern "C" fn begin() {
    // By their addresses as others see them, which the compiler must not think it knows: they may be another copy's.
    let table: extern "C" fn() -> *const AtomicUsize =
        std::hint::black_box(thiscpu_inline_abi_3_table);
    let abi = std::hint::black_box(&raw const INLINE_ABI);
    // SAFETY: it is this static, or another copy's, which has the same fields.
    unsafe { &*abi }.start(table());
}

/// Of those functions that are called when the library is loaded, before any of the code that it is loaded for.
#[used]
#[unsafe(link_section = ".init_array.00101")]
static BEGIN: extern "C" fn() = begin;
