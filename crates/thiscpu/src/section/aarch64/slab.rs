//! The sections of slab caches.

use core::arch::asm;

use super::Processor;
use crate::lanes::table::TABLE;
use crate::section::{Access, AccessKind, Outcome, SlabSections, TOP_OFFSET};
use crate::sys::atomic::AtomicUsize;
use crate::sys::rseq::OFFSETS;

/// `pop_object` without a hot object.
///
/// `$countdown` may count down in the lane of malloc's group.
macro_rules! pop_object {
    (
        $name:literal, $encoded:ident, $gate:ident, $cell:ident, enter: $enter:literal,
        countdown: $countdown:literal
    ) => {
        section!(
            $name,
            enter: $enter,
            [
                "b.lt 33f",
                "ldrh {a:w}, [{s}, {index}]",
                "ldr {a}, [{table}, {a}, lsl #3]",
                "ldr {s}, [{gate}]",
                "adds {a}, {a}, {s}",
                "b.cc 33f",
                $countdown,
                "add {a}, {a}, #{TOP}",
                "ldr {new}, [{a}, {cell}]",
                "add {s}, {a}, {new}",
                "ldr {encoded}, [{s}, #-8]",
                "cbz {encoded}, 33f",
                "sub {new}, {new}, #8",
                "str {new}, [{a}, {cell}]",
            ]
            aborted: "mov {encoded:w}, #0\n b 33f",
            gate = in(reg) $gate,
            new = out(reg) _,
            encoded = out(reg) $encoded,
            TOP = const TOP_OFFSET,
            cell = in(reg) $cell,
        )
    };
}

/// `pop_object` with a hot object.
macro_rules! pop_object_hot {
    ($name:literal, $encoded:ident, $gate:ident, enter: $enter:literal) => {
        section!(
            $name,
            enter: $enter,
            [
                "b.lt 33f",
                "ldrh {a:w}, [{s}, {index}]",
                "ldr {a}, [{table}, {a}, lsl #3]",
                "ldr {s}, [{gate}]",
                "adds {a}, {a}, {s}",
                "b.cc 33f",
                "mov {new}, #0",
                "ldr {encoded}, [{a}]",
                "cbnz {encoded}, 35f",
                "ldr {new}, [{a}, #{TOP}]!",
                "add {s}, {a}, {new}",
                "ldr {encoded}, [{s}, #-8]",
                "cbz {encoded}, 33f",
                "sub {new}, {new}, #8",
                "35:",
                "str {new}, [{a}]",
            ]
            aborted: "mov {encoded:w}, #0\n b 33f",
            gate = in(reg) $gate,
            new = out(reg) _,
            encoded = out(reg) $encoded,
            TOP = const TOP_OFFSET,
        )
    };
}

/// `push_object` without a hot object.
macro_rules! push_object {
    ($name:literal, $gate:ident, $cell:ident, $encoded:ident, enter: $enter:literal) => {
        section!(
            $name,
            enter: $enter,
            [
                "b.lt {no_lane}",
                "ldrh {a:w}, [{s}, {index}]",
                "ldr {a}, [{table}, {a}, lsl #3]",
                "ldr {s}, [{gate}]",
                "adds {a}, {a}, {s}",
                "b.cc {closed}",
                "add {a}, {a}, #{TOP}",
                "ldr {new}, [{a}, {cell}]",
                "ldr {s}, [{a}, {new}]",
                "cbz {s}, {mismatch}",
                "str {encoded}, [{a}, {new}]",
                "add {new}, {new}, #8",
                "str {new}, [{a}, {cell}]",
            ]
            aborted: "b {aborted}",
            gate = in(reg) $gate,
            encoded = in(reg) $encoded,
            new = out(reg) _,
            TOP = const TOP_OFFSET,
            cell = in(reg) $cell,
            no_lane = label { return Outcome::NoLane; },
            closed = label { return Outcome::GateClosed; },
            mismatch = label { return Outcome::Mismatch; },
            aborted = label { return Outcome::Aborted; },
        )
    };
}

