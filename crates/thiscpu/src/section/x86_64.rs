//! The sections in x86-64 assembly; the parent module specifies them.
//!
//! Registers of a section: `{a}` is scratch, and becomes the lane's address. `{cpu_id}` and
//! `{index}` are the offsets of these fields of the rseq area from the thread pointer (fs), and
//! `{vfork}` is that of the vfork word. All are 0 before start-up. `{table}` is the lane table.
//!
//! The section compares `cpu_id` with the vfork word, which is 0 or more than each `cpu_id`. So one
//! comparison finds an unregistered thread and a child of `vfork`, and fuses with the jump behind
//! it. `rseq_cs` is addressed from `cpu_id`, so that the address of `cpu_id` needs no displacement.
//! That made an add in C take 0.45 ns at any alignment of its loop, instead of 0.46 to 0.55 (Zen
//! 5).

use core::arch::asm;

use super::{Outcome, Sections, WordSections};
use crate::lanes::table::TABLE;
use crate::sys::atomic::{AtomicU64, AtomicUsize};
use crate::sys::rseq::{self, OFFSETS, index_ptr};

#[macro_use]
mod text;

/// The processor, which runs sections.
#[derive(Debug)]
pub(crate) struct Processor;

/// Wraps instructions into a section; see [`section_text`].
macro_rules! framed {
    (
        $name:expr, enter: [$($enter:tt)*] range: [$($range:tt)*] aborted: $aborted:literal,
        $($operands:tt)*
    ) => {
        asm!(
            section_text!($name, enter: [$($enter)*] range: [$($range)*] aborted: $aborted),
            $($operands)*
            options(nostack),
        )
    };
}

/// A section whose body's first instruction leaves if the thread is not registered.
macro_rules! section {
    ($name:expr, [$($body:tt)*] unready: $unready:literal, $($rest:tt)*) => {
        section!(
            $name,
            enter: concat!("test {cpu_id}, {cpu_id}\n", $unready),
            [$($body)*] $($rest)*
        )
    };
    (
        $name:expr, enter: $enter:expr, [$($body:tt)*] aborted: $aborted:literal,
        $($operands:tt)*
    ) => {
        framed!(
            $name,
            enter: [
                $enter,
                "lea {a}, [rip + 30b]",
                "mov qword ptr fs:[{cpu_id} + 4], {a}",
            ]
            range: [
                "mov {a:e}, dword ptr fs:[{vfork}]",
                "cmp dword ptr fs:[{cpu_id}], {a:e}",
                $($body)*
            ]
            aborted: $aborted,
            cpu_id = in(reg) OFFSETS.cpu_id(),
            index = in(reg) OFFSETS.index(),
            vfork = in(reg) OFFSETS.vfork(),
            table = in(reg) TABLE.as_ptr(),
            a = out(reg) _,
            $($operands)*
        )
    };
}

/// A direct section; see [`direct_text`].
macro_rules! direct_section {
    ($name:expr, out: $out:literal, $($rest:tt)*) => {
        direct_section!(
            $name,
            enter: [direct_text!(ptr: "{ptr}", area: "{area}", a: "{a}", out: $out),]
            $($rest)*
        )
    };
    (
        $name:expr, enter: [$($enter:tt)*] [$($body:tt)*] aborted: $aborted:literal,
        $($operands:tt)*
    ) => {
        framed!(
            $name,
            enter: [$($enter)*]
            range: [
                "movzx {a:e}, word ptr [{ptr} + 4]",
                $($body)*
            ]
            aborted: $aborted,
            ptr = out(reg) _,
            area = out(reg) _,
            a = out(reg) _,
            RSEQ_CS = const rseq::RSEQ_CS,
            AREA_MASK = const index_ptr::AREA_MASK,
            $($operands)*
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
                "mov {outcome:e}, 1",
                "jl 33f",
                "movzx {a:e}, word ptr fs:[{index}]",
                "mov {a}, qword ptr [{table} + {a}*8]",
                "add {a}, {item}",
                "jnc 33f",
                $($body)*
            ]
            unready: "mov {outcome:e}, 1\n jz 33f",
            aborted: "mov {outcome:e}, 5\n jmp 33f",
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
                "jl {no_lane}",
                "movzx {a:e}, word ptr fs:[{index}]",
                "mov {a}, qword ptr [{table} + {a}*8]",
                "add {a}, {item}",
                "jnc {no_lane}",
                $($body)*
            ]
            unready: "jz {no_lane}",
            aborted: "jmp {aborted}",
            item = in(reg) $item,
            no_lane = label { return Outcome::NoLane; },
            aborted = label { return Outcome::Aborted; },
            $($operands)*
        )
    };
}

