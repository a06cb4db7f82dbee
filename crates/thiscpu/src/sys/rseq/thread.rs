//! The contents of the calling thread's rseq area.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

#[cfg(not(thiscpu_model))]
use super::area::HINT;
use super::area::{CPU_ID, HAS_NODE, NODE_ID, OFFSETS, thread_pointer};
use super::vfork_word;

/// Returns whether offsets are published and this thread's area is registered.
///
/// Returns `false` for a child of `vfork`: the area is its parent's.
pub(crate) fn is_registered() -> bool {
    let offset = OFFSETS.cpu_id();
    if offset == 0 || vfork_word::is_child() {
        return false;
    }
    let cpu_id = thread_pointer().wrapping_add_signed(offset);
    // SAFETY: a published offset leads to the field of an rseq area in this thread's static TLS.
    // The kernel writes the field only while this thread is not running, so an atomic load by this
    // thread never sees half of a write.
    unsafe { (*(cpu_id as *const AtomicU32)).load(Relaxed) as i32 >= 0 }
}

/// Returns this thread's lane index. Its area is registered.
pub(crate) fn index() -> usize {
    // SAFETY: the area is registered, so the offset leads to a field of this thread's area, which
    // the kernel writes only while this thread is not running.
    unsafe { (*(index_address() as *const AtomicU32)).load(Relaxed) as usize }
}

/// Returns the CPU that the calling thread is on, if an area of this thread shows it.
///
/// A child of `vfork` gets the CPU that its parent's thread had. The answer may be old when it
/// arrives: it is a hint.
#[cfg(not(thiscpu_model))]
#[inline(always)]
pub(crate) fn cpu_hint() -> Option<u32> {
    // Relaxed: as in `cpu_or_any`.
    if HINT.load(Relaxed) == 0 {
        return None;
    }
    i32::try_from(cpu_or_any()).ok().map(|cpu| cpu as u32)
}

/// Returns what [`cpu_hint`] does, or any number if the CPU is unknown.
#[cfg(not(thiscpu_model))]
#[inline(always)]
pub(crate) fn cpu_or_any() -> u32 {
    // Relaxed: the number leads to memory that each thread has since its start.
    let offset = HINT.load(Relaxed);
    let cpu: u32;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a published offset leads to `cpu_id` of an area in this thread's static TLS. Before,
    // it is 0, which leads to the first word of the thread's control block.
    unsafe {
        core::arch::asm!("mov {0:e}, fs:[{1}]", out(reg) cpu, in(reg) offset,
            options(nostack, readonly, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as on x86-64.
    unsafe {
        core::arch::asm!("mrs {0:x}, tpidr_el0", "ldr {0:w}, [{0:x}, {1}]", out(reg) cpu,
            in(reg) offset, options(nostack, readonly, preserves_flags));
    }
    cpu
}

/// Returns the NUMA node of the calling thread, if its area shows it (Linux 6.3).
pub(crate) fn node() -> Option<usize> {
    if !HAS_NODE.load(Relaxed) || !is_registered() {
        return None;
    }
    let cpu_id = thread_pointer().wrapping_add_signed(OFFSETS.cpu_id());
    // SAFETY: the area is registered, and the kernel says that it fills in this field of it. It
    // writes the field only while this thread is not running.
    Some(unsafe { (*((cpu_id - CPU_ID + NODE_ID) as *const AtomicU32)).load(Relaxed) } as usize)
}

/// Returns the address of this thread's lane index. Its area is registered.
pub(super) fn index_address() -> usize {
    thread_pointer().wrapping_add_signed(OFFSETS.index())
}
