//! A slab cache's sections.

use core::arch::asm;

use super::Processor;
use crate::lanes::table::TABLE;
use crate::section::{Access, AccessKind, Outcome, SlabSections, TOP};
use crate::sys::atomic::AtomicUsize;
use crate::sys::rseq::OFFSETS;

/// The body of `pop_object` where a lane has no hot entry.
macro_rules! pop_object {
    ($name:literal, $entry:ident, $gate:ident, $cell:ident, enter: $enter:literal) => {
        section!(
            $name,
            enter: $enter,
            [
                "tbnz {s:w}, #31, 33f",
                "ldr {a}, [{table}, {a}, lsl #3]",
                "ldr {s}, [{gate}]",
                "adds {a}, {a}, {s}",
                "b.cc 33f",
                "add {a}, {a}, #{TOP}",
                "ldr {new}, [{a}, {cell}]",
                "add {s}, {a}, {new}",
                "ldr {entry}, [{s}, #-8]",
                "cbz {entry}, 33f",
                "sub {new}, {new}, #8",
                "str {new}, [{a}, {cell}]",
            ]
            aborted: "mov {entry:w}, #0\n b 33f",
            gate = in(reg) $gate,
            new = out(reg) _,
            entry = out(reg) $entry,
            TOP = const TOP,
            cell = in(reg) $cell,
        )
    };
}

/// The same where it may have one.
macro_rules! pop_object_hot {
    ($name:literal, $entry:ident, $gate:ident, enter: $enter:literal) => {
        section!(
            $name,
            enter: $enter,
            [
                "tbnz {s:w}, #31, 33f",
                "ldr {a}, [{table}, {a}, lsl #3]",
                "ldr {s}, [{gate}]",
                "adds {a}, {a}, {s}",
                "b.cc 33f",
                "mov {new}, #0",
                "ldr {entry}, [{a}]",
                "cbnz {entry}, 35f",
                "ldr {new}, [{a}, #{TOP}]!",
                "add {s}, {a}, {new}",
                "ldr {entry}, [{s}, #-8]",
                "cbz {entry}, 33f",
                "sub {new}, {new}, #8",
                "35:",
                "str {new}, [{a}]",
            ]
            aborted: "mov {entry:w}, #0\n b 33f",
            gate = in(reg) $gate,
            new = out(reg) _,
            entry = out(reg) $entry,
            TOP = const TOP,
        )
    };
}

/// The body of `push_object` where a lane has no hot entry.
macro_rules! push_object {
    ($name:literal, $gate:ident, $cell:ident, $entry:ident, enter: $enter:literal) => {
        section!(
            $name,
            enter: $enter,
            [
                "cmp {s:w}, #0",
                "b.lt {no_lane}",
                "ldr {a}, [{table}, {a}, lsl #3]",
                "ldr {s}, [{gate}]",
                "adds {a}, {a}, {s}",
                "b.cc {closed}",
                "add {a}, {a}, #{TOP}",
                "ldr {new}, [{a}, {cell}]",
                "ldr {s}, [{a}, {new}]",
                "cbz {s}, {mismatch}",
                "str {entry}, [{a}, {new}]",
                "add {new}, {new}, #8",
                "str {new}, [{a}, {cell}]",
            ]
            aborted: "b {aborted}",
            gate = in(reg) $gate,
            entry = in(reg) $entry,
            new = out(reg) _,
            TOP = const TOP,
            cell = in(reg) $cell,
            no_lane = label { return Outcome::NoLane; },
            closed = label { return Outcome::GateClosed; },
            mismatch = label { return Outcome::Mismatch; },
            aborted = label { return Outcome::Aborted; },
        )
    };
}