/// `push_object` with a hot object.
macro_rules! push_object_hot {
    ($name:literal, $gate:ident, $encoded:ident, enter: $enter:literal) => {
        section!(
            $name,
            enter: $enter,
            [
                "b.lt {no_lane}",
                "ldrh {a:w}, [{s}, {index}]",
                "ldr {a}, [{table}, {a}, lsl #3]",
                "ldr {s}, [{gate}]",
                "adds {a}, {a}, {s}",
                "b.cc {closed}",
                "mov {new}, {encoded}",
                "ldr {s}, [{a}]",
                "cbz {s}, 35f",
                "ldr {new}, [{a}, #{TOP}]!",
                "ldr {s}, [{a}, {new}]",
                "cbz {s}, {mismatch}",
                "str {encoded}, [{a}, {new}]",
                "add {new}, {new}, #8",
                "35:",
                "str {new}, [{a}]",
            ]
            aborted: "b {aborted}",
            gate = in(reg) $gate,
            encoded = in(reg) $encoded,
            new = out(reg) _,
            TOP = const TOP_OFFSET,
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
        let encoded: usize;
        // SAFETY: the addition of gate and entry carries only if the gate is open and the lane in
        // use. The sum is then the address of the item there, whose memory is mapped. Offsets that
        // are not yet published are 0, which the section checks, except with `Ready`: then they are
        // published. The caller guarantees that a cache has its part at `cell`. Its top leads to a
        // sheaf or to the first top, and a readable word lies below either. Only sections on the
        // lane's CPU change these words, and they abort each other; any other thread does so after
        // a closed gate and a fence. The countdown, in the item's first word, is changed at any
        // time; any value of it is valid.
        unsafe {
            match A::KIND {
                AccessKind::Checked | AccessKind::DirectMalloc => pop_object!(
                    "pop_object", encoded, gate, cell,
                    enter: "mov {encoded:w}, #0\n cbz {cpu_id}, 33f",
                    countdown: ""
                ),
                AccessKind::Single | AccessKind::Direct => {
                    pop_object_hot!(
                        "pop_object_single", encoded, gate,
                        enter: "mov {encoded:w}, #0\n cbz {cpu_id}, 33f"
                    )
                }
                AccessKind::Ready => pop_object!(
                    "pop_object_ready", encoded, gate, cell,
                    enter: "mov {encoded:w}, #0",
                    countdown:
                        "ldr {new:w}, [{a}]\n subs {new:w}, {new:w}, #1\n b.mi 33f\n \
                         str {new:w}, [{a}]"
                ),
            }
        }
        encoded
    }

    #[inline(always)]
    unsafe fn push_object<A: Access>(
        gate: *const AtomicUsize,
        cell: usize,
        encoded: usize,
    ) -> Outcome {
        // SAFETY: the item's address is found as in `pop_object`. A sheaf ends with a word that is
        // 0. The words above its top and before its end belong to the lane, so the section may
        // store there.
        unsafe {
            match A::KIND {
                AccessKind::Checked | AccessKind::DirectMalloc => push_object!(
                    "push_object", gate, cell, encoded,
                    enter: "cbz {cpu_id}, {no_lane}"
                ),
                AccessKind::Single | AccessKind::Direct => {
                    push_object_hot!(
                        "push_object_single", gate, encoded,
                        enter: "cbz {cpu_id}, {no_lane}"
                    )
                }
                AccessKind::Ready => push_object!(
                    "push_object_ready", gate, cell, encoded,
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
        // SAFETY: the addition carries only if the gate is open and the lane in use, and then the
        // sum is the address of the item there, whose memory is mapped. The caller guarantees that
        // `cell` lies in the item.
        unsafe {
            section!(
                "cmpxchg_cell",
                [
                    "b.lt {no_lane}",
                    "ldrh {a:w}, [{s}, {index}]",
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
