//! A slab cache's sections.

use core::arch::asm;

use super::Processor;
use crate::lanes::direct::{CACHE_TABLE_LEN, MALLOC_TABLE};
use crate::lanes::table::TABLE;
use crate::section::{FRONT_AT, Outcome, SlabSections, TOP, Way, Ways};
use crate::sys::atomic::AtomicUsize;
use crate::sys::rseq::index_ptr;
use crate::sys::rseq::{self, OFFSETS};

/// `take` where a lane has no hot entry; `$find` leaves the address of the cache's part of the lane in `{a}`, from where the top is at `$top`.
macro_rules! take {
    ($section:ident, $name:literal, $top:expr, $entry:ident, [$($enter:tt)*] [$($find:tt)*] $($operands:tt)*) => {
        $section!(
            $name,
            $($enter)*
            [
                $($find)*
                take_text!(a: "{a}", at: " + {TOP}", cell: "{cell}", word: "{word}", top: "{top}", entry: "{entry}", empty: "jz 33f"),
            ]
            aborted: "xor {entry:e}, {entry:e}\n jmp 33f",
            word = out(reg) _,
            top = out(reg) _,
            entry = out(reg) $entry,
            TOP = const $top,
            $($operands)*
        )
    };
}

/// The same where it may have one. `$top` is scratch, and `$low` its lower half.
macro_rules! take_hot {
    ($section:ident, $name:literal, $top:literal, $low:literal, $entry:ident, [$($enter:tt)*] [$($find:tt)*] $($operands:tt)*) => {
        $section!(
            $name,
            $($enter)*
            [
                $($find)*
                concat!("xor ", $low, ", ", $low),
                // No index register here and in `give_hot`: a processor that forwards stores early does so for the simplest
                // addresses only. 12 cycles a pair, and 17 with one, on a Xeon of 2023.
                "mov {entry}, qword ptr [{a}]",
                "test {entry}, {entry}",
                "jnz 35f",
                concat!("mov ", $top, ", qword ptr [{a} + {TOP}]"),
                concat!("mov {entry}, qword ptr [{a} + ", $top, " + {TOP} - 8]"),
                "test {entry}, {entry}",
                "jz 33f",
                concat!("sub ", $top, ", 8"),
                "add {a}, {TOP}",
                "35:",
                concat!("mov qword ptr [{a}], ", $top),
            ]
            aborted: "xor {entry:e}, {entry:e}\n jmp 33f",
            entry = out(reg) $entry,
            TOP = const TOP,
            $($operands)*
        )
    };
}

/// `give` where a lane has no hot entry; as above.
macro_rules! give {
    ($section:ident, $name:literal, $top:expr, $entry:ident, [$($enter:tt)*] [$($find:tt)*] $($operands:tt)*) => {
        $section!(
            $name,
            $($enter)*
            [
                $($find)*
                give_text!(a: "{a}", at: " + {TOP}", cell: "{cell}", word: "{word}", top: "{top}", entry: "{entry}", full: "je {differs}"),
            ]
            aborted: "jmp {aborted}",
            word = out(reg) _,
            top = out(reg) _,
            entry = in(reg) $entry,
            TOP = const $top,
            $($operands)*
            differs = label { return Outcome::Differs; },
            aborted = label { return Outcome::Aborted; },
        )
    };
}

/// The same where it may have one. `$top` and `$slot` are scratch.
macro_rules! give_hot {
    ($section:ident, $name:literal, $top:literal, $slot:literal, $entry:ident, [$($enter:tt)*] [$($find:tt)*] $($operands:tt)*) => {
        $section!(
            $name,
            $($enter)*
            [
                $($find)*
                "cmp qword ptr [{a}], 0",
                "je 35f",
                concat!("mov ", $top, ", qword ptr [{a} + {TOP}]"),
                concat!("mov ", $slot, ", qword ptr [{a} + ", $top, " + {TOP}]"),
                concat!("test ", $slot, ", ", $slot),
                "jz {differs}",
                concat!("mov qword ptr [{a} + ", $top, " + {TOP}], {entry}"),
                concat!("lea {entry}, [", $top, " + 8]"),
                "add {a}, {TOP}",
                "35:",
                "mov qword ptr [{a}], {entry}",
            ]
            aborted: "jmp {aborted}",
            entry = inout(reg) $entry => _,
            TOP = const TOP,
            $($operands)*
            differs = label { return Outcome::Differs; },
            aborted = label { return Outcome::Aborted; },
        )
    };
}

/// The part of a near section that finds the item in this thread's lane, by the cache's own front, and leaves its address in `{a}`. The index is in there
/// before.
macro_rules! own_front_text {
    (shut: $shut:literal) => {
        section_lines! {
            ["cmp {a:e}, {CACHE_TABLE_LEN} - 1"]
            ["ja " $shut]
            ["mov {a}, qword ptr [{gate} + {a}*8 + {FRONT_AT}]"]
            ["test {a}, {a}"]
            ["jz " $shut]
        }
    };
}

