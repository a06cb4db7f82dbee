//! The sections in AArch64 assembly; the parent module specifies them.
//!
//! Registers of a section: `{a}` is scratch, and becomes the lane's address. `{s}` is scratch.
//! `{cpu_id}` and `{index}` are the offsets of these fields of the rseq area from the thread
//! pointer, and `{vfork}` is that of the vfork word. All are 0 before start-up. `{table}` is the
//! lane table.
//!
//! Loads and stores are plain. A section's own CPU sees them in program order. The first access of
//! fresh memory follows the load of the gate by its address dependency. All other CPUs rely on the
//! fence.

use core::arch::asm;

use super::{Outcome, Sections, WordSections};
use crate::lanes::table::TABLE;
use crate::sys::atomic::{AtomicU64, AtomicUsize};
use crate::sys::rseq::OFFSETS;

/// The processor, which runs sections.
#[derive(Debug)]
pub(crate) struct Processor;

/// Wraps a body into a section: its descriptor, its entry, and its abort handler.
///
/// When the body begins, `cpu_id` has been compared with the vfork word: the body leaves if it is
/// less. `{s}` is the thread pointer then. The handler lies away from the code that runs. `unready`
/// leaves while the offsets are 0.
macro_rules! section {
    (
        $name:expr, [$($body:tt)*] unready: $unready:literal, aborted: $aborted:literal,
        $($operands:tt)*
    ) => {
        section!($name, enter: $unready, [$($body)*] aborted: $aborted, $($operands)*)
    };
    (
        $name:expr, enter: $enter:literal, [$($body:tt)*] aborted: $aborted:literal,
        $($operands:tt)*
    ) => {
        asm!(
            ".pushsection __rseq_cs, \"aw\"",
            ".balign 32",
            "30:",
            ".long 0, 0",
            ".quad 31f, 32f - 31f, 34f",
            ".popsection",
            ".pushsection __rseq_cs_ptr_array, \"aw\"",
            ".quad 30b",
            ".popsection",
            // The section's name, for checkers; it is not loaded at run time. The flag ties it to
            // the descriptors, so that a linker that drops unused code drops both or neither.
            ".pushsection .thiscpu_sections, \"o\", %progbits, __rseq_cs",
            ".quad 30b",
            concat!(".asciz \"", $name, "\""),
            ".popsection",
            $enter,
            "mrs {s}, tpidr_el0",
            "adrp {a}, 30b",
            "add {a}, {a}, :lo12:30b",
            "add {cpu_id}, {cpu_id}, {s}",
            "stur {a}, [{cpu_id}, #4]",
            "31:",
            "ldr {a:w}, [{s}, {vfork}]",
            "ldr {cpu_id:w}, [{cpu_id}]",
            "cmp {cpu_id:w}, {a:w}",
            $($body)*
            "32:",
            ".pushsection __rseq_failure, \"ax\"",
            ".inst 0xd428bc00",
            "34:",
            $aborted,
            ".popsection",
            "33:",
            cpu_id = inout(reg) OFFSETS.cpu_id() => _,
            index = in(reg) OFFSETS.index(),
            vfork = in(reg) OFFSETS.vfork(),
            table = in(reg) TABLE.as_ptr(),
            a = out(reg) _,
            s = out(reg) _,
            $($operands)*
            options(nostack),
        )
    };
}

/// A section on an item that returns a value.
///
/// It leaves its outcome in a register, because assembly that jumps to Rust code cannot also return
/// values.
macro_rules! item_section {
    ($name:expr, $outcome:ident, $item:ident, [$($body:tt)*] $($operands:tt)*) => {
        section!(
            $name,
            [
                "b.lt 33f",
                "ldrh {a:w}, [{s}, {index}]",
                "ldr {a}, [{table}, {a}, lsl #3]",
                "adds {a}, {a}, {item}",
                "b.cc 33f",
                $($body)*
            ]
            unready: "mov {outcome:w}, #1\n cbz {cpu_id}, 33f",
            aborted: "mov {outcome:w}, #5\n b 33f",
            item = in(reg) $item,
            outcome = out(reg) $outcome,
            $($operands)*
        )
    };
}