/// The same where it may have one.
macro_rules! push_object_hot {
    ($name:literal, $gate:ident, $entry:ident, enter: $enter:literal) => {
        section!(
            $name,
            enter: $enter,
            [
                "cmp {s:w}, #0",
                "b.lt {no_lane}",
                "ldr {a}, [{table}, {a}, lsl #3]",
                "ldr {s}, [{gate}]",
                "adds {a}, {a}, {s}",
                "b.cc {closed}",
                "mov {new}, {entry}",
                "ldr {s}, [{a}]",
                "cbz {s}, 35f",
                "ldr {new}, [{a}, #{TOP}]!",
                "ldr {s}, [{a}, {new}]",
                "cbz {s}, {mismatch}",
                "str {entry}, [{a}, {new}]",
                "add {new}, {new}, #8",
                "35:",
                "str {new}, [{a}]",
            ]
            aborted: "b {aborted}",
            gate = in(reg) $gate,
            entry = in(reg) $entry,
            new = out(reg) _,
            TOP = const TOP,
            no_lane = label { return Outcome::NoLane; },
            closed = label { return Outcome::GateClosed; },
            mismatch = label { return Outcome::Mismatch; },
            aborted = label { return Outcome::Aborted; },
        )
    };
}

impl SlabSections for Processor {
    #[inline(always)]
    unsafe fn pop_object<A: Access>(gate: *const AtomicUsize, cell: usize) -> usize {
        let entry: usize;
        // SAFETY: the gate and a ready entry add up to the item in a lane whose memory is mapped, and the cell to the
        // cache's part of it. Its top leads to a sheaf, or to the item's first top, with a word below it in either case; its words are
        // changed by sections on their CPU only, which restart each other, and by others after a closed gate and a fence.
        // Offsets that are not published are 0, and looked at where that is not known.
        unsafe {
            match A::KIND {
                AccessKind::Checked | AccessKind::DirectMalloc => pop_object!(
                    "pop_object", entry, gate, cell,
                    enter: "mov {entry:w}, #0\n cbz {cpu_id}, 33f"
                ),
                AccessKind::Single | AccessKind::Direct => {
                    pop_object_hot!("pop_object_single", entry, gate, enter: "mov {entry:w}, #0\n cbz {cpu_id}, 33f")
                }
                AccessKind::Ready => pop_object!(
                    "pop_object_ready", entry, gate, cell,
                    enter: "mov {entry:w}, #0"
                ),
            }
        }
        entry
    }

    #[inline(always)]
    unsafe fn push_object<A: Access>(
        gate: *const AtomicUsize,
        cell: usize,
        entry: usize,
    ) -> Outcome {
        // SAFETY: as for `pop_object`. A sheaf ends with a word that is 0; what is above its top and before that belongs to
        // its lane.
        unsafe {
            match A::KIND {
                AccessKind::Checked | AccessKind::DirectMalloc => push_object!(
                    "push_object", gate, cell, entry,
                    enter: "cbz {cpu_id}, {no_lane}"
                ),
                AccessKind::Single | AccessKind::Direct => {
                    push_object_hot!("push_object_single", gate, entry, enter: "cbz {cpu_id}, {no_lane}")
                }
                AccessKind::Ready => push_object!(
                    "push_object_ready", gate, cell, entry,
                    enter: ""
                ),
            }
        }
        Outcome::Committed
    }

    unsafe fn cmpxchg_cell(
        gate: &AtomicUsize,
        entry: usize,
        cell: usize,
        old: usize,
        new: usize,
    ) -> Outcome {
        // SAFETY: as for `pop_object`.
        unsafe {
            section!(
                "cmpxchg_cell",
                [
                    "cmp {s:w}, #0",
                    "b.lt {no_lane}",
                    "ldr {a}, [{table}, {a}, lsl #3]",
                    "cmp {a}, {entry}",
                    "b.ne {mismatch}",
                    "ldr {s}, [{gate}]",
                    "adds {a}, {a}, {s}",
                    "b.cc {closed}",
                    "ldr {s}, [{a}, {cell}]",
                    "cmp {s}, {old}",
                    "b.ne {mismatch}",
                    "str {new}, [{a}, {cell}]",
                ]
                unready: "cbz {cpu_id}, {no_lane}",
                aborted: "b {aborted}",
                gate = in(reg) gate.as_ptr(),
                entry = in(reg) entry,
                cell = in(reg) cell,
                old = in(reg) old,
                new = in(reg) new,
                no_lane = label { return Outcome::NoLane; },
                closed = label { return Outcome::GateClosed; },
                mismatch = label { return Outcome::Mismatch; },
                aborted = label { return Outcome::Aborted; },
            );
        }
        Outcome::Committed
    }
}
