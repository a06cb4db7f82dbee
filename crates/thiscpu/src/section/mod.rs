//! The sections: rseq critical sections, each a few loads and checks and one store that commits.
//!
//! # The specification
//!
//! Every section begins in the same way; `refuse` and `abort` leave it without having stored
//! anything but `rseq_cs` (and, for `push`, the caller's own node).
//!
//! ```text
//! enter:    area.rseq_cs = &descriptor
//!           if area.cpu_id < 0                  refuse(NoLane)     this thread is not registered
//!           entry = TABLE[area.index & 0xffff]                     index: mm_cid, or cpu_id
//!
//! add_windowed(gate, cell, n):                                      a counter's add
//!           bank = *gate + entry                                   the low bits: see `lanes::table`
//!           if bank & 7 != 0                    refuse(Shut)       gate closed, or lane not in use
//!           count = bank[cell].count + n
//!           if (count - bank[cell].window) >> (window & 63) != 0
//!                                               refuse(Window)
//!           bank[cell].count = count            commit
//!
//! The others take an item instead of a gate:
//!           if entry == 0                       refuse(NoLane)
//!           word = item + entry + 2
//!
//! add(n):             *word += n                commit
//! add_return(n):      v = *word + n; *word = v  commit, v
//! xchg(new):          v = *word; *word = new    commit, v
//! cmpxchg(old, new):  v = *word; if v != old    refuse(Differs), v
//!                     *word = new               commit
//! cmpxchg_double(old, new):  v = word[0..2]; if v != old   refuse(Differs), v
//!                     word[0..2] = new          commit, one store of twice the width
//! retarget(entry', window):  a counter's bank; if entry != entry'      refuse(Differs)
//!                     if (count - window) >> (window & 63) != 0        refuse(Window)
//!                     bank.window = window      commit
//! push(node):         node.next = *word; *word = node      commit
//! pop():              v = *word; if v == null   refuse(Differs)
//!                     *word = v.next            commit, v
//! ```
//!
//! | result | meaning | stored |
//! |---|---|---|
//! | `Done` | committed | the one store |
//! | `NoLane` | this thread or this index has no lane; [`crate::lanes::join`] may give it one | nothing |
//! | `Shut` | the gate is closed, or as `NoLane` | nothing |
//! | `Window` | the count would leave its window | nothing |
//! | `Differs` | a comparison failed | nothing |
//! | `Aborted` | preempted, migrated, interrupted by a signal, or fenced | nothing |
//!
//! The kernel restarts a section at its abort handler; ours reports `Aborted` and the slow path
//! tries again a bounded number of times, so that the fast path carries no count of restarts.
//!
//! Ordering: a section is relaxed towards other CPUs. What orders it is its own CPU (program order),
//! the address dependency from gate to lane, and the fence.

#[cfg(target_arch = "aarch64")]
mod aarch64;
pub(crate) mod double;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::*;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::*;

#[cfg(not(all(
    target_os = "linux",
    target_pointer_width = "64",
    target_endian = "little",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
compile_error!("thiscpu is for Linux on x86_64 and aarch64, 64 bits, little endian");

/// How a section ended; see the table above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Outcome {
    Done = 0,
    NoLane = 1,
    Shut = 2,
    Window = 3,
    Differs = 4,
    Aborted = 5,
}

impl Outcome {
    /// From the number that a section leaves in a register.
    fn from_register(number: u32) -> Outcome {
        match number {
            0 => Outcome::Done,
            1 => Outcome::NoLane,
            4 => Outcome::Differs,
            _ => Outcome::Aborted,
        }
    }
}

/// How often a slow path tries a section again before it turns to the slow lane. A section takes a
/// few nanoseconds, so two aborts in a row are rare and this many mean a debugger's single step.
pub(crate) const ATTEMPTS: u32 = 8;