/// A section on an item that returns only its outcome.
macro_rules! plain_section {
    ($name:expr, $item:ident, [$($body:tt)*] $($operands:tt)*) => {
        section!(
            $name,
            [
                "b.lt {no_lane}",
                "ldrh {a:w}, [{s}, {index}]",
                "ldr {a}, [{table}, {a}, lsl #3]",
                "adds {a}, {a}, {item}",
                "b.cc {no_lane}",
                $($body)*
            ]
            unready: "cbz {cpu_id}, {no_lane}",
            aborted: "b {aborted}",
            item = in(reg) $item,
            no_lane = label { return Outcome::NoLane; },
            aborted = label { return Outcome::Aborted; },
            $($operands)*
        )
    };
}

/// The body of `add_windowed`; `to_cell` moves from the item to the counter's cell in it.
macro_rules! add_windowed {
    ($name:literal, $gate:ident, $n:ident, [$($to_cell:tt)*] $($operands:tt)*) => {
        section!(
            $name,
            [
                "b.lt {no_lane}",
                "ldrh {a:w}, [{s}, {index}]",
                "ldr {a}, [{table}, {a}, lsl #3]",
                "ldr {s}, [{gate}]",
                "adds {a}, {a}, {s}",
                "b.cc {closed}",
                $($to_cell)*
                "ldp {count}, {window_word}, [{a}]",
                "add {count}, {count}, {n}",
                "sub {s}, {window_word}, {count}",
                "lsr {s}, {s}, {window_word}",
                "cbnz {s}, {outside}",
                "str {count}, [{a}]",
            ]
            unready: "cbz {cpu_id}, {no_lane}",
            aborted: "b {aborted}",
            gate = in(reg) $gate.as_ptr(),
            n = in(reg) $n,
            count = out(reg) _,
            window_word = out(reg) _,
            no_lane = label { return Outcome::NoLane; },
            closed = label { return Outcome::GateClosed; },
            outside = label { return Outcome::OutsideWindow; },
            aborted = label { return Outcome::Aborted; },
            $($operands)*
        )
    };
}

/// Defines the sections on one word of a given width.
macro_rules! word_sections {
    ($integer:ty, $suffix:literal, $modifier:literal) => {
        impl WordSections<$integer> for Processor {
            #[inline(always)]
            unsafe fn add(item: usize, n: $integer) -> Outcome {
                // SAFETY: the addition carries only if the lane is in use, and then its memory is
                // mapped. The caller guarantees that the item stays allocated. Only sections on the
                // lane's CPU change its words, and they abort each other.
                unsafe {
                    plain_section!(
                        concat!(stringify!($integer), "::add"),
                        item,
                        [
                            concat!("ldr", $suffix, " {v", $modifier, "}, [{a}]"),
                            concat!(
                                "add {v", $modifier, "}, {v", $modifier, "}, {n", $modifier, "}"
                            ),
                            concat!("str", $suffix, " {v", $modifier, "}, [{a}]"),
                        ]
                        n = in(reg) u64::from(n),
                        v = out(reg) _,
                    );
                }
                Outcome::Committed
            }

            #[inline(always)]
            unsafe fn add_return(item: usize, n: $integer) -> (Outcome, $integer) {
                let (outcome, value): (u32, u64);
                // SAFETY: `{a}` is the address of a mapped item, because the addition carried (see
                // `add`).
                unsafe {
                    item_section!(
                        concat!(stringify!($integer), "::add_return"),
                        outcome, item,
                        [
                            concat!("ldr", $suffix, " {v", $modifier, "}, [{a}]"),
                            concat!(
                                "add {v", $modifier, "}, {v", $modifier, "}, {n", $modifier, "}"
                            ),
                            "mov {outcome:w}, #0",
                            concat!("str", $suffix, " {v", $modifier, "}, [{a}]"),
                        ]
                        n = in(reg) u64::from(n),
                        v = out(reg) value,
                    );
                }
                (Outcome::from_register(outcome), value as $integer)
            }

            #[inline(always)]
            unsafe fn xchg(item: usize, new: $integer) -> (Outcome, $integer) {
                let (outcome, value): (u32, u64);
                // SAFETY: `{a}` is the address of a mapped item, because the addition carried (see
                // `add`).
                unsafe {
                    item_section!(
                        concat!(stringify!($integer), "::xchg"),
                        outcome, item,
                        [
                            concat!("ldr", $suffix, " {v", $modifier, "}, [{a}]"),
                            "mov {outcome:w}, #0",
                            concat!("str", $suffix, " {new", $modifier, "}, [{a}]"),
                        ]
                        new = in(reg) u64::from(new),
                        v = out(reg) value,
                    );
                }
                (Outcome::from_register(outcome), value as $integer)
            }

            #[inline(always)]
            unsafe fn cmpxchg(
                item: usize,
                old: $integer,
                new: $integer,
            ) -> (Outcome, $integer) {
                let (outcome, value): (u32, u64);
                // SAFETY: `{a}` is the address of a mapped item, because the addition carried (see
                // `add`). The narrow loads clear the rest of the register, as `u64::from` does.
                unsafe {
                    item_section!(
                        concat!(stringify!($integer), "::cmpxchg"),
                        outcome, item,
                        [
                            "mov {outcome:w}, #4",
                            concat!("ldr", $suffix, " {v", $modifier, "}, [{a}]"),
                            "cmp {v}, {old}",
                            "b.ne 33f",
                            "mov {outcome:w}, #0",
                            concat!("str", $suffix, " {new", $modifier, "}, [{a}]"),
                        ]
                        old = in(reg) u64::from(old),
                        new = in(reg) u64::from(new),
                        v = out(reg) value,
                    );
                }
                (Outcome::from_register(outcome), value as $integer)
            }
        }
    };
}

