//! The variable that inlined calls read to find the calling thread's lane.
//!
//! `thiscpu_inline.h` declares it constant, so that a loop of adds loads it once. It does change:
//! no lane can be found until the first handle is created. A call that has loaded the earlier value
//! calls the library's function, which is slower and equally correct.
//!
//! A program that is linked with the shared library may have its own copy of
//! `thiscpu_inline_abi_5`, as of any variable (a copy relocation). The library then uses that copy,
//! because it accesses the variable by its symbol.

use std::sync::atomic::AtomicUsize;

use thiscpu::__internal::capi::InlineAbi;

use crate::last_error;

/// What inlined calls read.
///
/// The number in the symbol changes with anything that inlined calls rely on. A program that was
/// compiled with another header then fails to start instead of misbehaving.
#[unsafe(export_name = "thiscpu_inline_abi_5")]
pub static INLINE_ABI: InlineAbi = InlineAbi::closed();

/// Publishes where lanes are found, once that is known.
///
/// Called after each creation of a handle, so that a thread with a handle finds them.
pub(crate) fn publish() {
    INLINE_ABI.publish();
}

/// Identifies the copy of the library whose functions answer calls.
#[unsafe(no_mangle)]
pub extern "C" fn thiscpu_inline_abi_5_table() -> *const AtomicUsize {
    InlineAbi::own_table()
}

extern "C" fn begin() {
    last_error::silence_panics();
    // Through addresses that the compiler cannot see: both symbols may be bound to another copy of
    // the library.
    let table: extern "C" fn() -> *const AtomicUsize =
        std::hint::black_box(thiscpu_inline_abi_5_table);
    let abi = std::hint::black_box(&raw const INLINE_ABI);
    // SAFETY: the pointer leads to this static or to that of another copy of the library, which has
    // the same type because the symbol has the same number.
    unsafe { &*abi }.start(table());
}

/// Runs `begin` when the library is loaded, before the initializers of the code that uses it.
#[used]
#[unsafe(link_section = ".init_array.00101")]
static BEGIN: extern "C" fn() = begin;
