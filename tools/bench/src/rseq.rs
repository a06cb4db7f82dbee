//! Where glibc keeps each thread's rseq area, and the CPU number the kernel writes there.
//!
//! glibc 2.35 and later register every thread they start and export where the area lies from the
//! thread pointer. The symbols are weak, so that the program links and starts without them.

/// Finds a weak symbol's address; null where the C library does not have it.
///
/// The address is read through the global offset table by hand, since Rust takes the address of an
/// extern static to be non-null.
#[cfg(target_arch = "x86_64")]
macro_rules! weak_address {
    ($symbol:literal) => {{
        let address: *const i32;
        // SAFETY: The instruction only loads this program's own table entry for the symbol, which
        // the linker makes and the loader fills in (with zero for an undefined weak symbol).
        unsafe {
            core::arch::asm!(
                concat!(".weak ", $symbol),
                concat!("mov {a}, qword ptr [rip + ", $symbol, "@GOTPCREL]"),
                a = out(reg) address,
                options(nostack, readonly, preserves_flags),
            );
        }
        address
    }};
}

/// The same for aarch64, where a table entry takes a page address and an offset.
#[cfg(target_arch = "aarch64")]
macro_rules! weak_address {
    ($symbol:literal) => {{
        let address: *const i32;
        // SAFETY: The instructions only load this program's own table entry for the symbol, which
        // the linker makes and the loader fills in (with zero for an undefined weak symbol).
        unsafe {
            core::arch::asm!(
                concat!(".weak ", $symbol),
                concat!("adrp {a}, :got:", $symbol),
                concat!("ldr {a}, [{a}, :got_lo12:", $symbol, "]"),
                a = out(reg) address,
                options(nostack, readonly, preserves_flags),
            );
        }
        address
    }};
}

/// The distance in bytes from the thread pointer to glibc's rseq area, the same in every thread, or
/// why there is none.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) fn area_offset() -> Result<isize, &'static str> {
    let size = weak_address!("__rseq_size").cast::<u32>();
    let offset = weak_address!("__rseq_offset").cast::<isize>();
    if size.is_null() || offset.is_null() {
        return Err("this C library does not register rseq (glibc does from 2.35 on)");
    }
    // SAFETY: glibc exports `__rseq_size` as a constant unsigned int; it is written before main.
    if unsafe { *size } == 0 {
        return Err("glibc has not registered rseq: its tunable glibc.pthread.rseq is 0, \
                    or the kernel or a seccomp filter refused");
    }
    // SAFETY: glibc exports `__rseq_offset` as a constant ptrdiff_t; it is written before main.
    Ok(unsafe { *offset })
}

/// No section is written for this architecture, so nothing here looks for an area.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) fn area_offset() -> Result<isize, &'static str> {
    Err("there is a section for x86_64 and aarch64 only")
}

/// Tells the CPU the calling thread runs on, as cheaply as this process can.
///
/// A kernel finds its per-CPU data with one instruction; reading glibc's rseq area is the closest a
/// program comes to that, and `sched_getcpu` is the way where there is no area.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CurrentCpu {
    area_offset: Option<isize>,
}

impl CurrentCpu {
    /// Looks for glibc's area once.
    pub(crate) fn new() -> Self {
        Self { area_offset: area_offset().ok() }
    }

    /// The CPU's number. The thread may be moved before the caller looks at it, and a caller must
    /// bear any number at all.
    #[inline(always)]
    pub(crate) fn get(self) -> usize {
        match self.area_offset {
            Some(offset) => cpu_id(offset) as usize,
            // SAFETY: sched_getcpu takes nothing and has no preconditions; -1 becomes a large
            // number, which callers must bear.
            None => unsafe { libc::sched_getcpu() as usize },
        }
    }
}

/// Loads `cpu_id` from the calling thread's rseq area, which begins `offset` bytes from the thread
/// pointer.
#[inline(always)]
#[cfg(target_arch = "x86_64")]
fn cpu_id(offset: isize) -> u32 {
    let id: u32;
    // SAFETY: `offset` came from `area_offset`, so every thread's area lies at that distance and is
    // at least 32 bytes long; the load is of its aligned 4-byte field at 4.
    unsafe {
        core::arch::asm!(
            "mov {id:e}, dword ptr fs:[{offset} + 4]",
            id = out(reg) id,
            offset = in(reg) offset,
            options(nostack, readonly, preserves_flags),
        );
    }
    id
}

/// Loads `cpu_id` from the calling thread's rseq area, which begins `offset` bytes from the thread
/// pointer.
#[inline(always)]
#[cfg(target_arch = "aarch64")]
fn cpu_id(offset: isize) -> u32 {
    let id: u32;
    // SAFETY: `offset` came from `area_offset`, so every thread's area lies at that distance and is
    // at least 32 bytes long; the load is of its aligned 4-byte field at 4.
    unsafe {
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

/// Without an area nobody calls this; it answers with a number no CPU has.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn cpu_id(_offset: isize) -> u32 {
    u32::MAX
}

#[cfg(test)]
mod tests {
    use super::CurrentCpu;
    use crate::cpus::Cpus;

    #[test]
    fn the_current_cpu_is_the_one_a_thread_is_pinned_to() {
        let cpus = Cpus::allowed().unwrap();
        for index in 0..cpus.len() {
            cpus.pin(index).unwrap();
            assert_eq!(CurrentCpu::new().get(), cpus.id(index));
        }
    }
}
