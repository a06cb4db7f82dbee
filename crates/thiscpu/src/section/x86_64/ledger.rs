//! A ledger's sections.

use core::arch::asm;

use super::Processor;
use crate::lanes::table::TABLE;
use crate::section::{LedgerSections, Outcome};
use crate::sys::atomic::AtomicUsize;
use crate::sys::rseq::OFFSETS;

impl LedgerSections for Processor {
    #[inline(always)]
    unsafe fn charge(account: &AtomicUsize, cell: usize, window: u64, n: i64) -> Outcome {
        // SAFETY: the gate and a ready entry add up to the account's set in a lane whose memory is mapped. Keys
        // and counters of a lane are changed by sections on its CPU only, and those restart each other.
        unsafe {
            section!(
                "charge",
                [
                    "jl {no_lane}",
                    "mov {a}, qword ptr [{table} + {a}*8]",
                    "add {a}, qword ptr [{account}]",
                    "test {a:l}, 7",
                    "jnz {shut}",
                    "cmp qword ptr [{a}], {account}",
                    "je 35f",
                    "add {a}, 8",
                    "cmp qword ptr [{a}], {account}",
                    "je 35f",
                    "add {a}, 8",
                    "cmp qword ptr [{a}], {account}",
                    "je 35f",
                    "add {a}, 8",
                    "cmp qword ptr [{a}], {account}",
                    "jne {differs}",
                    "35:",
                    "mov {count}, qword ptr [{a} + {cell}]",
                    "add {count}, {n}",
                    "mov {distance}, {count}",
                    "sub {distance}, rcx",
                    "shr {distance}, cl",
                    "jnz {outside}",
                    "mov qword ptr [{a} + {cell}], {count}",
                ]
                unready: "jz {no_lane}",
                aborted: "jmp {aborted}",
                account = in(reg) account.as_ptr(),
                cell = in(reg) cell,
                n = in(reg) n,
                in("rcx") window,
                count = out(reg) _,
                distance = out(reg) _,
                no_lane = label { return Outcome::NoLane; },
                shut = label { return Outcome::Shut; },
                differs = label { return Outcome::Differs; },
                outside = label { return Outcome::Window; },
                aborted = label { return Outcome::Aborted; },
            );
        }
        Outcome::Done
    }

    #[inline(always)]
    unsafe fn charge_shared(account: &AtomicUsize, word: usize, n: i64) -> Outcome {
        // SAFETY: as for `charge`; the word is the account's, and all who change it do so atomically.
        unsafe {
            section!(
                "charge_shared",
                [
                    "jl {no_lane}",
                    "mov {a}, qword ptr [{table} + {a}*8]",
                    "add {a}, qword ptr [{account}]",
                    "test {a:l}, 7",
                    "jnz {shut}",
                    "lock add qword ptr [{account} + {word}], {n}",
                ]
                unready: "jz {no_lane}",
                aborted: "jmp {aborted}",
                account = in(reg) account.as_ptr(),
                word = in(reg) word,
                n = in(reg) n,
                no_lane = label { return Outcome::NoLane; },
                shut = label { return Outcome::Shut; },
                aborted = label { return Outcome::Aborted; },
            );
        }
        Outcome::Done
    }
}
