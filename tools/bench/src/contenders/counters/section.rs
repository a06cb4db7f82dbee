//! `section`: the floor under every design that counts per CPU on restartable sequences.
//!
//! It stores the descriptor's address, loads `cpu_id`, shifts it into a lane's address and adds to
//! memory once; there is no check, no gate and no way out. Preempted or moved in between, the
//! kernel restarts it, so that no atomic instruction is needed. Its sum adds the lanes up while
//! adders go on, and a comparison is a sum.

use std::{
    cmp::Ordering,
    sync::atomic::{AtomicI64, Ordering::Relaxed},
};

use anyhow::anyhow;

use super::Contender;
use crate::contenders::Padded;
use crate::{cpus, rseq};

/// Lanes are this power of two apart; the assertion ties it to what the array really has.
const STRIDE_SHIFT: u32 = 7;
const _: () = assert!(size_of::<Padded<AtomicI64>>() == 1 << STRIDE_SHIFT);

/// A padded word for every CPU number this machine can have.
pub(crate) struct Section {
    words: Box<[Padded<AtomicI64>]>,
    area_offset: isize,
}

impl Contender for Section {
    fn try_new() -> anyhow::Result<Self> {
        let area_offset =
            rseq::area_offset().map_err(|why| anyhow!("section is unavailable: {why}"))?;
        Ok(Self { words: (0..cpus::possible()).map(|_| Padded::default()).collect(), area_offset })
    }

    #[inline(always)]
    fn add(&self, n: i64) {
        // SAFETY: glibc registered rseq in this process (or `try_new` had failed) and does so for
        // each thread before the thread's own code runs, so `cpu_id` is the number of a possible
        // CPU; `words` has one for each, `1 << STRIDE_SHIFT` bytes apart, and they live as long as
        // `self`.
        unsafe { add_here(self.area_offset, self.words.as_ptr().cast(), n) }
    }

    fn sum(&self) -> i64 {
        // Relaxed: the lanes are read at different times whatever the order.
        self.words.iter().fold(0, |sum, word| sum.wrapping_add(word.load(Relaxed)))
    }

    fn compare(&self, limit: i64) -> Ordering {
        self.sum().cmp(&limit)
    }
}

/// Adds `n` to the lane of the CPU this runs on.
///
/// # Safety
///
/// The calling thread's rseq area must be registered, with the signature 0x53053053, and lie
/// `area_offset` bytes from the thread pointer; `words` must be valid for adding to an aligned word
/// at every possible CPU's number times `1 << STRIDE_SHIFT` bytes.
#[inline(always)]
#[cfg(target_arch = "x86_64")]
unsafe fn add_here(area_offset: isize, words: *const AtomicI64, n: i64) {
    // SAFETY: By the contract the two accesses through fs are to fields of this thread's rseq area
    // (`rseq_cs` at 8, `cpu_id` at 4), and the add is to a lane. The kernel restarts the section at
    // 2 if the thread is preempted, migrated or interrupted between 4 and 5, and every register
    // used there is computed anew, so that the one add before 5 takes effect exactly once. The
    // bytes before 6 are the registered signature, which makes it a valid abort handler.
    unsafe {
        core::arch::asm!(
            r#".pushsection __rseq_cs, "aw""#,
            ".balign 32",
            "3:",
            ".long 0, 0",
            ".quad 4f, 5f - 4f, 6f",
            ".popsection",
            // For checkers, as the library's sections: which section this is.
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

/// Adds `n` to the lane of the CPU this runs on.
///
/// # Safety
///
/// The calling thread's rseq area must be registered, with the signature 0xd428bc00, and lie
/// `area_offset` bytes from the thread pointer; `words` must be valid for adding to an aligned word
/// at every possible CPU's number times `1 << STRIDE_SHIFT` bytes.
#[inline(always)]
#[cfg(target_arch = "aarch64")]
unsafe fn add_here(area_offset: isize, words: *const AtomicI64, n: i64) {
    // SAFETY: By the contract the two accesses through `area` are to fields of this thread's rseq
    // area (`rseq_cs` at 8, `cpu_id` at 4), and the load and the store are of a lane. The kernel
    // restarts the section at 2 if the thread is preempted, migrated or interrupted between 4 and
    // 5, and every register used there is computed anew, so that the store before 5 takes effect
    // exactly once, with what was loaded on the same CPU. The word before 6 is the registered
    // signature, which makes it a valid abort handler.
    unsafe {
        core::arch::asm!(
            r#".pushsection __rseq_cs, "aw""#,
            ".balign 32",
            "3:",
            ".long 0, 0",
            ".quad 4f, 5f - 4f, 6f",
            ".popsection",
            // For checkers, as the library's sections: which section this is.
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

/// `try_new` fails on other architectures, so that nobody comes here.
///
/// # Safety
///
/// None.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn add_here(_area_offset: isize, _words: *const AtomicI64, _n: i64) {
    unreachable!("there is no section on this architecture");
}
