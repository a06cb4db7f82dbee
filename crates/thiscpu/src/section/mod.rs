//! The sections: rseq critical sections, each a few loads and checks and one store that commits.
//!
//! # The specification
//!
//! Every section begins in the same way; `refuse` and `abort` leave it without having stored
//! anything but `rseq_cs` (and, for `push` and `push_object`, what the caller owns and what lies above a top).
//!
//! ```text
//! enter:    area.rseq_cs = &descriptor
//!           if area.cpu_id < 0                  refuse(NoLane)     this thread is not registered
//!           entry = TABLE[area.index & 0xffff]                     index: mm_cid, or cpu_id
//!
//! add_windowed(gate, cell, n):                                      a counter's add
//!           bank = *gate + entry                                   see `lanes::table`
//!           if it did not carry                 refuse(Shut)       gate closed, or lane not in use
//!           count = bank[cell].count + n
//!           if (count - bank[cell].window) >> (window & 63) != 0
//!                                               refuse(Window)
//!           bank[cell].count = count            commit
//!
//! charge(set, key, cell, n):                      an account's charge
//!           way = set + entry                   as for add_windowed, but no gate is loaded
//!           if it did not carry                 refuse(Shut)
//!           four times: if *way == key          found, else way += 8
//!                                               refuse(Differs)
//!           count = way[cell] + n
//!           if (count + BATCH) >> (1 + log2 BATCH) != 0               refuse(Window)
//!           way[cell] = count                   commit
//!
//! Of a slab cache, whose part of the item begins at `cell`; `lane.hot`, `cell.top` and what it leads to, from the item, as in `slab::lane`:
//!           lane = *gate + entry                as for add_windowed
//!           if it did not carry                 refuse(Shut)
//! take(cell):         v = lane.hot; if v != 0: lane.hot = 0        commit, v            by the ways First and Near
//!                     v = lane[cell.top + 8]; if v == 0            refuse(Differs)     nothing below
//!                     cell.top -= 8             commit, v
//! give(cell, v):      if lane.hot == 0: lane.hot = v               commit              the same
//!                     if lane[cell.top + 16] == 0                  refuse(Differs)     the end
//!                     lane[cell.top + 16] = v                      above the top
//!                     cell.top += 8             commit
//!      A near section (ways Near and Front, x86-64 only) does not look at `area.cpu_id`: the thread's own word leads to the index, and is 0, and the
//!      section refused, as long as it is not known that the thread is registered. In place of gate and entry, by the way Front
//!                     lane = FRONT[index & 0xffff] - 16; if it was 0           refuse(Shut)
//!      and by the way Near, with the cache's own front
//!                     if (index & 0xffff) >= 256          refuse(Shut)
//!                     lane = front[index & 0xffff]; if it is 0                 refuse(Shut)
//! replace(entry', cell, old, new):  if entry != entry'             refuse(Differs)
//!                     if lane[cell] != old      refuse(Differs)
//!                     lane[cell] = new          commit
//!
//! The others take an item, plus `READY_BIT`, instead of a gate:
//!           word = item + entry
//!           if it did not carry                 refuse(NoLane)
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
//! admit(gate, epoch, expected, old, window):        a budget's lane is lent to
//!           bank = *gate + entry                as for add_windowed
//!           if it did not carry                 refuse(Shut)
//!           if *epoch != expected or bank.window != old                refuse(Differs)
//!           if (count - window) >> (window & 63) != 0                  refuse(Window)
//!           bank.window = window                commit
//!
//! push(node):         node.next = *word; *word = node      commit
//! pop():              v = *word; if v == null   refuse(Differs)
//!                     *word = v.next            commit, v
//! ```
//!
//! | result | meaning | stored |
//! |---|---|---|
//! | `Done` | committed | the one store |
//! | `NoLane` | this thread or this index has no lane; [`crate::lanes::join`] may give it one | nothing |
//! | `Shut` | the gate is closed, or the front leads nowhere, or as `NoLane` | nothing |
//! | `Window` | the count would leave its window | nothing |
//! | `Differs` | a comparison failed | nothing |
//! | `Aborted` | preempted, migrated, interrupted by a signal, or fenced | nothing |
//!
//! The kernel restarts a section at its abort handler; ours reports `Aborted` and the slow path
//! tries again a bounded number of times, so that the fast path carries no count of restarts.
//!
//! Each inlined copy leaves its name and its descriptor's address in `.thiscpu_sections`, which is
//! not loaded: that is how checkers find every copy in a finished binary.
//!
//! Ordering: a section is relaxed towards other CPUs. What orders it is its own CPU (program order),
//! the address dependency from gate, or front, to lane, and the fence.

