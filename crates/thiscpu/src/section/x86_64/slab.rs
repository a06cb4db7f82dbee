//! A slab cache's sections.

use core::arch::asm;

use super::Processor;
use crate::lanes::table::TABLE;
use crate::section::{Outcome, SlabSections, TOP};
use crate::sys::atomic::AtomicUsize;
use crate::sys::rseq::OFFSETS;

impl SlabSections for Processor {
    #[inline(always)]
    unsafe fn take(gate: &AtomicUsize, cell: usize) -> usize {
        let entry: usize;
        // SAFETY: the gate and a ready entry add up to the item in a lane whose memory is mapped, and the cell to the cache's part of it. Its top
        // leads to a sheaf, or to itself, with a word below it in either case; its words are changed by sections on
        // their CPU only, which restart each other, and by others after a closed gate and a fence.
        unsafe {
            section!(
                "take",
                [
                    "jl 33f",
                    "mov {a}, qword ptr [{table} + {a}*8]",
                    "add {a}, qword ptr [{gate}]",
                    "test {a:l}, 7",
                    "jnz 33f",
                    "add {a}, {cell}",
                    "xor {new:e}, {new:e}",
                    "mov {entry}, qword ptr [{a}]",
                    "test {entry}, {entry}",
                    "jnz 35f",
                    "mov {new}, qword ptr [{a} + {TOP}]",
                    "mov {entry}, qword ptr [{a} + {new} + {TOP} - 8]",
                    "test {entry}, {entry}",
                    "jz 33f",
                    "sub {new}, 8",
                    "add {a}, {TOP}",
                    "35:",
                    "mov qword ptr [{a}], {new}",
                ]
                unready: "mov {entry:e}, 0\n jz 33f",
                aborted: "xor {entry:e}, {entry:e}\n jmp 33f",
                gate = in(reg) gate.as_ptr(),
                cell = in(reg) cell,
                new = out(reg) _,
                entry = out(reg) entry,
                TOP = const TOP,
            );
        }
        entry
    }

    #[inline(always)]
    unsafe fn give(gate: &AtomicUsize, cell: usize, mark: usize, entry: usize) -> Outcome {
        // SAFETY: as for `take`. A sheaf ends with a word that is 0; what is above its top and before that belongs to
        // its lane.
        unsafe {
            section!(
                "give",
                [
                    "jl {no_lane}",
                    "mov {a}, qword ptr [{table} + {a}*8]",
                    "add {a}, qword ptr [{gate}]",
                    "test {a:l}, 7",
                    "jnz {shut}",
                    "add {a}, {cell}",
                    "mov {new}, {entry}",
                    "cmp qword ptr [{a}], 0",
                    "je 35f",
                    "mov {new}, qword ptr [{a} + {TOP}]",
                    "cmp qword ptr [{a} + {new} + {TOP}], 0",
                    "je {differs}",
                    "mov qword ptr [{a} + {new} + {TOP}], {entry}",
                    "add {new}, 8",
                    "add {a}, {TOP}",
                    "35:",
                    "mov qword ptr [{mark}], {entry}",
                    "mov qword ptr [{a}], {new}",
                ]
                unready: "jz {no_lane}",
                aborted: "jmp {aborted}",
                gate = in(reg) gate.as_ptr(),
                cell = in(reg) cell,
                mark = in(reg) mark,
                entry = in(reg) entry,
                new = out(reg) _,
                TOP = const TOP,
                no_lane = label { return Outcome::NoLane; },
                shut = label { return Outcome::Shut; },
                differs = label { return Outcome::Differs; },
                aborted = label { return Outcome::Aborted; },
            );
        }
        Outcome::Done
    }

    unsafe fn replace(
        gate: &AtomicUsize,
        entry: usize,
        cell: usize,
        old: usize,
        new: usize,
    ) -> Outcome {
        // SAFETY: as for `take`.
        unsafe {
            section!(
                "replace",
                [
                    "jl {no_lane}",
                    "mov {a}, qword ptr [{table} + {a}*8]",
                    "cmp {a}, {entry}",
                    "jne {differs}",
                    "add {a}, qword ptr [{gate}]",
                    "test {a:l}, 7",
                    "jnz {shut}",
                    "cmp qword ptr [{a} + {cell}], {old}",
                    "jne {differs}",
                    "mov qword ptr [{a} + {cell}], {new}",
                ]
                unready: "jz {no_lane}",
                aborted: "jmp {aborted}",
                gate = in(reg) gate.as_ptr(),
                entry = in(reg) entry,
                cell = in(reg) cell,
                old = in(reg) old,
                new = in(reg) new,
                no_lane = label { return Outcome::NoLane; },
                shut = label { return Outcome::Shut; },
                differs = label { return Outcome::Differs; },
                aborted = label { return Outcome::Aborted; },
            );
        }
        Outcome::Done
    }
}