/// Leaves if the new count is outside its window, at either end.
macro_rules! window_text {
    () => {
        section_lines! {
            ["mov rcx, qword ptr [{a} + 8]"]
            ["mov {distance}, rcx"]
            ["sub {distance}, {count}"]
            ["shr {distance}, cl"]
            ["jnz {outside}"]
        }
    };
}

/// A section that adds to a count in its window.
///
/// `$find` loads the lane index into `{a}`. `$to_cell` moves from the item to the counter's cell.
/// `$check` compares the new count with the window.
macro_rules! add_windowed {
    (
        $section:ident, $name:literal, $gate:ident, $n:ident,
        [$($enter:tt)*] [$($find:tt)*] [$($to_cell:tt)*] [$($check:tt)*] $($operands:tt)*
    ) => {
        $section!(
            $name,
            $($enter)*
            [
                $($find)*
                "mov {a}, qword ptr [{table} + {a}*8]",
                "add {a}, qword ptr [{gate}]",
                "jnc {closed}",
                $($to_cell)*
                "mov {count}, qword ptr [{a}]",
                "add {count}, {n}",
                $($check)*
                "mov qword ptr [{a}], {count}",
            ]
            aborted: "jmp {aborted}",
            gate = in(reg) $gate.as_ptr(),
            n = in(reg) $n,
            count = out(reg) _,
            no_lane = label { return Outcome::NoLane; },
            closed = label { return Outcome::GateClosed; },
            outside = label { return Outcome::OutsideWindow; },
            aborted = label { return Outcome::Aborted; },
            $($operands)*
        )
    };
}

/// `add_windowed` that checks `cpu_id` and the vfork word.
macro_rules! add_checked {
    ($name:literal, $gate:ident, $n:ident, [$($to_cell:tt)*] $($operands:tt)*) => {
        add_windowed!(
            section, $name, $gate, $n,
            [enter: "test {cpu_id}, {cpu_id}\n jz {no_lane}",]
            [
                "jl {no_lane}",
                "movzx {a:e}, word ptr fs:[{index}]",
            ]
            [$($to_cell)*]
            [window_text!(),]
            distance = out(reg) _,
            out("rcx") _,
            $($operands)*
        )
    };
}

/// `add_windowed` as a direct section.
///
/// The offset of the index pointer is an operand, so that a loop loads it once.
macro_rules! add_direct {
    (
        $name:literal, $gate:ident, $n:ident, [$($to_cell:tt)*] [$($check:tt)*] $($operands:tt)*
    ) => {
        add_windowed!(
            direct_section, $name, $gate, $n,
            [enter: [
                "mov {ptr}, qword ptr fs:[{ptr_at}]",
                direct_entry_text!(ptr: "{ptr}", area: "{area}", a: "{a}", out: "jz {no_lane}"),
            ]]
            [] [$($to_cell)*] [$($check)*]
            ptr_at = in(reg) index_ptr::offset(),
            table = in(reg) TABLE.as_ptr(),
            $($operands)*
        )
    };
}

