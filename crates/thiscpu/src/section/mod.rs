//! Sections: rseq critical sections, each a few loads and checks, and one store that commits.
//!
//! # Specification
//!
//! Every section begins in the same way. `refuse` and `abort` leave it before its commit. By then
//! it has stored nothing but `rseq_cs`, with two exceptions: `push` has stored to the caller's
//! node, and `push_object` may have stored above the top of a sheaf.
//!
//! ```text
//! enter:    area.rseq_cs = &descriptor
//!           if area.cpu_id < vfork_word           refuse(NoLane)    this thread is not registered,
//!                                                                   or may be a child of vfork
//!           entry = TABLE[area.index & 0xffff]                      index: mm_cid or cpu_id
//! ```
//!
//! Counters, budgets and ledgers:
//!
//! ```text
//! add_windowed(gate, cell, n):                                      a counter's add
//!           bank = *gate + entry                                    see `lanes::table`
//!           if it did not carry                   refuse(GateClosed)    or the lane is not in use
//!           count = bank[cell].count + n
//!           if (bank[cell].window - count) >> (window & 63) != 0
//!                                                 refuse(OutsideWindow)
//!           bank[cell].count = count              commit
//!
//! add_direct(gate, n), add_direct_at(gate, cell, n):                as `add_windowed`
//!
//! add_up(gate, n):                                                  n is not negative
//!           bank = *gate + entry
//!           if it did not carry                   refuse(GateClosed)
//!           count = bank.count + n
//!           if count - bank.window >= 0, signed   refuse(OutsideWindow)
//!           bank.count = count                    commit
//!
//! move_window(entry', window):                                      of a counter's bank
//!           bank = item + entry
//!           if entry != entry'                    refuse(Mismatch)
//!           if (window - bank.count) >> (window & 63) != 0
//!                                                 refuse(OutsideWindow)
//!           bank.window = window                  commit
//!
//! add_credit(gate, recalls, expected, old, window):                 lends units to a budget's lane
//!           bank = *gate + entry
//!           if it did not carry                   refuse(GateClosed)
//!           if *recalls != expected or bank.window != old
//!                                                 refuse(Mismatch)
//!           if (window - bank.count) >> (window & 63) != 0
//!                                                 refuse(OutsideWindow)
//!           bank.window = window                  commit
//!
//! charge(set, key, cell, n):                                        an account's charge
//!           way = set + entry                                       no gate is loaded
//!           if it did not carry                   refuse(GateClosed)
//!           four times: if *way == key, found; else way += 8
//!           if not found                          refuse(Mismatch)
//!           count = way[cell] + n
//!           if (count + BATCH) >> (1 + log2 BATCH) != 0
//!                                                 refuse(OutsideWindow)
//!           way[cell] = count                     commit
//! ```
//!
//! Slab caches. The part of an item that belongs to one cache begins at `cell`. `slab::lane`
//! describes `lane.hot`, `cell.top` and the sheaf that it leads to. Only the accesses `Single` and
//! `Direct` use `lane.hot`.
//!
//! ```text
//!           lane = *gate + entry
//!           if it did not carry                   refuse(GateClosed)
//!
//! pop_object(cell):
//!           v = lane.hot; if v != 0: lane.hot = 0 commit, v         Single, Direct
//!           v = lane[cell.top + 8]
//!           if v == 0                             refuse(Mismatch)  the sheaf is empty
//!           cell.top -= 8                         commit, v
//!
//! push_object(cell, v):
//!           if lane.hot == 0: lane.hot = v        commit            Single, Direct
//!           if lane[cell.top + 16] == 0           refuse(Mismatch)  the sheaf is full
//!           lane[cell.top + 16] = v                                 above the top
//!           cell.top += 8                         commit
//!
//! cmpxchg_cell(entry', cell, old, new):
//!           if entry != entry'                    refuse(Mismatch)
//!           if lane[cell] != old                  refuse(Mismatch)
//!           lane[cell] = new                      commit
//! ```
//!
//! A direct section (`add_up`, `add_direct`, `add_direct_at`, and the accesses `Direct` and
//! `DirectMalloc`, on x86-64 only) does not check `area.cpu_id` and the vfork word. The thread's
//! index pointer leads to the index. It is 0, and the section refused, until the thread is known to
//! be registered, and while it may be a child of `vfork`; see `sys::rseq::index_ptr`. Instead of
//! gate and entry, the accesses use a direct table:
//!
//! ```text
//! DirectMalloc: lane = MALLOC_TABLE[index & 0xffff] - 16
//!           if the table entry was 0              refuse(GateClosed)
//!
//! Direct:   if (index & 0xffff) >= 256            refuse(GateClosed)
//!           lane = table[index & 0xffff]                            the cache's own table
//!           if lane == 0                          refuse(GateClosed)
//! ```
//!
//! Per-CPU variables. These sections take an item, plus `READY_BIT`, in the place of a gate:
//!
//! ```text
//!           word = item + entry
//!           if it did not carry                   refuse(NoLane)
//!
//! add(n):             *word += n                  commit
//! add_return(n):      v = *word + n; *word = v    commit, v
//! xchg(new):          v = *word; *word = new      commit, v
//! cmpxchg(old, new):  v = *word
//!                     if v != old                 refuse(Mismatch), v
//!                     *word = new                 commit
//! cmpxchg_double(old, new):
//!                     v = word[0..2]
//!                     if v != old                 refuse(Mismatch), v
//!                     word[0..2] = new            commit: one store of twice the width
//! push(node):         node.next = *word
//!                     *word = node                commit
//! pop():              v = *word
//!                     if v == null                refuse(Mismatch)
//!                     *word = v.next              commit, v
//! ```
//!
//! # Results
//!
//! | result | meaning | stored |
//! |---|---|---|
//! | `Committed` | the section committed | the one store |
//! | `NoLane` | the thread or its index has no lane; [`acquire_lane`] may give it one | nothing |
//! | `GateClosed` | the gate is closed, or the direct table has no item, or as `NoLane` | nothing |
//! | `OutsideWindow` | the count would leave its window | nothing |
//! | `Mismatch` | a comparison failed | nothing |
//! | `Aborted` | preempted, migrated, interrupted by a signal, or fenced | nothing |
//!
//! The kernel restarts a section at its abort handler. The handlers here report `Aborted`, and the
//! slow path tries again a bounded number of times. So the fast path does not count restarts.
//!
//! # Ordering
//!
//! Towards other CPUs, all loads and stores of a section are relaxed. On its own CPU, program order
//! orders them. The kernel orders successive threads of a lane, also if the lane's index passes to
//! another CPU (see `design::percpu`, "The lane index"). A load through an address that was loaded
//! from a gate or direct table comes after that load, by the address dependency. The fence orders
//! everything else: after it, each section that began before has committed, and its stores are
//! visible, or will restart.
//!
//! # Finding sections
//!
//! Each inlined copy leaves its name and the address of its descriptor in `.thiscpu_sections`,
//! which is not loaded at run time. There, checkers find every copy in a finished binary.
//!
//! [`acquire_lane`]: crate::lanes::current::acquire_lane

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

