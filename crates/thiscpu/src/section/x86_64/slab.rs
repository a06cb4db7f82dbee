//! A slab cache's sections.

use core::arch::asm;

use super::Processor;
use crate::lanes::direct::{CACHE_TABLE_LEN, MALLOC_TABLE};
use crate::lanes::table::TABLE;
use crate::section::{Access, AccessKind, DIRECT_TABLE_AT, Outcome, SlabSections, TOP};
use crate::sys::atomic::AtomicUsize;
use crate::sys::rseq::index_ptr;
use crate::sys::rseq::{self, OFFSETS};

/// `pop_object` where a lane has no hot entry; `$find` leaves the address of the cache's part of the lane in `{a}`, from where the top is at `$top`.
macro_rules! pop_object {
    ($section:ident, $name:literal, $top:expr, $entry:ident, [$($enter:tt)*] [$($find:tt)*] $($operands:tt)*) => {
        $section!(
            $name,
            $($enter)*
            [
                $($find)*
                pop_object_text!(a: "{a}", at: " + {TOP}", cell: "{cell}", word: "{word}", top: "{top}", entry: "{entry}", empty: "jz 33f"),
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
macro_rules! pop_object_hot {
    ($section:ident, $name:literal, $top:literal, $low:literal, $entry:ident, [$($enter:tt)*] [$($find:tt)*] $($operands:tt)*) => {
        $section!(
            $name,
            $($enter)*
            [
                $($find)*
                concat!("xor ", $low, ", ", $low),
                // No index register here and in `push_object_hot`: a processor that forwards stores early does so for the simplest
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

/// `push_object` where a lane has no hot entry; as above.
macro_rules! push_object {
    ($section:ident, $name:literal, $top:expr, $entry:ident, [$($enter:tt)*] [$($find:tt)*] $($operands:tt)*) => {
        $section!(
            $name,
            $($enter)*
            [
                $($find)*
                push_object_text!(a: "{a}", at: " + {TOP}", cell: "{cell}", word: "{word}", top: "{top}", entry: "{entry}", full: "je {mismatch}"),
            ]
            aborted: "jmp {aborted}",
            word = out(reg) _,
            top = out(reg) _,
            entry = in(reg) $entry,
            TOP = const $top,
            $($operands)*
            mismatch = label { return Outcome::Mismatch; },
            aborted = label { return Outcome::Aborted; },
        )
    };
}

/// The same where it may have one. `$top` and `$slot` are scratch.
macro_rules! push_object_hot {
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
                "jz {mismatch}",
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
            mismatch = label { return Outcome::Mismatch; },
            aborted = label { return Outcome::Aborted; },
        )
    };
}

/// The part of a near section that finds the item in this thread's lane, by the cache's own front, and leaves its address in `{a}`. The index is in there
/// before.
macro_rules! cache_table_text {
    (closed: $closed:literal) => {
        section_lines! {
            ["cmp {a:e}, {CACHE_TABLE_LEN} - 1"]
            ["ja " $closed]
            ["mov {a}, qword ptr [{gate} + {a}*8 + {DIRECT_TABLE_AT}]"]
            ["test {a}, {a}"]
            ["jz " $closed]
        }
    };
}

impl SlabSections for Processor {
    #[inline(always)]
    unsafe fn pop_object<A: Access>(gate: *const AtomicUsize, cell: usize) -> usize {
        let entry: usize;
        // SAFETY: the gate and a ready entry add up to the item in a lane whose memory is mapped, and the cell to the
        // cache's part of it. Its top leads to a sheaf, or to the item's first top, with a word below it in either case; its words are
        // changed by sections on their CPU only, which restart each other, and by others after a closed gate and a fence.
        // Offsets that are not published are 0, and looked at where that is not known. A thread's near word leads to its own area, which is
        // registered as long as it does, or is 0. What a front has for an index is 0, or the address of the item in that index's lane, in malloc's front that of
        // its first top; who empties lanes has cleared it before the fence. A near gate has its front, of `CACHE_TABLE_LEN` entries, where it is looked for.
        unsafe {
            match A::KIND {
                AccessKind::Checked => pop_object!(
                    section, "pop_object", TOP, entry,
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
                AccessKind::Single => pop_object_hot!(
                    section, "pop_object_single", "{top}", "{top:e}", entry,
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
                AccessKind::Direct => pop_object_hot!(
                    direct_section, "pop_object_direct", "{ptr}", "{ptr:e}", entry,
                    [out: "jz 34f",]
                    [
                        cache_table_text!(closed: "34f"),
                    ]
                    gate = in(reg) gate,
                    CACHE_TABLE_LEN = const CACHE_TABLE_LEN,
                    DIRECT_TABLE_AT = const DIRECT_TABLE_AT,
                ),
                AccessKind::Ready => pop_object!(
                    section, "pop_object_ready", TOP, entry,
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
                AccessKind::DirectMalloc => pop_object!(
                    direct_section, "pop_object_malloc", 0, entry,
                    [out: "jz 34f",]
                    [
                        malloc_table_text!(a: "{a}", direct: "{direct}", closed: "jz 34f"),
                    ]
                    direct = in(reg) MALLOC_TABLE.as_ptr(),
                    cell = in(reg) cell,
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
                AccessKind::Checked => push_object!(
                    section, "push_object", TOP, entry,
                    [enter: "test {cpu_id}, {cpu_id}\n jz {no_lane}",]
                    [
                        "jl {no_lane}",
                        "mov {a}, qword ptr [{table} + {a}*8]",
                        "add {a}, qword ptr [{gate}]",
                        "jnc {closed}",
                    ]
                    gate = in(reg) gate,
                    cell = in(reg) cell,
                    no_lane = label { return Outcome::NoLane; },
                    closed = label { return Outcome::GateClosed; },
                ),
                AccessKind::Single => push_object_hot!(
                    // The gate's register is free by then; another would have to be saved.
                    section, "push_object_single", "{top}", "{gate}", entry,
                    [enter: "test {cpu_id}, {cpu_id}\n jz {no_lane}",]
                    [
                        "jl {no_lane}",
                        "mov {a}, qword ptr [{table} + {a}*8]",
                        "add {a}, qword ptr [{gate}]",
                        "jnc {closed}",
                    ]
                    gate = inout(reg) gate => _,
                    top = out(reg) _,
                    no_lane = label { return Outcome::NoLane; },
                    closed = label { return Outcome::GateClosed; },
                ),
                AccessKind::Direct => push_object_hot!(
                    direct_section, "push_object_direct", "{ptr}", "{area}", entry,
                    [out: "jz {closed}",]
                    [
                        cache_table_text!(closed: "{closed}"),
                    ]
                    gate = in(reg) gate,
                    CACHE_TABLE_LEN = const CACHE_TABLE_LEN,
                    DIRECT_TABLE_AT = const DIRECT_TABLE_AT,
                    closed = label { return Outcome::GateClosed; },
                ),
                AccessKind::Ready => push_object!(
                    section, "push_object_ready", TOP, entry,
                    [enter: "",]
                    [
                        "jl {no_lane}",
                        "mov {a}, qword ptr [{table} + {a}*8]",
                        "add {a}, qword ptr [{gate}]",
                        "jnc {closed}",
                    ]
                    gate = in(reg) gate,
                    cell = in(reg) cell,
                    no_lane = label { return Outcome::NoLane; },
                    closed = label { return Outcome::GateClosed; },
                ),
                AccessKind::DirectMalloc => push_object!(
                    direct_section, "push_object_malloc", 0, entry,
                    [out: "jz {closed}",]
                    [
                        malloc_table_text!(a: "{a}", direct: "{direct}", closed: "jz {closed}"),
                    ]
                    direct = in(reg) MALLOC_TABLE.as_ptr(),
                    cell = in(reg) cell,
                    closed = label { return Outcome::GateClosed; },
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
                    "jl {no_lane}",
                    "mov {a}, qword ptr [{table} + {a}*8]",
                    "cmp {a}, {entry}",
                    "jne {mismatch}",
                    "add {a}, qword ptr [{gate}]",
                    "jnc {closed}",
                    "cmp qword ptr [{a} + {cell}], {old}",
                    "jne {mismatch}",
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
                closed = label { return Outcome::GateClosed; },
                mismatch = label { return Outcome::Mismatch; },
                aborted = label { return Outcome::Aborted; },
            );
        }
        Outcome::Committed
    }
}
