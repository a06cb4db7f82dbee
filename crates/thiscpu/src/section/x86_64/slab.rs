//! The sections of slab caches.

use core::arch::asm;

use super::Processor;
use crate::lanes::direct::{CACHE_TABLE_LEN, MALLOC_TABLE};
use crate::lanes::table::TABLE;
use crate::section::{Access, AccessKind, DIRECT_TABLE_OFFSET, Outcome, SlabSections, TOP_OFFSET};
use crate::sys::atomic::AtomicUsize;
use crate::sys::rseq::index_ptr;
use crate::sys::rseq::{self, OFFSETS};

/// `pop_object` without a hot object.
///
/// `$find` leaves an address in `{a}`: that of the item in this thread's lane, `$top` bytes before
/// its first top.
macro_rules! pop_object {
    (
        $section:ident, $name:literal, $top:expr, $encoded:ident,
        [$($enter:tt)*] [$($find:tt)*] $($operands:tt)*
    ) => {
        $section!(
            $name,
            $($enter)*
            [
                $($find)*
                pop_object_text!(
                    a: "{a}", at: " + {TOP}", cell: "{cell}", word: "{word}", top: "{top}",
                    encoded: "{encoded}", empty: "jz 33f"
                ),
            ]
            aborted: "xor {encoded:e}, {encoded:e}\n jmp 33f",
            word = out(reg) _,
            top = out(reg) _,
            encoded = out(reg) $encoded,
            TOP = const $top,
            $($operands)*
        )
    };
}

/// `pop_object` with a hot object. `$top` is scratch, and `$low` its lower half.
macro_rules! pop_object_hot {
    (
        $section:ident, $name:literal, $top:literal, $low:literal, $encoded:ident,
        [$($enter:tt)*] [$($find:tt)*] $($operands:tt)*
    ) => {
        $section!(
            $name,
            $($enter)*
            [
                $($find)*
                concat!("xor ", $low, ", ", $low),
                // The hot object's address has no index register, here and in `push_object_hot`:
                // processors that forward stores early do so only with the simplest addresses. A
                // pair takes 12 cycles on a Xeon of 2023, and 17 with an index register.
                "mov {encoded}, qword ptr [{a}]",
                "test {encoded}, {encoded}",
                "jnz 35f",
                concat!("mov ", $top, ", qword ptr [{a} + {TOP}]"),
                concat!("mov {encoded}, qword ptr [{a} + ", $top, " + {TOP} - 8]"),
                "test {encoded}, {encoded}",
                "jz 33f",
                concat!("sub ", $top, ", 8"),
                "add {a}, {TOP}",
                "35:",
                concat!("mov qword ptr [{a}], ", $top),
            ]
            aborted: "xor {encoded:e}, {encoded:e}\n jmp 33f",
            encoded = out(reg) $encoded,
            TOP = const TOP_OFFSET,
            $($operands)*
        )
    };
}

/// `push_object` without a hot object; `$find` is as for `pop_object`.
macro_rules! push_object {
    (
        $section:ident, $name:literal, $top:expr, $encoded:ident,
        [$($enter:tt)*] [$($find:tt)*] $($operands:tt)*
    ) => {
        $section!(
            $name,
            $($enter)*
            [
                $($find)*
                push_object_text!(
                    a: "{a}", at: " + {TOP}", cell: "{cell}", word: "{word}", top: "{top}",
                    encoded: "{encoded}", full: "je {mismatch}"
                ),
            ]
            aborted: "jmp {aborted}",
            word = out(reg) _,
            top = out(reg) _,
            encoded = in(reg) $encoded,
            TOP = const $top,
            $($operands)*
            mismatch = label { return Outcome::Mismatch; },
            aborted = label { return Outcome::Aborted; },
        )
    };
}

/// `push_object` with a hot object. `$top` and `$slot` are scratch.
macro_rules! push_object_hot {
    (
        $section:ident, $name:literal, $top:literal, $slot:literal, $encoded:ident,
        [$($enter:tt)*] [$($find:tt)*] $($operands:tt)*
    ) => {
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
                concat!("mov qword ptr [{a} + ", $top, " + {TOP}], {encoded}"),
                concat!("lea {encoded}, [", $top, " + 8]"),
                "add {a}, {TOP}",
                "35:",
                "mov qword ptr [{a}], {encoded}",
            ]
            aborted: "jmp {aborted}",
            encoded = inout(reg) $encoded => _,
            TOP = const TOP_OFFSET,
            $($operands)*
            mismatch = label { return Outcome::Mismatch; },
            aborted = label { return Outcome::Aborted; },
        )
    };
}

/// Finds the item in this thread's lane by the cache's own direct table.
///
/// `{a}` holds the index before, and the address of the item after.
macro_rules! cache_table_text {
    (closed: $closed:literal) => {
        section_lines! {
            ["cmp {a:e}, {CACHE_TABLE_LEN} - 1"]
            ["ja " $closed]
            ["mov {a}, qword ptr [{gate} + {a}*8 + {DIRECT_TABLE_OFFSET}]"]
            ["test {a}, {a}"]
            ["jz " $closed]
        }
    };
}

