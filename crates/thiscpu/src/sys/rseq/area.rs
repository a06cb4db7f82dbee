//! The rseq area of a thread, and this library's own words beside it: where they are.
//!
//! The kernel's layout: `cpu_id_start` 0, `cpu_id` 4, `rseq_cs` 8, `flags` 16, `node_id` 20,
//! `mm_cid` 24.

use core::arch::{asm, global_asm};
use core::sync::atomic::{
    AtomicBool, AtomicIsize, AtomicU32,
    Ordering::{Acquire, Relaxed},
    compiler_fence,
};

pub(crate) const CPU_ID: usize = 4;
/// The offset of `rseq_cs` in an area: the descriptor of the section that the thread is in.
#[cfg(not(thiscpu_model))]
pub const RSEQ_CS: usize = 8;
pub(super) const NODE_ID: usize = 20;
pub(crate) const MM_CID: usize = 24;

/// The feature size of the first kernels that fill in `node_id`.
pub(super) const NODE_ID_END: u32 = 24;
/// The feature size of the first kernels that fill in `mm_cid`.
pub(super) const MM_CID_END: u32 = 28;

// 96 bytes of static TLS: this library's own area, the words of the thread, and an area that is
// never registered, each 32 bytes. `cpu_id` starts as -1, "not registered", which is also what the
// kernel stores there when it unregisters an area. The symbol carries the version, so that one
// program can link two versions of this library. The words begin as 0, except the last one, which
// is the constant that `no_lane_offset` leads to.
global_asm!(
    ".pushsection .tdata, \"awT\", %progbits",
    ".balign 32",
    ".hidden __thiscpu_0_1_area",
    ".globl __thiscpu_0_1_area",
    ".type __thiscpu_0_1_area, %object",
    ".size __thiscpu_0_1_area, 96",
    "__thiscpu_0_1_area:",
    ".long 0, -1",
    ".quad 0, 0, 0",
    ".quad 0, 0, 0",
    ".long 0, 0x7fffffff",
    ".long 0, -1",
    ".quad 0, 0, 0",
    ".popsection",
);

/// Offsets in the 96 bytes of static TLS.
const STATE: isize = 32;
const BYPASS: isize = 36;
/// The vfork word of this copy of the library; see [`super::vfork`].
pub(super) const VFORK: isize = 40;
const NO_LANE: isize = 60;
const UNREGISTERED: isize = 64;

/// Offsets from the thread pointer: of two fields of the area in use, and of the vfork word.
///
/// They are equal in every thread. All are 0 until start-up publishes them, and sections check
/// that. A linker could fill in the offsets of this library's own, unregistered area instead, but
/// not every linker can do so in a shared object.
#[derive(Debug)]
pub(crate) struct Offsets {
    pub(super) cpu_id: AtomicIsize,
    pub(super) index: AtomicIsize,
    pub(super) vfork: AtomicIsize,
}

/// The offset of `cpu_id` in an area that is registered, in the atomic tier too; or 0.
///
/// For code that needs a hint, and no section.
#[cfg(not(thiscpu_model))]
pub(super) static HINT: AtomicIsize = AtomicIsize::new(0);

/// Whether the kernel fills in `node_id`.
pub(super) static HAS_NODE: AtomicBool = AtomicBool::new(false);

pub(crate) static OFFSETS: Offsets =
    Offsets { cpu_id: AtomicIsize::new(0), index: AtomicIsize::new(0), vfork: AtomicIsize::new(0) };

impl Offsets {
    /// Returns the offset of `cpu_id`, or 0 before start-up.
    ///
    /// A published offset is not 0: areas are multiples of 32 bytes away from the thread pointer,
    /// and `cpu_id` is not the first field.
    #[inline(always)]
    pub(crate) fn cpu_id(&self) -> isize {
        let cpu_id = self.cpu_id.load(Relaxed);
        // The compiler must load the others after this. The processor cannot load an old index with
        // a new `cpu_id` either: `Registration::publish` has every CPU pass a barrier in between.
        compiler_fence(Acquire);
        cpu_id
    }