use crate::sys::atomic::{AtomicU64, AtomicUsize};

#[cfg(all(target_arch = "aarch64", not(thiscpu_model)))]
mod aarch64;
#[cfg(all(target_arch = "x86_64", not(thiscpu_model)))]
mod x86_64;

#[cfg(thiscpu_model)]
pub(crate) use crate::model::Processor;
#[cfg(all(target_arch = "aarch64", not(thiscpu_model)))]
pub(crate) use aarch64::Processor;
#[cfg(all(target_arch = "x86_64", not(thiscpu_model)))]
pub(crate) use x86_64::Processor;

#[cfg(not(all(
    target_os = "linux",
    target_pointer_width = "64",
    target_endian = "little",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
compile_error!("thiscpu is for Linux on x86_64 and aarch64, 64 bits, little endian");

/// What runs sections.
pub(crate) trait Sections {
    /// A counter's add. Inlined into the caller.
    ///
    /// # Safety
    ///
    /// `gate` is the gate of a counter: open, it leads to an item of at least 32 bytes that stays
    /// allocated under way.
    unsafe fn add_windowed(gate: &AtomicUsize, n: i64) -> Outcome;

    /// The add of one counter of several that share a gate, `cell` bytes into their item.
    ///
    /// # Safety
    ///
    /// As for `add_windowed`, and the item has at least `cell` + 32 bytes.
    unsafe fn add_windowed_at(gate: &AtomicUsize, cell: usize, n: i64) -> Outcome;

    /// Gives a bank of lane `entry` a new window, if this is that lane and its count fits in.
    ///
    /// # Safety
    ///
    /// `bank` is the address in lane 0 of a counter's bank, plus [`READY_BIT`](crate::lanes::table), allocated and not freed under way.
    unsafe fn move_window(bank: usize, entry: usize, window: u64) -> Outcome;

    /// Gives this lane of a budget a new window in place of `old`, unless `epoch` has moved on from
    /// `expected`: who changes it then fences knows that nothing is lent any more by who saw it before.
    ///
    /// # Safety
    ///
    /// `gate` is the gate of a budget, as for `add_windowed`.
    unsafe fn add_credit(
        gate: &AtomicUsize,
        epoch: &AtomicU64,
        expected: u64,
        old: u64,
        window: u64,
    ) -> Outcome;

    /// Compares two adjacent 8-byte words of this lane and replaces both by one 16-byte store.
    ///
    /// # Safety
    ///
    /// `item` is that of a 16-byte item, aligned to 16, allocated and not freed under way; plus `READY_BIT`.
    unsafe fn cmpxchg_double(item: usize, old: [u64; 2], new: &[u64; 2]) -> (Outcome, [u64; 2]);

    /// Puts `node` in front of this lane's list; the node's first word becomes its link.
    ///
    /// # Safety
    ///
    /// `item` is that of an 8-byte item, allocated and not freed under way; plus `READY_BIT`. `node` is valid for writes of
    /// 8 bytes and in no list.
    unsafe fn push(item: usize, node: usize) -> Outcome;

    /// Takes the first node off this lane's list; `Differs` if there is none.
    ///
    /// # Safety
    ///
    /// `item` is as for `push`; each node of the list is readable.
    unsafe fn pop(item: usize) -> (Outcome, usize);

    /// Enters a section and stays in it for up to `turns` turns of a loop, counted down in
    /// `*turns_left` so that others see it begin. Whether it was aborted.
    ///
    /// # Safety
    ///
    /// This thread is registered.
    unsafe fn spin(turns: u64, turns_left: &core::sync::atomic::AtomicU64) -> bool;
}

/// How much of each counter of an account a lane keeps: a power of two. Counts from `-BATCH` to `BATCH - 1`.
pub(crate) const BATCH: u32 = 1024;

/// What runs a ledger's section.
pub(crate) trait LedgerSections {
    /// Charges the account of `key` in this lane, if it is there. Inlined into the caller.
    ///
    /// # Safety
    ///
    /// `set` leads to no lane, or is the address in lane 0 of a set of four keys, plus [`READY_BIT`](crate::lanes::table),
    /// which stays allocated under way and has a row of four counters `cell` bytes after the keys.
    unsafe fn charge(set: usize, key: u64, cell: usize, n: i64) -> Outcome;
}

/// From a part of a lane's item, which begins with the hot entry, to the word that says where the top of its sheaf is; for the first part, what all of them
/// say that is from.
pub(crate) const TOP: usize = 16;

/// From a gate that has a front of its own to that one's first entry.
#[cfg(all(target_arch = "x86_64", not(thiscpu_model)))]
pub(crate) const DIRECT_TABLE_AT: usize = 72;

