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
                    "cmp {s:w}, #0",
                    "b.lt {no_lane}",
                    "ldr {a}, [{table}, {a}, lsl #3]",
                    "ldr {s}, [{account}]",
                    "add {a}, {a}, {s}",
                    "tst {a}, #7",
                    "b.ne {shut}",
                    "ldr {s}, [{a}]",
                    "cmp {s}, {account}",
                    "b.eq 35f",
                    "ldr {s}, [{a}, #8]!",
                    "cmp {s}, {account}",
                    "b.eq 35f",
                    "ldr {s}, [{a}, #8]!",
                    "cmp {s}, {account}",
                    "b.eq 35f",
                    "ldr {s}, [{a}, #8]!",
                    "cmp {s}, {account}",
                    "b.ne {differs}",
                    "35:",
                    "ldr {count}, [{a}, {cell}]",
                    "add {count}, {count}, {n}",
                    "sub {s}, {count}, {window}",
                    "lsr {s}, {s}, {window}",
                    "cbnz {s}, {outside}",
                    "str {count}, [{a}, {cell}]",
                ]
                unready: "cbz {area}, {no_lane}",
                aborted: "b {aborted}",
                account = in(reg) account.as_ptr(),
                cell = in(reg) cell,
                window = in(reg) window,
                n = in(reg) n,
                count = out(reg) _,
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
        // Without the instruction no single one adds atomically, and none could commit.
        if !std::arch::is_aarch64_feature_detected!("lse") {
            return Outcome::NoLane;
        }
        // SAFETY: as for `charge`; the word is the account's, and all who change it do so atomically. This
        // processor has the instruction.
        unsafe {
            section!(
                "charge_shared",
                [
                    "cmp {s:w}, #0",
                    "b.lt {no_lane}",
                    "ldr {a}, [{table}, {a}, lsl #3]",
                    "ldr {s}, [{account}]",
                    "add {a}, {a}, {s}",
                    "tst {a}, #7",
                    "b.ne {shut}",
                    "add {a}, {account}, {word}",
                    ".arch_extension lse",
                    "stadd {n}, [{a}]",
                ]
                unready: "cbz {area}, {no_lane}",
                aborted: "b {aborted}",
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
