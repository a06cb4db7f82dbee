//! Two words of each thread's static TLS for heap profiles.
//!
//! They are the units until the next sample, and the interval by which those were drawn. They are
//! here, and not thread-local variables of Rust, because the first access to such a variable
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
    ".size __thiscpu_0_1_sample_left, 16",
    "__thiscpu_0_1_sample_left:",
    ".zero 16",
    ".popsection",
);

/// Returns this thread's words, which start as 0. No other thread may use the reference.
#[inline(always)]
pub fn sample_left() -> &'static [AtomicI64; 2] {
    let offset = thread_local_offset!("__thiscpu_0_1_sample_left");
    // SAFETY: the offset leads to the words in this thread's static TLS, which lives as long as the
    // thread. Callers use the reference on this thread only.
    unsafe { &*(area::thread_pointer().wrapping_add_signed(offset) as *const [AtomicI64; 2]) }
}
