//! The section of ledgers.

use core::arch::asm;

use super::Processor;
use crate::lanes::table::TABLE;
use crate::section::{BATCH, LedgerSections, Outcome};
use crate::sys::rseq::OFFSETS;

impl LedgerSections for Processor {
    #[inline(always)]
    unsafe fn charge(set: usize, key: u64, cell: usize, n: i64) -> Outcome {
        // SAFETY: the addition carries only if `set` has the ready bit and the lane is in use. The
        // sum is then the address of the set there, which is mapped. Sections on the lane's CPU
        // change its counters, and abort each other. Other threads change counters only behind a
        // key that this section does not find, or stops finding before it could commit; see
        // `ledger::cache`.
        unsafe {
            section!(
                "charge",
                [
                    "b.lt {no_lane}",
                    "ldrh {a:w}, [{s}, {index}]",
                    "ldr {a}, [{table}, {a}, lsl #3]",
                    "adds {a}, {a}, {set}",
                    "b.cc {closed}",
                    "ldr {s}, [{a}]",
                    "cmp {s}, {key}",
                    "b.eq 35f",
                    "ldr {s}, [{a}, #8]!",
                    "cmp {s}, {key}",
                    "b.eq 35f",
                    "ldr {s}, [{a}, #8]!",
                    "cmp {s}, {key}",
                    "b.eq 35f",
                    "ldr {s}, [{a}, #8]!",
                    "cmp {s}, {key}",
                    "b.ne {mismatch}",
                    "35:",
                    "ldr {count}, [{a}, {cell}]",
                    "add {count}, {count}, {n}",
                    "add {s}, {count}, #{batch}",
                    "lsr {s}, {s}, #{bits}",
                    "cbnz {s}, {outside}",
                    "str {count}, [{a}, {cell}]",
                ]
                unready: "cbz {cpu_id}, {no_lane}",
                aborted: "b {aborted}",
                set = in(reg) set,
                key = in(reg) key,
                cell = in(reg) cell,
                batch = const BATCH,
                bits = const 1 + BATCH.trailing_zeros(),
                n = in(reg) n,
                count = out(reg) _,
                no_lane = label { return Outcome::NoLane; },
                closed = label { return Outcome::GateClosed; },
                mismatch = label { return Outcome::Mismatch; },
                outside = label { return Outcome::OutsideWindow; },
                aborted = label { return Outcome::Aborted; },
            );
        }
        Outcome::Committed
    }
}
