//! The place of glibc's rseq area in each thread, and the CPU number that the kernel writes there.

use std::ffi::CStr;

/// Returns the distance from the thread pointer to glibc's rseq area, in bytes.
///
/// It is equal in all threads. The error says why there is no area. glibc 2.35 and later register
/// every thread, and export the distance.
pub(crate) fn area_offset() -> Result<isize, &'static str> {
    // SAFETY: each name ends with a NUL, and the call has no other preconditions.
    let address = |name: &CStr| unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    let size = address(c"__rseq_size").cast::<u32>();
    let offset = address(c"__rseq_offset").cast::<isize>();
    if size.is_null() || offset.is_null() {
        return Err("this C library does not register rseq (glibc does from 2.35 on)");
    }
    // SAFETY: glibc exports `__rseq_size` as a constant unsigned int, written before main.
    if unsafe { *size } == 0 {
        return Err("glibc has not registered rseq: its tunable glibc.pthread.rseq is 0, \
                    or the kernel or a seccomp filter refused");
    }
    // SAFETY: glibc exports `__rseq_offset` as a constant ptrdiff_t, written before main.
    Ok(unsafe { *offset })
}

/// Tells the CPU of the calling thread, as cheaply as this process can.
///
/// A kernel finds its per-CPU data with one instruction. For a program, reading glibc's rseq area
/// is closest to that; without an area it calls `sched_getcpu`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CurrentCpu {
    area_offset: Option<isize>,
}

impl CurrentCpu {
    /// Looks for glibc's area, once.
    pub(crate) fn new() -> Self {
        Self { area_offset: area_offset().ok() }
    }

    /// Returns the CPU's number, which is outdated if the thread migrates meanwhile.
    ///
    /// It may be any number, so the caller checks or masks it.
    #[inline(always)]
    pub(crate) fn get(self) -> usize {
        match self.area_offset {
            Some(offset) => cpu_id(offset) as usize,
            // SAFETY: sched_getcpu has no preconditions. Its -1 becomes a large number, which
            // callers check or mask.
            None => unsafe { libc::sched_getcpu() as usize },
        }
    }
}

/// Loads `cpu_id` from the rseq area, which is `offset` bytes from the thread pointer.
#[inline(always)]
fn cpu_id(offset: isize) -> u32 {
    let id: u32;
    // SAFETY: `offset` is from `area_offset`, so every thread has an area of at least 32 bytes at
    // that distance. The load is of its aligned 4-byte field at 4.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        core::arch::asm!(
            "mov {id:e}, dword ptr fs:[{offset} + 4]",
            id = out(reg) id,
            offset = in(reg) offset,
            options(nostack, readonly, preserves_flags),
        );
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!(
            "mrs {area}, tpidr_el0",
            "add {area}, {area}, {offset}",
            "ldr {id:w}, [{area}, #4]",
            area = out(reg) _,
            id = lateout(reg) id,
            offset = in(reg) offset,
            options(nostack, readonly, preserves_flags),
        );
    }
    id
}

#[cfg(test)]
mod tests {
    use super::CurrentCpu;
    use crate::cpus::Cpus;

    #[test]
    fn current_cpu_is_that_of_a_pinned_thread() {
        let cpus = Cpus::allowed().unwrap();
        for index in 0..cpus.len() {
            cpus.pin(index).unwrap();
            assert_eq!(CurrentCpu::new().get(), cpus.id(index));
        }
    }
}
