//! Where near sections look for their thread's lane index: a word of each thread's own says where that is.
//!
//! Other sections add offsets to the thread pointer, and look whether the thread is registered. Near ones load this word, which is four less than the
//! address of the index in the thread's rseq area; the bits that tell `cpu_id` from `mm_cid` taken away, it is the area's own. It is 0, and the section refused,
//! as long as it is not known that the thread is registered: also while a program is being linked, when no thread-local variable has got its value yet.
//!
//! | the word | where the index is |
//! |---|---|
//! | area + 20 | `mm_cid` |
//! | area + 0 | `cpu_id` |
//!
//! The word is set on slow paths, and taken back when this library gives a registration up. Who takes one away behind its back, where lanes are by `mm_cid`,
//! has near sections run without it: nobody who shares a C library's registration does.

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

use super::rseq;

/// What a near section takes away from the word, and then it is its area's address.
const FIELD: usize = rseq::MM_CID - rseq::CPU_ID;
/// What it leaves.
pub const NOT_FIELD: isize = -1 - FIELD as isize;
// Areas are at multiples of 32.
const _: () = assert!(FIELD < 32);

global_asm!(
    ".pushsection .tbss, \"awT\", %nobits",
    ".balign 8",
    ".hidden __thiscpu_0_1_near",
    ".globl __thiscpu_0_1_near",
    ".type __thiscpu_0_1_near, %object",
    ".size __thiscpu_0_1_near, 8",
    "__thiscpu_0_1_near:",
    ".zero 8",
    ".popsection",
);

/// This thread's word.
fn word() -> &'static AtomicUsize {
    let offset: isize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: loads a constant that the linker or loader wrote into the GOT.
    unsafe {
        asm!(
            "mov {}, [rip + __thiscpu_0_1_near@gottpoff]",
            out(reg) offset,
            options(nostack, readonly, preserves_flags)
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: loads a constant that the linker or loader wrote into the GOT.
    unsafe {
        asm!(
            "adrp {0}, :gottprel:__thiscpu_0_1_near",
            "ldr {0}, [{0}, :gottprel_lo12:__thiscpu_0_1_near]",
            out(reg) offset,
            options(nostack, readonly, preserves_flags)
        );
    }
    // SAFETY: the address is that of the word in this thread's static TLS, which lives as long as the thread; the reference is not
    // handed to other threads.
    unsafe { &*(rseq::thread_pointer().wrapping_add_signed(offset) as *const AtomicUsize) }
}

/// Whether this thread's near sections are let in.
pub(crate) fn is_let_in() -> bool {
    word().load(Relaxed) != 0
}

/// The index they go by, if they are.
pub(crate) fn index() -> Option<usize> {
    match word().load(Relaxed) {
        0 => None,
        // SAFETY: the index is four further, in this thread's area, whose memory lives as long as the thread. The kernel writes it only while
        // this thread is not running, so an atomic load by this thread sees it whole.
        field => Some(unsafe { &*((field + 4) as *const AtomicU32) }.load(Relaxed) as usize),
    }
}

/// Lets them in if they may be: they take the thread for registered from then on.
#[inline]
pub(crate) fn let_in() {
    if !is_let_in() && rseq::is_registered() && !rseq::is_done() {
        word().store(rseq::index_address() - 4, Relaxed);
    }
}

/// Keeps them out, until they are let in again.
pub(crate) fn keep_out() {
    word().store(0, Relaxed);
}