/// The sections of counters, budgets, pairs and lists.
pub(crate) trait Sections {
    /// Adds to a counter. Inlined into the caller.
    ///
    /// # Safety
    ///
    /// `gate` is the gate of a counter or budget. If it is open, it leads to an item of at least 32
    /// bytes that stays allocated during the call.
    unsafe fn add_windowed(gate: &AtomicUsize, n: i64) -> Outcome;

    /// Adds to one of several counters that share a gate, `cell` bytes into their item.
    ///
    /// # Safety
    ///
    /// `gate` is the gate of counters. If it is open, it leads to an item of at least `cell` + 32
    /// bytes that stays allocated during the call.
    unsafe fn add_windowed_at(gate: &AtomicUsize, cell: usize, n: i64) -> Outcome;

    /// Adds to a counter as [`add_windowed`](Self::add_windowed) does, as a direct section.
    ///
    /// # Safety
    ///
    /// Those of `add_windowed`.
    #[inline(always)]
    unsafe fn add_direct(gate: &AtomicUsize, n: i64) -> Outcome {
        // SAFETY: the caller guarantees the same.
        unsafe { Self::add_windowed(gate, n) }
    }

    /// Adds `n`, which is not negative, to a counter, as a direct section.
    ///
    /// It compares the count only with the upper end of its window.
    ///
    /// # Safety
    ///
    /// Those of `add_windowed`.
    #[inline(always)]
    unsafe fn add_up(gate: &AtomicUsize, n: i64) -> Outcome {
        // SAFETY: the caller guarantees the same.
        unsafe { Self::add_windowed(gate, n) }
    }