impl SlabSections for Processor {
    #[inline(always)]
    unsafe fn take<W: Way>(gate: *const AtomicUsize, cell: usize) -> usize {
        let entry: usize;
        // SAFETY: the gate and a ready entry add up to the item in a lane whose memory is mapped, and the cell to the
        // cache's part of it. Its top leads to a sheaf, or to the item's first top, with a word below it in either case; its words are
        // changed by sections on their CPU only, which restart each other, and by others after a closed gate and a fence.
        // Offsets that are not published are 0, and looked at where that is not known. A thread's near word leads to its own area, which is
        // registered as long as it does, or is 0. What a front has for an index is 0, or the address of the item in that index's lane, in malloc's front that of
        // its first top; who empties lanes has cleared it before the fence. A near gate has its front, of `CACHE_TABLE_LEN` entries, where it is looked for.
        unsafe {
            match W::WAY {
                Ways::Any => take!(
                    section, "take", TOP, entry,
                    [enter: "test {cpu_id}, {cpu_id}\n jz 34f",]
                    [
                        "jl 34f",
                        "mov {a}, qword ptr [{table} + {a}*8]",
                        "add {a}, qword ptr [{gate}]",
                        "jnc 34f",
                    ]
                    gate = in(reg) gate,
                    cell = in(reg) cell,
                ),
                Ways::First => take_hot!(
                    section, "take_first", "{top}", "{top:e}", entry,
                    [enter: "test {cpu_id}, {cpu_id}\n jz 34f",]
                    [
                        "jl 34f",
                        "mov {a}, qword ptr [{table} + {a}*8]",
                        "add {a}, qword ptr [{gate}]",
                        "jnc 34f",
                    ]
                    gate = in(reg) gate,
                    top = out(reg) _,
                ),
                Ways::Near => take_hot!(
                    near_section, "take_near", "{near}", "{near:e}", entry,
                    [out: "jz 34f",]
                    [
                        own_front_text!(shut: "34f"),
                    ]
                    gate = in(reg) gate,
                    CACHE_TABLE_LEN = const CACHE_TABLE_LEN,
                    FRONT_AT = const FRONT_AT,
                ),
                Ways::Ready => take!(
                    section, "take_ready", TOP, entry,
                    [enter: "",]
                    [
                        "jl 34f",
                        "mov {a}, qword ptr [{table} + {a}*8]",
                        "add {a}, qword ptr [{gate}]",
                        "jnc 34f",
                    ]
                    gate = in(reg) gate,
                    cell = in(reg) cell,
                ),
                Ways::Front => take!(
                    near_section, "take_front", 0, entry,
                    [out: "jz 34f",]
                    [
                        front_text!(a: "{a}", front: "{front}", shut: "jz 34f"),
                    ]
                    front = in(reg) MALLOC_TABLE.as_ptr(),
                    cell = in(reg) cell,
                ),
            }
        }
        entry
    }

    #[inline(always)]
    unsafe fn give<W: Way>(gate: *const AtomicUsize, cell: usize, entry: usize) -> Outcome {
        // SAFETY: as for `take`. A sheaf ends with a word that is 0; what is above its top and before that belongs to
        // its lane.
        unsafe {
            match W::WAY {
                Ways::Any => give!(
                    section, "give", TOP, entry,
                    [enter: "test {cpu_id}, {cpu_id}\n jz {no_lane}",]
                    [
                        "jl {no_lane}",
                        "mov {a}, qword ptr [{table} + {a}*8]",
                        "add {a}, qword ptr [{gate}]",
                        "jnc {shut}",
                    ]
                    gate = in(reg) gate,
                    cell = in(reg) cell,
                    no_lane = label { return Outcome::NoLane; },
                    shut = label { return Outcome::Shut; },
                ),
                Ways::First => give_hot!(
                    // The gate's register is free by then; another would have to be saved.
                    section, "give_first", "{top}", "{gate}", entry,
                    [enter: "test {cpu_id}, {cpu_id}\n jz {no_lane}",]
                    [
                        "jl {no_lane}",
                        "mov {a}, qword ptr [{table} + {a}*8]",
                        "add {a}, qword ptr [{gate}]",
                        "jnc {shut}",
                    ]
                    gate = inout(reg) gate => _,
                    top = out(reg) _,
                    no_lane = label { return Outcome::NoLane; },
                    shut = label { return Outcome::Shut; },
                ),
                Ways::Near => give_hot!(
                    near_section, "give_near", "{near}", "{area}", entry,
                    [out: "jz {shut}",]
                    [
                        own_front_text!(shut: "{shut}"),
                    ]
                    gate = in(reg) gate,
                    CACHE_TABLE_LEN = const CACHE_TABLE_LEN,
                    FRONT_AT = const FRONT_AT,
                    shut = label { return Outcome::Shut; },
                ),
                Ways::Ready => give!(
                    section, "give_ready", TOP, entry,
                    [enter: "",]
                    [
                        "jl {no_lane}",
                        "mov {a}, qword ptr [{table} + {a}*8]",
                        "add {a}, qword ptr [{gate}]",
                        "jnc {shut}",
                    ]
                    gate = in(reg) gate,
                    cell = in(reg) cell,
                    no_lane = label { return Outcome::NoLane; },
                    shut = label { return Outcome::Shut; },
                ),
                Ways::Front => give!(
                    near_section, "give_front", 0, entry,
                    [out: "jz {shut}",]
                    [
                        front_text!(a: "{a}", front: "{front}", shut: "jz {shut}"),
                    ]
                    front = in(reg) MALLOC_TABLE.as_ptr(),
                    cell = in(reg) cell,
                    shut = label { return Outcome::Shut; },
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
