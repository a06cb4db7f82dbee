//! A slab cache's sections.

use core::arch::asm;

use super::Processor;
use crate::lanes::table::TABLE;
use crate::section::{Outcome, SlabSections, TOP, Way, Ways};
use crate::sys::atomic::AtomicUsize;
use crate::sys::rseq::OFFSETS;

/// The body of `take`; `$to_cell` moves from the item to the cache's part of it.
macro_rules! take {
    ($name:literal, $entry:ident, $gate:ident, enter: $enter:literal, [$($to_cell:tt)*] $($operands:tt)*) => {
        section!(
            $name,
            enter: $enter,
            [
                "jl 34f",
                "mov {a}, qword ptr [{table} + {a}*8]",
                "add {a}, qword ptr [{gate}]",
                "jnc 34f",
                $($to_cell)*
                "xor {top:e}, {top:e}",
                // No index register here and in `give`: a processor that forwards stores early does so for the simplest
                // addresses only. 12 cycles a pair, and 17 with one, on a Xeon of 2023.
                "mov {entry}, qword ptr [{a}]",
                "test {entry}, {entry}",
                "jnz 35f",
                "mov {top}, qword ptr [{a} + {TOP}]",
                "mov {entry}, qword ptr [{a} + {top} + {TOP} - 8]",
                "test {entry}, {entry}",
                "jz 33f",
                "sub {top}, 8",
                "add {a}, {TOP}",
                "35:",
                "mov qword ptr [{a}], {top}",
            ]
            aborted: "xor {entry:e}, {entry:e}\n jmp 33f",
            gate = in(reg) $gate.as_ptr(),
            top = out(reg) _,
            entry = out(reg) $entry,
            TOP = const TOP,
            $($operands)*
        )
    };
}

/// The body of `give`.
macro_rules! give {
    ($name:literal, $gate:ident, $entry:ident, enter: $enter:literal, [$($to_cell:tt)*] $($operands:tt)*) => {
        section!(
            $name,
            enter: $enter,
            [
                "jl {no_lane}",
                "mov {a}, qword ptr [{table} + {a}*8]",
                "add {a}, qword ptr [{gate}]",
                "jnc {shut}",
                $($to_cell)*
                "cmp qword ptr [{a}], 0",
                "je 35f",
                "mov {top}, qword ptr [{a} + {TOP}]",
                // The gate's register is free by now; another would have to be saved.
                "mov {gate}, qword ptr [{a} + {top} + {TOP}]",
                "test {gate}, {gate}",
                "jz {differs}",
                "mov qword ptr [{a} + {top} + {TOP}], {entry}",
                "lea {entry}, [{top} + 8]",
                "add {a}, {TOP}",
                "35:",
                "mov qword ptr [{a}], {entry}",
            ]
            aborted: "jmp {aborted}",
            gate = inout(reg) $gate.as_ptr() => _,
            top = out(reg) _,
            entry = inout(reg) $entry => _,
            TOP = const TOP,
            $($operands)*
            no_lane = label { return Outcome::NoLane; },
            shut = label { return Outcome::Shut; },
            differs = label { return Outcome::Differs; },
            aborted = label { return Outcome::Aborted; },
        )
    };
}

impl SlabSections for Processor {
    #[inline(always)]
    unsafe fn take<W: Way>(gate: &AtomicUsize, cell: usize) -> usize {
        let entry: usize;
        // SAFETY: the gate and a ready entry add up to the item in a lane whose memory is mapped, and the cell to the
        // cache's part of it. Its top leads to a sheaf, or to itself, with a word below it in either case; its words are
        // changed by sections on their CPU only, which restart each other, and by others after a closed gate and a fence.
        // Offsets that are not published are 0, and looked at where that is not known.
        unsafe {
            match W::WAY {
                Ways::Any => take!(
                    "take", entry, gate,
                    enter: "test {cpu_id}, {cpu_id}\n jz 34f",
                    ["add {a}, {cell}",]
                    cell = in(reg) cell,
                ),
                Ways::First => take!(
                    "take_first", entry, gate,
                    enter: "test {cpu_id}, {cpu_id}\n jz 34f",
                    []
                ),
                Ways::Ready => take!(
                    "take_ready", entry, gate,
                    enter: "",
                    ["add {a}, {cell}",]
                    cell = in(reg) cell,
                ),
            }
        }
        entry
    }

    #[inline(always)]
    unsafe fn give<W: Way>(gate: &AtomicUsize, cell: usize, entry: usize) -> Outcome {
        // SAFETY: as for `take`. A sheaf ends with a word that is 0; what is above its top and before that belongs to
        // its lane.
        unsafe {
            match W::WAY {
                Ways::Any => give!(
                    "give", gate, entry,
                    enter: "test {cpu_id}, {cpu_id}\n jz {no_lane}",
                    ["add {a}, {cell}",]
                    cell = in(reg) cell,
                ),
                Ways::First => give!(
                    "give_first", gate, entry,
                    enter: "test {cpu_id}, {cpu_id}\n jz {no_lane}",
                    []
                ),
                Ways::Ready => give!(
                    "give_ready", gate, entry,
                    enter: "",
                    ["add {a}, {cell}",]
                    cell = in(reg) cell,
                ),
            }
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
                    "jnc {shut}",
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
