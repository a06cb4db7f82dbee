//! A word of each thread's static TLS for heap profiles: the units until the next sample.
//!
//! It is here, and not a thread-local variable of Rust, because the first access to such a variable
//! in a shared object may allocate.

use core::arch::global_asm;
use core::sync::atomic::AtomicI64;

use super::area::{self, thread_local_offset};

global_asm!(
    ".pushsection .tbss, \"awT\", %nobits",
    ".balign 8",
    ".hidden __thiscpu_0_1_sample_left",
    ".globl __thiscpu_0_1_sample_left",
    ".type __thiscpu_0_1_sample_left, %object",
    ".size __thiscpu_0_1_sample_left, 8",
    "__thiscpu_0_1_sample_left:",
    ".zero 8",
    ".popsection",
);

/// Returns this thread's word, which starts as 0. No other thread may use the reference.
#[inline(always)]
pub fn sample_left() -> &'static AtomicI64 {
    let offset = thread_local_offset!("__thiscpu_0_1_sample_left");
    // SAFETY: the offset leads to the word in this thread's static TLS, which lives as long as the
    // thread. Callers use the reference on this thread only.
    unsafe { &*(area::thread_pointer().wrapping_add_signed(offset) as *const AtomicI64) }
}
