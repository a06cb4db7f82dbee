//! `section`: the lower bound of every design that counts per CPU with restartable sequences.
//!
//! The section stores the descriptor's address, loads `cpu_id`, shifts it into a lane's address and
//! adds to memory once. It has no check, no gate and no slow path. The kernel restarts it if the
//! thread is preempted or moved, so it needs no atomic instruction. A sum adds the lanes up while
//! adders continue, and a comparison is a sum.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use anyhow::anyhow;

use super::Contender;
use crate::contenders::Padded;
use crate::{cpus, rseq};

/// The binary logarithm of the distance between lanes, checked by the assertion below.
const STRIDE_SHIFT: u32 = 7;
const _: () = assert!(size_of::<Padded<AtomicI64>>() == 1 << STRIDE_SHIFT);

/// A padded word for each possible CPU number.
pub(crate) struct Section {
    words: Box<[Padded<AtomicI64>]>,
    area_offset: isize,
}

impl Contender for Section {
    fn try_new() -> anyhow::Result<Self> {
        let area_offset =
            rseq::area_offset().map_err(|reason| anyhow!("section is unavailable: {reason}"))?;
        Ok(Self { words: (0..cpus::possible()).map(|_| Padded::default()).collect(), area_offset })
    }

    #[inline(always)]
    fn add(&self, n: i64) {
        // SAFETY: `try_new` has checked that glibc registers rseq in this process. It does so for
        // each thread before the thread's own code runs, so `cpu_id` is the number of a possible
        // CPU. `words` has one word for each, `1 << STRIDE_SHIFT` bytes apart, and lives as long as
        // `self`.
        unsafe { add_here(self.area_offset, self.words.as_ptr().cast(), n) }
    }

    fn sum(&self) -> i64 {
        // Relaxed: the lanes are read at different times with any ordering.
        self.words.iter().fold(0, |sum, word| sum.wrapping_add(word.load(Relaxed)))
    }
}

/// Adds `n` to the lane of the current CPU.
///
/// # Safety
///
/// The calling thread's rseq area must be registered, with the signature 0x53053053, and lie
/// `area_offset` bytes from the thread pointer; `words` must be valid for adding to an aligned word
/// at every possible CPU's number times `1 << STRIDE_SHIFT` bytes.
#[inline(always)]
#[cfg(target_arch = "x86_64")]
unsafe fn add_here(area_offset: isize, words: *const AtomicI64, n: i64) {
    // SAFETY: the caller guarantees that the two accesses through fs are to fields of this thread's
    // rseq area (`rseq_cs` at 8, `cpu_id` at 4), and that the add is to a lane. The kernel restarts
    // the section at 2 if the thread is preempted, migrated or interrupted by a signal between 4
    // and 5. A restart recomputes every register, so the one add before 5 takes effect exactly
    // once. The bytes before 6 are the registered signature, which makes 6 a valid abort handler.
    unsafe {
        core::arch::asm!(
            r#".pushsection __rseq_cs, "aw""#,
            ".balign 32",
            "3:",
            ".long 0, 0",
            ".quad 4f, 5f - 4f, 6f",
            ".popsection",
            // Names the section for checkers, as the library's sections do.
            ".pushsection .thiscpu_sections, \"o\", %progbits, __rseq_cs",
            ".quad 3b",
            ".asciz \"bench::section\"",
            ".popsection",
            "2:",
            "lea {scratch}, [rip + 3b]",
            "mov qword ptr fs:[{area} + 8], {scratch}",
            "4:",
            "mov {scratch:e}, dword ptr fs:[{area} + 4]",
            "shl {scratch}, {shift}",
            "add qword ptr [{words} + {scratch}], {n}",
            "5:",
            r#".pushsection __rseq_failure, "ax""#,
            ".byte 0x0f, 0xb9, 0x3d",
            ".long 0x53053053",
            "6:",
            "jmp 2b",
            ".popsection",
            scratch = out(reg) _,
            area = in(reg) area_offset,
            words = in(reg) words,
            n = in(reg) n,
            shift = const STRIDE_SHIFT,
            options(nostack),
        );
    }
}

/// Adds `n` to the lane of the current CPU.
///
/// # Safety
///
/// The calling thread's rseq area must be registered, with the signature 0xd428bc00, and lie
/// `area_offset` bytes from the thread pointer; `words` must be valid for adding to an aligned word
/// at every possible CPU's number times `1 << STRIDE_SHIFT` bytes.
#[inline(always)]
#[cfg(target_arch = "aarch64")]
unsafe fn add_here(area_offset: isize, words: *const AtomicI64, n: i64) {
    // SAFETY: the caller guarantees that the two accesses through `area` are to fields of this
    // thread's rseq area (`rseq_cs` at 8, `cpu_id` at 4), and that the load and the store are of a
    // lane. The kernel restarts the section at 2 if the thread is preempted, migrated or
    // interrupted by a signal between 4 and 5. A restart recomputes every register that the section
    // changes, so the store before 5 takes effect exactly once, with the value loaded on that CPU.
    // The word before 6 is the registered signature, which makes 6 a valid abort handler.
    unsafe {
        core::arch::asm!(
            r#".pushsection __rseq_cs, "aw""#,
            ".balign 32",
            "3:",
            ".long 0, 0",
            ".quad 4f, 5f - 4f, 6f",
            ".popsection",
            // Names the section for checkers, as the library's sections do.
            ".pushsection .thiscpu_sections, \"o\", %progbits, __rseq_cs",
            ".quad 3b",
            ".asciz \"bench::section\"",
            ".popsection",
            "mrs {area}, tpidr_el0",
            "add {area}, {area}, {offset}",
            "2:",
            "adrp {lane}, 3b",
            "add {lane}, {lane}, :lo12:3b",
            "str {lane}, [{area}, #8]",
            "4:",
            "ldr {lane:w}, [{area}, #4]",
            "add {lane}, {words}, {lane}, lsl #{shift}",
            "ldr {value}, [{lane}]",
            "add {value}, {value}, {n}",
            "str {value}, [{lane}]",
            "5:",
            r#".pushsection __rseq_failure, "ax""#,
            ".inst 0xd428bc00",
            "6:",
            "b 2b",
            ".popsection",
            area = out(reg) _,
            lane = out(reg) _,
            value = out(reg) _,
            offset = in(reg) area_offset,
            words = in(reg) words,
            n = in(reg) n,
            shift = const STRIDE_SHIFT,
            options(nostack),
        );
    }
}