impl SlabSections for Processor {
    #[inline(always)]
    unsafe fn pop_object<A: Access>(gate: *const AtomicUsize, cell: usize) -> usize {
        let encoded: usize;
        // SAFETY: the section loads through one of these addresses, and leaves if there is none:
        // - Gate and entry: the addition carries only if the gate is open and the lane in use. The
        //   sum is then the address of the item there, whose memory is mapped. Offsets that are not
        //   yet published are 0, which `Checked` and `Single` check; with `Ready` they are
        //   published.
        // - A direct table: an entry is 0, or the address of the item in its index's lane (in
        //   malloc's table, of the first top there). A thread that empties lanes clears the table
        //   before its fence. `Direct` guarantees a table of `CACHE_TABLE_LEN` entries behind the
        //   gate. The index pointer is 0, or leads to this thread's area, which is registered as
        //   long as it does. The caller guarantees that a cache has its part at `cell`. Its top
        //   leads to a sheaf or to the first top, and a readable word lies below either. Only
        //   sections on the lane's CPU change these words, and they abort each other; any other
        //   thread does so after a closed gate and a fence. The countdown, in the item's first
        //   word, is changed at any time; any value of it is valid.
        unsafe {
            match A::KIND {
                AccessKind::Checked => pop_object!(
                    section, "pop_object", TOP_OFFSET, encoded,
                    [enter: "test {cpu_id}, {cpu_id}\n jz 34f",]
                    [
                        "jl 34f",
                        "movzx {a:e}, word ptr fs:[{index}]",
                        "mov {a}, qword ptr [{table} + {a}*8]",
                        "add {a}, qword ptr [{gate}]",
                        "jnc 34f",
                    ]
                    gate = in(reg) gate,
                    cell = in(reg) cell,
                ),
                AccessKind::Single => pop_object_hot!(
                    section, "pop_object_single", "{top}", "{top:e}", encoded,
                    [enter: "test {cpu_id}, {cpu_id}\n jz 34f",]
                    [
                        "jl 34f",
                        "movzx {a:e}, word ptr fs:[{index}]",
                        "mov {a}, qword ptr [{table} + {a}*8]",
                        "add {a}, qword ptr [{gate}]",
                        "jnc 34f",
                    ]
                    gate = in(reg) gate,
                    top = out(reg) _,
                ),
                AccessKind::Direct => pop_object_hot!(
                    direct_section, "pop_object_direct", "{ptr}", "{ptr:e}", encoded,
                    [out: "jz 34f",]
                    [
                        cache_table_text!(closed: "34f"),
                    ]
                    gate = in(reg) gate,
                    CACHE_TABLE_LEN = const CACHE_TABLE_LEN,
                    DIRECT_TABLE_OFFSET = const DIRECT_TABLE_OFFSET,
                ),
                AccessKind::Ready => pop_object!(
                    section, "pop_object_ready", TOP_OFFSET, encoded,
                    [enter: "",]
                    [
                        "jl 34f",
                        "movzx {a:e}, word ptr fs:[{index}]",
                        "mov {a}, qword ptr [{table} + {a}*8]",
                        "add {a}, qword ptr [{gate}]",
                        "jnc 34f",
                        countdown_text!(a: "{a}", at: "", word: "{word:e}", over: "js 34f"),
                    ]
                    gate = in(reg) gate,
                    cell = in(reg) cell,
                ),
                AccessKind::DirectMalloc => pop_object!(
                    direct_section, "pop_object_malloc", 0, encoded,
                    [out: "jz 34f",]
                    [
                        malloc_table_text!(a: "{a}", direct: "{direct}", closed: "jz 34f"),
                        countdown_text!(a: "{a}", at: " - 16", word: "{word:e}", over: "js 34f"),
                    ]
                    direct = in(reg) MALLOC_TABLE.items.as_ptr(),
                    cell = in(reg) cell,
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
                AccessKind::Checked => push_object!(
                    section, "push_object", TOP_OFFSET, encoded,
                    [enter: "test {cpu_id}, {cpu_id}\n jz {no_lane}",]
                    [
                        "jl {no_lane}",
                        "movzx {a:e}, word ptr fs:[{index}]",
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
                    // The gate's register is free by then; any other would have to be saved.
                    section, "push_object_single", "{top}", "{gate}", encoded,
                    [enter: "test {cpu_id}, {cpu_id}\n jz {no_lane}",]
                    [
                        "jl {no_lane}",
                        "movzx {a:e}, word ptr fs:[{index}]",
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
                    direct_section, "push_object_direct", "{ptr}", "{area}", encoded,
                    [out: "jz {closed}",]
                    [
                        cache_table_text!(closed: "{closed}"),
                    ]
                    gate = in(reg) gate,
                    CACHE_TABLE_LEN = const CACHE_TABLE_LEN,
                    DIRECT_TABLE_OFFSET = const DIRECT_TABLE_OFFSET,
                    closed = label { return Outcome::GateClosed; },
                ),
                AccessKind::Ready => push_object!(
                    section, "push_object_ready", TOP_OFFSET, encoded,
                    [enter: "",]
                    [
                        "jl {no_lane}",
                        "movzx {a:e}, word ptr fs:[{index}]",
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
                    direct_section, "push_object_malloc", 0, encoded,
                    [out: "jz {closed}",]
                    [
                        malloc_table_text!(a: "{a}", direct: "{direct}", closed: "jz {closed}"),
                    ]
                    direct = in(reg) MALLOC_TABLE.items.as_ptr(),
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
        // SAFETY: the addition carries only if the gate is open and the lane in use, and then the
        // sum is the address of the item there, whose memory is mapped. The caller guarantees that
        // `cell` lies in the item.
        unsafe {
            section!(
                "cmpxchg_cell",
                [
                    "jl {no_lane}",
                    "movzx {a:e}, word ptr fs:[{index}]",
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