    /// Adds to one of several counters that share a gate, as a direct section.
    ///
    /// # Safety
    ///
    /// Those of `add_windowed_at`.
    #[inline(always)]
    unsafe fn add_direct_at(gate: &AtomicUsize, cell: usize, n: i64) -> Outcome {
        // SAFETY: the caller guarantees the same.
        unsafe { Self::add_windowed_at(gate, cell, n) }
    }

    /// Gives a bank a new window, if this is the lane of `entry` and the count is in the window.
    ///
    /// # Safety
    ///
    /// `bank` is the address in lane 0 of a counter's bank, plus
    /// [`READY_BIT`](crate::lanes::table::READY_BIT). It stays allocated during the call.
    unsafe fn move_window(bank: usize, entry: usize, window: u64) -> Outcome;

    /// Replaces the window `old` of this lane of a budget, if `recalls` is `expected`.
    ///
    /// After a thread has changed `recalls` and fenced, no section that saw the old number lends
    /// units any more.
    ///
    /// # Safety
    ///
    /// `gate` is the gate of a budget. If it is open, it leads to an item of at least 32 bytes that
    /// stays allocated during the call.
    unsafe fn add_credit(
        gate: &AtomicUsize,
        recalls: &AtomicU64,
        expected: u64,
        old: u64,
        window: u64,
    ) -> Outcome;

    /// Compares two adjacent 8-byte words of this lane, and replaces both by one 16-byte store.
    ///
    /// # Safety
    ///
    /// `item` is a 16-byte item, aligned to 16, plus [`READY_BIT`](crate::lanes::table::READY_BIT).
    /// It stays allocated during the call.
    unsafe fn cmpxchg_double(item: usize, old: [u64; 2], new: &[u64; 2]) -> (Outcome, [u64; 2]);

    /// Puts `node` at the head of this lane's list. The node's first word becomes its link.
    ///
    /// # Safety
    ///
    /// `item` is an 8-byte item, plus [`READY_BIT`](crate::lanes::table::READY_BIT). It stays
    /// allocated during the call. `node` is valid for writes of 8 bytes, and in no list.
    unsafe fn push(item: usize, node: usize) -> Outcome;

    /// Takes the first node off this lane's list; `Mismatch` if the list is empty.
    ///
    /// # Safety
    ///
    /// `item` is an 8-byte item, plus [`READY_BIT`](crate::lanes::table::READY_BIT). It stays
    /// allocated during the call, and every node of its lists is readable.
    unsafe fn pop(item: usize) -> (Outcome, usize);

    /// Stays in a section for up to `turns` turns of a loop, and returns whether it was aborted.
    ///
    /// Counts down in `*turns_left`, so that other threads see the section begin.
    ///
    /// # Safety
    ///
    /// This thread is registered.
    unsafe fn spin(turns: u64, turns_left: &core::sync::atomic::AtomicU64) -> bool;
}

/// The bound on an account's counts in a lane, a power of two: from `-BATCH` to `BATCH - 1`.
pub(crate) const BATCH: u32 = 1024;

pub(crate) trait LedgerSections {
    /// Charges the account of `key`, if it is cached in this lane. Inlined into the caller.
    ///
    /// # Safety
    ///
    /// `set` is without [`READY_BIT`](crate::lanes::table::READY_BIT), so that it leads to no lane.
    /// Or it is the address in lane 0 of a set of four keys, plus that bit. The set stays allocated
    /// during the call, and has a row of four counters `cell` bytes behind the keys.
    unsafe fn charge(set: usize, key: u64, cell: usize, n: i64) -> Outcome;
}

/// The distance from a cache's cell to the word that leads to the top of its sheaf, in bytes.
///
/// The tops of all cells of an item are distances from this word of the first cell.
pub(crate) const TOP_OFFSET: usize = 16;

/// The distance from a gate to the first entry of the direct table behind it, in bytes.
#[cfg(all(target_arch = "x86_64", not(thiscpu_model)))]
pub(crate) const DIRECT_TABLE_OFFSET: usize = 72;

/// How a section of a slab cache finds its lane, and what it need not check.
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
    /// Returns whether sections use the lane's hot object.
    ///
    /// Those of a group of many classes do not. They would have to find out the class of a block
    /// before they store to its cell, and the next allocation would wait for that late address.
    pub(crate) fn has_hot(self) -> bool {
        matches!(self, AccessKind::Single | AccessKind::Direct)
    }
}

