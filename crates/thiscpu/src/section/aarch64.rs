//! The sections in AArch64 assembly. What each does, and why, is in the module above.
//!
//! A section's registers: `{a}` is scratch and ends up as the lane's address; `{s}` is scratch;
//! `{cpu_id}` and `{index}` are the offsets of these fields of the rseq area from the thread pointer;
//! `{table}` is the lane table.
//!
//! Loads and stores are plain. What orders them: for a section's own CPU, program order; for the
//! first look at fresh memory, the address dependency on the gate; for everybody else, the fence.

use core::arch::asm;

use super::{Outcome, Sections, WordSections};
use crate::lanes::table::TABLE;
use crate::sys::atomic::{AtomicU64, AtomicUsize};
use crate::sys::rseq::OFFSETS;

/// This processor.
#[derive(Debug)]
pub(crate) struct Processor;

/// Wraps a body into a section: its descriptor, the store that enters it, the look at `cpu_id`
/// (`{s:w}` holds it when the body begins), and the abort handler, which lies away from the code
/// that runs. `unready` leaves while the offsets are not known.
macro_rules! section {
    ($name:expr, [$($body:tt)*] unready: $unready:literal, aborted: $aborted:literal, $($operands:tt)*) => {
        section!($name, enter: $unready, [$($body)*] aborted: $aborted, $($operands)*)
    };
    ($name:expr, enter: $enter:literal, [$($body:tt)*] aborted: $aborted:literal, $($operands:tt)*) => {
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
            // For checkers: which section this is. Not loaded when the program runs. The flag ties it
            // to the descriptors, so that a linker which drops what nobody uses drops both or none.
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
            "ldrh {a:w}, [{s}, {index}]",
            "ldr {s:w}, [{cpu_id}]",
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
            table = in(reg) TABLE.as_ptr(),
            a = out(reg) _,
            s = out(reg) _,
            $($operands)*
            options(nostack),
        )
    };
}

/// A section on an item that returns a value: how it ended is left in a register, because
/// assembly that jumps to Rust code cannot also return values.
macro_rules! item_section {
    ($name:expr, $outcome:ident, $item:ident, [$($body:tt)*] $($operands:tt)*) => {
        section!(
            $name,
            [
                "tbnz {s:w}, #31, 33f",
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

/// A section on an item that returns nothing but how it ended.
macro_rules! plain_section {
    ($name:expr, $item:ident, [$($body:tt)*] $($operands:tt)*) => {
        section!(
            $name,
            [
                "cmp {s:w}, #0",
                "b.lt {no_lane}",
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
                "cmp {s:w}, #0",
                "b.lt {no_lane}",
                "ldr {a}, [{table}, {a}, lsl #3]",
                "ldr {s}, [{gate}]",
                "adds {a}, {a}, {s}",
                "b.cc {closed}",
                $($to_cell)*
                "ldp {count}, {window_word}, [{a}]",
                "add {count}, {count}, {n}",
                "sub {s}, {count}, {window_word}",
                "lsr {s}, {s}, {window_word}",
                "cbnz {s}, {window}",
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
            window = label { return Outcome::OutsideWindow; },
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
                // SAFETY: a ready lane's memory is mapped for every item, and this item is the
                // caller's; its words are changed by sections on their own CPU only.
                unsafe {
                    plain_section!(
                        concat!(stringify!($integer), "::add"),
                        item,
                        [
                            concat!("ldr", $suffix, " {v", $modifier, "}, [{a}]"),
                            concat!("add {v", $modifier, "}, {v", $modifier, "}, {n", $modifier, "}"),
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
                // SAFETY: as for `add`.
                unsafe {
                    item_section!(
                        concat!(stringify!($integer), "::add_return"),
                        outcome, item,
                        [
                            concat!("ldr", $suffix, " {v", $modifier, "}, [{a}]"),
                            concat!("add {v", $modifier, "}, {v", $modifier, "}, {n", $modifier, "}"),
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
                // SAFETY: as for `add`.
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
                // SAFETY: as for `add`. The narrow loads clear the rest of the register, as
                // `u64::from` does.
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
        // SAFETY: the gate and a ready entry add up to this counter's bank in a lane whose memory is
        // mapped. Counts and windows of a lane are changed by sections on its CPU only, and those
        // restart each other.
        unsafe {
            add_windowed!("add_windowed", gate, n, []);
        }
        Outcome::Committed
    }

    #[inline(always)]
    unsafe fn add_windowed_at(gate: &AtomicUsize, cell: usize, n: i64) -> Outcome {
        // SAFETY: as for `add_windowed`.
        unsafe {
            add_windowed!("add_windowed_at", gate, n, ["add {a}, {a}, {cell}",] cell = in(reg) cell,);
        }
        Outcome::Committed
    }

    #[inline(always)]
    unsafe fn cmpxchg_double(item: usize, old: [u64; 2], new: &[u64; 2]) -> (Outcome, [u64; 2]) {
        // The commit is CASP (LSE), because a store pair is only single-copy atomic from LSE2 on, and
        // could be interrupted half way. A machine without LSE has no such section, and its pairs use
        // the slow lane.
        if !std::arch::is_aarch64_feature_detected!("lse") {
            return (Outcome::NoLane, [0, 0]);
        }
        let (outcome, first, second): (u32, u64, u64);
        // SAFETY: as for the words; the item and each lane's distance are multiples of 16. The pair was
        // just compared and this section is alone on its lane, so the exchange that commits succeeds.
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
        // SAFETY: as for the words.
        unsafe {
            section!(
                "move_window",
                [
                    "cmp {s:w}, #0",
                    "b.lt {no_lane}",
                    "ldr {a}, [{table}, {a}, lsl #3]",
                    "cmp {a}, {entry}",
                    "b.ne {mismatch}",
                    "add {a}, {a}, {bank}",
                    "ldr {s}, [{a}]",
                    "sub {s}, {s}, {window}",
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
        epoch: &AtomicU64,
        expected: u64,
        old: u64,
        window: u64,
    ) -> Outcome {
        // SAFETY: as for `add_windowed`; the epoch is only read.
        unsafe {
            section!(
                "add_credit",
                [
                    "cmp {s:w}, #0",
                    "b.lt {no_lane}",
                    "ldr {a}, [{table}, {a}, lsl #3]",
                    "ldr {s}, [{gate}]",
                    "adds {a}, {a}, {s}",
                    "b.cc {closed}",
                    "ldr {s}, [{epoch}]",
                    "cmp {s}, {expected}",
                    "b.ne {mismatch}",
                    "ldr {s}, [{a}, #8]",
                    "cmp {s}, {old}",
                    "b.ne {mismatch}",
                    "ldr {s}, [{a}]",
                    "sub {s}, {s}, {window}",
                    "lsr {s}, {s}, {window}",
                    "cbnz {s}, {outside}",
                    "str {window}, [{a}, #8]",
                ]
                unready: "cbz {cpu_id}, {no_lane}",
                aborted: "b {aborted}",
                gate = in(reg) gate.as_ptr(),
                epoch = in(reg) epoch.as_ptr(),
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
        // SAFETY: as for the words; until the commit the node is the caller's alone.
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
        // SAFETY: as for the words. The first node cannot be taken away by another thread between the
        // two loads: that thread would have to run on this CPU, and this section would restart.
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
        // SAFETY: the only memory it stores to is `turns_left`.
        unsafe {
            section!(
                "spin",
                [
                    "35:",
                    "str {turns}, [{turns_left}]",
                    "sub {turns}, {turns}, #1",
                    "cbnz {turns}, 35b",
                    "/* {table} */",
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
