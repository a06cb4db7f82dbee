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
                    "jl {no_lane}",
                    "movzx {a:e}, word ptr fs:[{index}]",
                    "mov {a}, qword ptr [{table} + {a}*8]",
                    "add {a}, {set}",
                    "jnc {closed}",
                    "cmp qword ptr [{a}], {key}",
                    "je 35f",
                    "add {a}, 8",
                    "cmp qword ptr [{a}], {key}",
                    "je 35f",
                    "add {a}, 8",
                    "cmp qword ptr [{a}], {key}",
                    "je 35f",
                    "add {a}, 8",
                    "cmp qword ptr [{a}], {key}",
                    "jne {mismatch}",
                    "35:",
                    "mov {count}, qword ptr [{a} + {cell}]",
                    "add {count}, {n}",
                    "lea {distance}, [{count} + {batch}]",
                    "shr {distance}, {bits}",
                    "jnz {outside}",
                    "mov qword ptr [{a} + {cell}], {count}",
                ]
                unready: "jz {no_lane}",
                aborted: "jmp {aborted}",
                set = in(reg) set,
                key = in(reg) key,
                cell = in(reg) cell,
                n = in(reg) n,
                batch = const BATCH,
                bits = const 1 + BATCH.trailing_zeros(),
                count = out(reg) _,
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
}