/// Defines kinds of access, each named as its [`AccessKind`].
macro_rules! accesses {
    ($($(#[$doc:meta])* $visibility:vis $Access:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        $visibility struct $Access;

        impl Access for $Access {
            const KIND: AccessKind = AccessKind::$Access;
        }
    )*};
}

accesses! {
    /// By the gate, checking everything.
    pub Checked;
    /// By the gate of a group with one class: the cell is 0.
    pub(crate) Single;
    /// By the cache's direct table, `DIRECT_TABLE_OFFSET` bytes behind the gate: the cell is 0.
    ///
    /// The thread's index pointer leads to its lane index. The section is refused until
    /// [`enable_direct`](crate::lanes::current::enable_direct) has set the pointer.
    pub(crate) Direct;
    /// By the gate, once sections are ready: the offsets of the rseq area are published.
    ///
    /// A pop also counts down in the item's first word, 32 bits that start as 0. If they are not
    /// above 0, it leaves. Models leave the countdown out, because it orders nothing.
    pub Ready;
    /// By malloc's direct table, which leads to the item of the gate.
    ///
    /// The thread's index pointer leads to its lane index, as for `Direct`. On targets with direct
    /// tables, a pop counts down as for `Ready`.
    pub DirectMalloc;
}

/// The sections of slab caches. Objects are encoded pointers here, which are never 0.
pub(crate) trait SlabSections {
    /// Pops an object off this lane, or returns 0. Inlined into the caller.
    ///
    /// Takes the hot object if there is one, else the uppermost object of the sheaf. The result is
    /// 0 if the lane is empty, or if the section was refused or aborted for any other reason. Some
    /// kinds of [`Access`] are refused at the end of a countdown, too.
    ///
    /// # Safety
    ///
    /// `gate` is the gate of a group of slab caches. If it is open, it leads to their item, which
    /// stays allocated during the call. One cache has its part of the item at `cell`, and the top
    /// there leads to a sheaf. Whatever the access does not check is true.
    unsafe fn pop_object<A: Access>(gate: *const AtomicUsize, cell: usize) -> usize;

    /// Pushes an object onto this lane. Inlined into the caller.
    ///
    /// It becomes the hot object if the lane has none, else the uppermost object of the sheaf.
    ///
    /// # Safety
    ///
    /// `gate`, `cell` and the access are as `pop_object` requires. `encoded` is not 0, and the
    /// caller owns the object.
    unsafe fn push_object<A: Access>(
        gate: *const AtomicUsize,
        cell: usize,
        encoded: usize,
    ) -> Outcome;

    /// Replaces a word of this lane if it is `old` and this is the lane of table entry `entry`.
    ///
    /// # Safety
    ///
    /// `gate` is as `pop_object` requires, and the item has at least `cell` + 8 bytes.
    unsafe fn cmpxchg_cell(
        gate: &AtomicUsize,
        entry: usize,
        cell: usize,
        old: usize,
        new: usize,
    ) -> Outcome;
}

/// The sections on words of one width.
///
/// `item` is the word's address in lane 0, plus [`READY_BIT`](crate::lanes::table::READY_BIT).
///
/// # Safety
///
/// Callers of all four guarantee that `item` is an item of this width that stays allocated during
/// the call.
pub(crate) trait WordSections<W> {
    /// Adds to this lane's word.
    unsafe fn add(item: usize, n: W) -> Outcome;

    /// Adds to this lane's word, and returns its new value.
    unsafe fn add_return(item: usize, n: W) -> (Outcome, W);

    /// Replaces this lane's word, and returns its old value.
    unsafe fn xchg(item: usize, new: W) -> (Outcome, W);

    /// Replaces this lane's word if it is `old`, and returns its old value.
    unsafe fn cmpxchg(item: usize, old: W, new: W) -> (Outcome, W);
}

/// How a section ended; [the module](self) has a table.
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
    /// Converts the number that a section leaves in a register.
    fn from_register(number: u32) -> Outcome {
        match number {
            0 => Outcome::Committed,
            1 => Outcome::NoLane,
            4 => Outcome::Mismatch,
            _ => Outcome::Aborted,
        }
    }
}

/// How often a slow path tries a section again before it turns to the shared lane.
///
/// A section takes a few nanoseconds. Two aborts in a row are rare, and this many mean that a
/// debugger single-steps the thread.
pub(crate) const ATTEMPTS: u32 = 8;