    /// Returns the offset of `mm_cid` or `cpu_id`, valid once `cpu_id` has not returned 0.
    #[inline(always)]
    pub(crate) fn index(&self) -> isize {
        self.index.load(Relaxed)
    }

    /// Returns the offset of the vfork word, valid once `cpu_id` has not returned 0.
    #[inline(always)]
    pub(crate) fn vfork(&self) -> isize {
        self.vfork.load(Relaxed)
    }
}

pub(super) fn thread_pointer() -> usize {
    let pointer: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the ABI keeps the thread pointer's own value at fs:0.
    unsafe {
        asm!("mov {}, fs:0", out(reg) pointer, options(nostack, readonly, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reads the thread pointer's register.
    unsafe {
        asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, nomem, preserves_flags));
    }
    pointer
}

/// Returns the offset of a symbol in static TLS from the thread pointer.
macro_rules! thread_local_offset {
    ($symbol:literal) => {{
        let offset: isize;
        #[cfg(target_arch = "x86_64")]
        // SAFETY: loads a constant that the linker or loader wrote into the GOT. No code that runs
        // before that uses it, so `nomem` is right: each execution finds the same number.
        unsafe {
            core::arch::asm!(
                concat!("mov {}, [rip + ", $symbol, "@gottpoff]"),
                out(reg) offset,
                options(nostack, pure, nomem, preserves_flags)
            );
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: loads a constant that the linker or loader wrote into the GOT.
        unsafe {
            core::arch::asm!(
                concat!("adrp {0}, :gottprel:", $symbol),
                concat!("ldr {0}, [{0}, :gottprel_lo12:", $symbol, "]"),
                out(reg) offset,
                options(nostack, readonly, preserves_flags)
            );
        }
        offset
    }};
}
pub(super) use thread_local_offset;

/// Returns the offset of this library's own area from the thread pointer.
pub(super) fn own_offset() -> isize {
    thread_local_offset!("__thiscpu_0_1_area")
}

/// Returns a word of this thread's block of static TLS, `at` bytes after the own area begins.
fn own_word(at: isize) -> &'static AtomicU32 {
    let address = thread_pointer().wrapping_add_signed(own_offset() + at);
    // SAFETY: callers pass `STATE` or `BYPASS`, aligned words of this thread's TLS block. The block
    // starts as zeros there and lives as long as the thread; no caller hands the reference to
    // another thread. A child of `vfork` has it while the thread waits.
    unsafe { &*(address as *const AtomicU32) }
}

/// The thread has not tried to register yet; a TLS block starts with this.
pub(super) const FRESH: u32 = 0;
/// This library has registered the thread.
pub(super) const REGISTERED: u32 = 1;
/// The thread has given up sections, and its lane with them, forever.
pub(super) const GIVEN_UP: u32 = 2;

/// Returns what this thread knows of its own registration: one of the three states above.
pub(super) fn state() -> &'static AtomicU32 {
    own_word(STATE)
}

pub(crate) fn is_unregistered_forever() -> bool {
    state().load(Relaxed) == GIVEN_UP
}

/// Returns the offset from the thread pointer of an area that is never registered.
pub(crate) fn unregistered_offset() -> isize {
    own_offset() + UNREGISTERED
}

/// Returns the offset of a word that keeps each thread out of lanes like a set vfork word.
pub(crate) fn no_lane_offset() -> isize {
    own_offset() + NO_LANE
}

/// Returns the offset of the bypass word for inlined C; 0 there means to try the lane.
pub(crate) fn bypass_offset() -> isize {
    own_offset() + BYPASS
}

/// Tells this thread's inlined C charges whether to bypass the lane.
pub(crate) fn set_bypass(bypass: bool) {
    own_word(BYPASS).store(u32::from(bypass), Relaxed);
}