mod ledger;
mod slab;

word_sections!(u8, "b", ":w");
word_sections!(u16, "h", ":w");
word_sections!(u32, "", ":w");
word_sections!(u64, "", "");

impl Sections for Processor {
    #[inline(always)]
    unsafe fn add_windowed(gate: &AtomicUsize, n: i64) -> Outcome {
        // SAFETY: the addition carries only if the gate is open and the lane in use. The sum is
        // then the address of this counter's bank, which is mapped. Only sections on the lane's CPU
        // change its counts and windows, and they abort each other.
        unsafe {
            add_windowed!("add_windowed", gate, n, []);
        }
        Outcome::Committed
    }

    #[inline(always)]
    unsafe fn add_windowed_at(gate: &AtomicUsize, cell: usize, n: i64) -> Outcome {
        // SAFETY: `{a}` is the address of a mapped bank, because the addition carried (see
        // `add_windowed`). The caller guarantees that the counter at `cell` lies in the item.
        unsafe {
            add_windowed!(
                "add_windowed_at", gate, n, ["add {a}, {a}, {cell}",] cell = in(reg) cell,
            );
        }
        Outcome::Committed
    }

    #[inline(always)]
    unsafe fn cmpxchg_double(item: usize, old: [u64; 2], new: &[u64; 2]) -> (Outcome, [u64; 2]) {
        // The commit is CASP (LSE): a store pair is single-copy atomic only from LSE2 on, and could
        // be interrupted half way. A processor without LSE has no such section, and its pairs use
        // the shared lane.
        if !std::arch::is_aarch64_feature_detected!("lse") {
            return (Outcome::NoLane, [0, 0]);
        }
        let (outcome, first, second): (u32, u64, u64);
        // SAFETY: `{a}` is the address of a mapped item, because the addition carried (see `add` of
        // words). The item and each lane's distance are multiples of 16. The pair was just
        // compared, and no other section runs on this lane, so the exchange that commits succeeds.
        unsafe {
            item_section!(
                "cmpxchg_double",
                outcome, item,
                [
                    "mov {outcome:w}, #4",
                    "ldp x2, x3, [{a}]",
                    "cmp x2, {old0}",
                    "ccmp x3, {old1}, #0, eq",
                    "b.ne 33f",
                    "mov {outcome:w}, #0",
                    ".arch_extension lse",
                    "casp x2, x3, x4, x5, [{a}]",
                ]
                old0 = in(reg) old[0],
                old1 = in(reg) old[1],
                out("x2") first,
                out("x3") second,
                in("x4") new[0],
                in("x5") new[1],
            );
        }
        (Outcome::from_register(outcome), [first, second])
    }

    unsafe fn move_window(bank: usize, entry: usize, window: u64) -> Outcome {
        // SAFETY: the entry is that of a lane in use, whose memory is mapped. The caller guarantees
        // that the bank stays allocated. Only sections on the lane's CPU change it.
        unsafe {
            section!(
                "move_window",
                [
                    "b.lt {no_lane}",
                    "ldrh {a:w}, [{s}, {index}]",
                    "ldr {a}, [{table}, {a}, lsl #3]",
                    "cmp {a}, {entry}",
                    "b.ne {mismatch}",
                    "add {a}, {a}, {bank}",
                    "ldr {s}, [{a}]",
                    "sub {s}, {window}, {s}",
                    "lsr {s}, {s}, {window}",
                    "cbnz {s}, {outside}",
                    "str {window}, [{a}, #8]",
                ]
                unready: "cbz {cpu_id}, {no_lane}",
                aborted: "b {aborted}",
                bank = in(reg) bank,
                entry = in(reg) entry,
                window = in(reg) window,
                no_lane = label { return Outcome::NoLane; },
                mismatch = label { return Outcome::Mismatch; },
                outside = label { return Outcome::OutsideWindow; },
                aborted = label { return Outcome::Aborted; },
            );
        }
        Outcome::Committed
    }