/// Defines the sections on one word of a given width.
macro_rules! word_sections {
    ($integer:ty, $pointer:literal, $reg:ident, $modifier:literal) => {
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
                            concat!("add ", $pointer, " ptr [{a}], {n", $modifier, "}"),
                        ]
                        n = in($reg) n,
                    );
                }
                Outcome::Committed
            }

            #[inline(always)]
            unsafe fn add_return(item: usize, n: $integer) -> (Outcome, $integer) {
                let (outcome, value): (u32, $integer);
                // SAFETY: `{a}` is the address of a mapped item, because the addition carried (see
                // `add`).
                unsafe {
                    item_section!(
                        concat!(stringify!($integer), "::add_return"),
                        outcome, item,
                        [
                            concat!("mov {v", $modifier, "}, ", $pointer, " ptr [{a}]"),
                            concat!("add {v", $modifier, "}, {n", $modifier, "}"),
                            "mov {outcome:e}, 0",
                            concat!("mov ", $pointer, " ptr [{a}], {v", $modifier, "}"),
                        ]
                        n = in($reg) n,
                        v = out($reg) value,
                    );
                }
                (Outcome::from_register(outcome), value)
            }

            #[inline(always)]
            unsafe fn xchg(item: usize, new: $integer) -> (Outcome, $integer) {
                let (outcome, value): (u32, $integer);
                // SAFETY: `{a}` is the address of a mapped item, because the addition carried (see
                // `add`).
                unsafe {
                    item_section!(
                        concat!(stringify!($integer), "::xchg"),
                        outcome, item,
                        [
                            concat!("mov {v", $modifier, "}, ", $pointer, " ptr [{a}]"),
                            "mov {outcome:e}, 0",
                            concat!("mov ", $pointer, " ptr [{a}], {new", $modifier, "}"),
                        ]
                        new = in($reg) new,
                        v = out($reg) value,
                    );
                }
                (Outcome::from_register(outcome), value)
            }

            #[inline(always)]
            unsafe fn cmpxchg(
                item: usize,
                old: $integer,
                new: $integer,
            ) -> (Outcome, $integer) {
                let (outcome, value): (u32, $integer);
                // SAFETY: `{a}` is the address of a mapped item, because the addition carried (see
                // `add`).
                unsafe {
                    item_section!(
                        concat!(stringify!($integer), "::cmpxchg"),
                        outcome, item,
                        [
                            "mov {outcome:e}, 4",
                            concat!("mov {v", $modifier, "}, ", $pointer, " ptr [{a}]"),
                            concat!("cmp {v", $modifier, "}, {old", $modifier, "}"),
                            "jne 33f",
                            "mov {outcome:e}, 0",
                            concat!("mov ", $pointer, " ptr [{a}], {new", $modifier, "}"),
                        ]
                        old = in($reg) old,
                        new = in($reg) new,
                        v = out($reg) value,
                    );
                }
                (Outcome::from_register(outcome), value)
            }
        }
    };
}

mod ledger;
mod slab;

word_sections!(u8, "byte", reg_byte, "");
word_sections!(u16, "word", reg, ":x");
word_sections!(u32, "dword", reg, ":e");
word_sections!(u64, "qword", reg, "");

impl Sections for Processor {
    #[inline(always)]
    unsafe fn add_windowed(gate: &AtomicUsize, n: i64) -> Outcome {
        // SAFETY: the addition carries only if the gate is open and the lane in use. The sum is
        // then the address of this counter's bank, which is mapped. Only sections on the lane's CPU
        // change its counts and windows, and they abort each other.
        unsafe {
            add_checked!("add_windowed", gate, n, []);
        }
        Outcome::Committed
    }

    #[inline(always)]
    unsafe fn add_windowed_at(gate: &AtomicUsize, cell: usize, n: i64) -> Outcome {
        // SAFETY: `{a}` is the address of a mapped bank, because the addition carried (see
        // `add_windowed`). The caller guarantees that the counter at `cell` lies in the item.
        unsafe {
            add_checked!("add_windowed_at", gate, n, ["add {a}, {cell}",] cell = in(reg) cell,);
        }
        Outcome::Committed
    }

    #[inline(always)]
    unsafe fn add_direct(gate: &AtomicUsize, n: i64) -> Outcome {
        // SAFETY: `{a}` is the address of a mapped bank, because the addition carried (see
        // `add_windowed`). The index pointer is 0, or leads to this thread's area, which is
        // registered as long as it does.
        unsafe {
            add_direct!(
                "add_direct", gate, n, [] [window_text!(),]
                distance = out(reg) _,
                out("rcx") _,
            );
        }
        Outcome::Committed
    }

    #[inline(always)]
    unsafe fn add_up(gate: &AtomicUsize, n: i64) -> Outcome {
        debug_assert!(n >= 0);
        // SAFETY: `{a}` is the address of a mapped bank, because the addition carried. The index
        // pointer is 0, or leads to the area of this thread, which is registered (`add_direct`).
        unsafe {
            add_direct!(
                "add_up", gate, n, []
                [
                    "cmp {count}, qword ptr [{a} + 8]",
                    // The sign of the difference, which is right even if the count wraps around.
                    "jns {outside}",
                ]
            );
        }
        Outcome::Committed
    }