/// What whoever runs a slab cache's section knows before: what is known need not be looked at.
pub trait Access: Copy + core::fmt::Debug {
    #[doc(hidden)]
    const KIND: AccessKind;
}

/// The kinds of [`Access`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessKind {
    Checked,
    Single,
    Direct,
    Ready,
    DirectMalloc,
}

#[cfg(thiscpu_model)]
impl AccessKind {
    /// Whether lanes have hot entries. Those of many classes have none: which class a block is of has to be found out first, and then the next
    /// allocation waits for a store whose address is late.
    pub(crate) fn has_hot(self) -> bool {
        matches!(self, AccessKind::Single | AccessKind::Direct)
    }
}

/// Nothing is known.
#[derive(Clone, Copy, Debug)]
pub struct Checked;
/// The cell is 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Single;
/// The cell is 0, and a front follows the gate, `DIRECT_TABLE_AT` bytes on; and the thread itself says where its lane index is, or that there is none for
/// it. Before it has been [let in](crate::lanes::current::enable_direct), the section is refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Direct;
/// Sections can be entered: the offsets of the rseq area are published.
#[derive(Clone, Copy, Debug)]
pub struct Ready;

/// The gate is that of the front's item, and the thread itself says where its lane index is, as for `Near`.
#[derive(Clone, Copy, Debug)]
pub struct DirectMalloc;

impl Access for Checked {
    const KIND: AccessKind = AccessKind::Checked;
}

impl Access for Single {
    const KIND: AccessKind = AccessKind::Single;
}

impl Access for Direct {
    const KIND: AccessKind = AccessKind::Direct;
}

impl Access for DirectMalloc {
    const KIND: AccessKind = AccessKind::DirectMalloc;
}

impl Access for Ready {
    const KIND: AccessKind = AccessKind::Ready;
}

/// What runs a slab cache's sections.
pub(crate) trait SlabSections {
    /// Takes this lane's hot entry, if it has such, or the uppermost of its sheaf; 0 if it was refused or aborted, whatever for.
    /// Inlined into the caller.
    ///
    /// # Safety
    ///
    /// `gate` is the gate of slab caches, with what the way says is there: open, it leads to their item, in which one has its part at `cell`, whose
    /// top leads to a sheaf. What the way says is known is so.
    unsafe fn pop_object<A: Access>(gate: *const AtomicUsize, cell: usize) -> usize;

    /// Makes `entry` this lane's hot one, if it has such, or puts it on its sheaf. Inlined into the caller.
    ///
    /// # Safety
    ///
    /// As for `pop_object`. `entry` is not 0, and nobody else's.
    unsafe fn push_object<A: Access>(
        gate: *const AtomicUsize,
        cell: usize,
        entry: usize,
    ) -> Outcome;

    /// Replaces the word that is `cell` bytes into the item in the lane of table entry `entry`, if this is
    /// that lane and the word is `old`.
    ///
    /// # Safety
    ///
    /// As for `pop_object`; the item goes on that far.
    unsafe fn cmpxchg_cell(
        gate: &AtomicUsize,
        entry: usize,
        cell: usize,
        old: usize,
        new: usize,
    ) -> Outcome;
}

/// What runs sections on words of one width. `item` is the word's address in lane 0, plus [`READY_BIT`](crate::lanes::table).
pub(crate) trait WordSections<W> {
    /// # Safety
    ///
    /// `item` is an item of this width, allocated and not freed under way.
    unsafe fn add(item: usize, n: W) -> Outcome;

    /// # Safety
    ///
    /// As for `add`.
    unsafe fn add_return(item: usize, n: W) -> (Outcome, W);

    /// # Safety
    ///
    /// As for `add`.
    unsafe fn xchg(item: usize, new: W) -> (Outcome, W);

    /// # Safety
    ///
    /// As for `add`.
    unsafe fn cmpxchg(item: usize, old: W, new: W) -> (Outcome, W);
}

/// How a section ended; see the table above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Outcome {
    Committed = 0,
    NoLane = 1,
    GateClosed = 2,
    OutsideWindow = 3,
    Mismatch = 4,
    Aborted = 5,
}

impl Outcome {
    /// From the number that a section leaves in a register.
    fn from_register(number: u32) -> Outcome {
        match number {
            0 => Outcome::Committed,
            1 => Outcome::NoLane,
            4 => Outcome::Mismatch,
            _ => Outcome::Aborted,
        }
    }
}

/// How often a slow path tries a section again before it turns to the slow lane. A section takes a
/// few nanoseconds, so two aborts in a row are rare and this many mean a debugger's single step.
pub(crate) const ATTEMPTS: u32 = 8;