    unsafe fn add_credit(
        gate: &AtomicUsize,
        recalls: &AtomicU64,
        expected: u64,
        old: u64,
        window: u64,
    ) -> Outcome {
        // SAFETY: `{a}` is the address of a mapped bank, because the addition carried (see
        // `add_windowed`). The number of recalls is a live atomic, and only read.
        unsafe {
            section!(
                "add_credit",
                [
                    "b.lt {no_lane}",
                    "ldrh {a:w}, [{s}, {index}]",
                    "ldr {a}, [{table}, {a}, lsl #3]",
                    "ldr {s}, [{gate}]",
                    "adds {a}, {a}, {s}",
                    "b.cc {closed}",
                    "ldr {s}, [{recalls}]",
                    "cmp {s}, {expected}",
                    "b.ne {mismatch}",
                    "ldr {s}, [{a}, #8]",
                    "cmp {s}, {old}",
                    "b.ne {mismatch}",
                    "ldr {s}, [{a}]",
                    "sub {s}, {window}, {s}",
                    "lsr {s}, {s}, {window}",
                    "cbnz {s}, {outside}",
                    "str {window}, [{a}, #8]",
                ]
                unready: "cbz {cpu_id}, {no_lane}",
                aborted: "b {aborted}",
                gate = in(reg) gate.as_ptr(),
                recalls = in(reg) recalls.as_ptr(),
                expected = in(reg) expected,
                old = in(reg) old,
                window = in(reg) window,
                no_lane = label { return Outcome::NoLane; },
                closed = label { return Outcome::GateClosed; },
                mismatch = label { return Outcome::Mismatch; },
                outside = label { return Outcome::OutsideWindow; },
                aborted = label { return Outcome::Aborted; },
            );
        }
        Outcome::Committed
    }

    #[inline(always)]
    unsafe fn push(item: usize, node: usize) -> Outcome {
        // SAFETY: `{a}` is the address of a mapped item, because the addition carried (see `add` of
        // words). The caller guarantees that the node is writable, and that no other code uses it
        // until the commit.
        unsafe {
            plain_section!(
                "push",
                item,
                [
                    "ldr {next}, [{a}]",
                    "str {next}, [{node}]",
                    "str {node}, [{a}]",
                ]
                node = in(reg) node,
                next = out(reg) _,
            );
        }
        Outcome::Committed
    }

    #[inline(always)]
    unsafe fn pop(item: usize) -> (Outcome, usize) {
        let (outcome, node): (u32, usize);
        // SAFETY: `{a}` is the address of a mapped item, because the addition carried (see `add` of
        // words). The caller guarantees that every node is readable. No other thread takes the
        // first node between the two loads: it would have to run on this CPU, which aborts this
        // section.
        unsafe {
            item_section!(
                "pop",
                outcome, item,
                [
                    "mov {outcome:w}, #4",
                    "ldr {node}, [{a}]",
                    "cbz {node}, 33f",
                    "ldr {next}, [{node}]",
                    "mov {outcome:w}, #0",
                    "str {next}, [{a}]",
                ]
                node = out(reg) node,
                next = out(reg) _,
            );
        }
        (Outcome::from_register(outcome), node)
    }

    unsafe fn spin(turns: u64, turns_left: &core::sync::atomic::AtomicU64) -> bool {
        // SAFETY: the section stores only to `turns_left`, a live atomic.
        unsafe {
            section!(
                "spin",
                [
                    "35:",
                    "str {turns}, [{turns_left}]",
                    "sub {turns}, {turns}, #1",
                    "cbnz {turns}, 35b",
                    "/* {table} {index} */",
                ]
                unready: "cbz {cpu_id}, {aborted}",
                aborted: "b {aborted}",
                turns = inout(reg) turns => _,
                turns_left = in(reg) turns_left.as_ptr(),
                aborted = label { return true; },
            );
        }
        false
    }
}