    #[inline(always)]
    unsafe fn add_direct_at(gate: &AtomicUsize, cell: usize, n: i64) -> Outcome {
        // SAFETY: `{a}` is the address of a mapped bank, and the thread is registered (see
        // `add_direct`). The caller guarantees that the counter at `cell` lies in the item.
        unsafe {
            add_direct!(
                "add_direct_at", gate, n, ["add {a}, {cell}",] [window_text!(),]
                cell = in(reg) cell,
                distance = out(reg) _,
                out("rcx") _,
            );
        }
        Outcome::Committed
    }

    #[inline(always)]
    unsafe fn cmpxchg_double(item: usize, old: [u64; 2], new: &[u64; 2]) -> (Outcome, [u64; 2]) {
        let (outcome, first, second): (u32, u64, u64);
        // SAFETY: `{a}` is the address of a mapped item, because the addition carried (see `add` of
        // words). The item and each lane's distance are multiples of 16, so the store is aligned.
        // It is one instruction, so an abort finds it done as a whole or not at all.
        unsafe {
            item_section!(
                "cmpxchg_double",
                outcome, item,
                [
                    "mov {outcome:e}, 4",
                    "mov {first}, qword ptr [{a}]",
                    "mov {second}, qword ptr [{a} + 8]",
                    "cmp {first}, {old0}",
                    "jne 33f",
                    "cmp {second}, {old1}",
                    "jne 33f",
                    "movdqu {pair}, xmmword ptr [{new}]",
                    "mov {outcome:e}, 0",
                    "movdqa xmmword ptr [{a}], {pair}",
                ]
                old0 = in(reg) old[0],
                old1 = in(reg) old[1],
                new = in(reg) new.as_ptr(),
                first = out(reg) first,
                second = out(reg) second,
                pair = out(xmm_reg) _,
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
                    "jl {no_lane}",
                    "movzx {a:e}, word ptr fs:[{index}]",
                    "mov {a}, qword ptr [{table} + {a}*8]",
                    "cmp {a}, {entry}",
                    "jne {mismatch}",
                    "mov {distance}, rcx",
                    "sub {distance}, qword ptr [{a} + {bank}]",
                    "shr {distance}, cl",
                    "jnz {outside}",
                    "mov qword ptr [{a} + {bank} + 8], rcx",
                ]
                unready: "jz {no_lane}",
                aborted: "jmp {aborted}",
                bank = in(reg) bank,
                entry = in(reg) entry,
                in("rcx") window,
                distance = out(reg) _,
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
                    "jl {no_lane}",
                    "movzx {a:e}, word ptr fs:[{index}]",
                    "mov {a}, qword ptr [{table} + {a}*8]",
                    "add {a}, qword ptr [{gate}]",
                    "jnc {closed}",
                    "cmp qword ptr [{recalls}], {expected}",
                    "jne {mismatch}",
                    "cmp qword ptr [{a} + 8], {old}",
                    "jne {mismatch}",
                    "mov {distance}, rcx",
                    "sub {distance}, qword ptr [{a}]",
                    "shr {distance}, cl",
                    "jnz {outside}",
                    "mov qword ptr [{a} + 8], rcx",
                ]
                unready: "jz {no_lane}",
                aborted: "jmp {aborted}",
                gate = in(reg) gate.as_ptr(),
                recalls = in(reg) recalls.as_ptr(),
                expected = in(reg) expected,
                old = in(reg) old,
                in("rcx") window,
                distance = out(reg) _,
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
                    "mov {next}, qword ptr [{a}]",
                    "mov qword ptr [{node}], {next}",
                    "mov qword ptr [{a}], {node}",
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
                    "mov {outcome:e}, 4",
                    "mov {node}, qword ptr [{a}]",
                    "test {node}, {node}",
                    "jz 33f",
                    "mov {next}, qword ptr [{node}]",
                    "mov {outcome:e}, 0",
                    "mov qword ptr [{a}], {next}",
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
                    "mov qword ptr [{turns_left}], {turns}",
                    "dec {turns}",
                    "jnz 35b",
                    "/* {table} {index} */",
                ]
                unready: "jz {aborted}",
                aborted: "jmp {aborted}",
                turns = inout(reg) turns => _,
                turns_left = in(reg) turns_left.as_ptr(),
                aborted = label { return true; },
            );
        }
        false
    }
}
