//! The modelled sections, in the steps that `section` specifies.

use super::machine::{Execution, now};
use crate::lanes::direct::{DirectTable, MALLOC_TABLE};
use crate::lanes::table::TABLE;
use crate::section::{
    Access, AccessKind, BATCH, LedgerSections, Outcome, Sections, SlabSections, TOP_OFFSET,
    WordSections,
};
use crate::slab::class::Group;
use crate::sys::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed},
};
use crate::tier::Tier;

#[derive(Debug)]
pub(crate) struct Processor;

struct Section {
    execution: std::rc::Rc<Execution>,
    number: (usize, u64),
    entry: usize,
}

impl Section {
    fn enter() -> Result<Section, Outcome> {
        let execution = now();
        let number = execution.enter();
        // In the atomic tier no rseq area is published, so sections fail.
        let has_lane = execution.current_cpu().1 && execution.machine.tier != Tier::Atomic;
        let index = execution.index_of(number.0);
        let mut section = Section { execution, number, entry: 0 };
        if !has_lane {
            return Err(section.refuse(Outcome::NoLane));
        }
        section.entry = TABLE.entries[index & 0xffff].load(Relaxed);
        Ok(section)
    }

    /// Enters a section on an item, and returns the address of its word in this lane.
    fn enter_item(item: usize) -> Result<(Section, usize), Outcome> {
        let section = Section::enter()?;
        match section.resolve(item) {
            None => Err(section.refuse(Outcome::NoLane)),
            Some(at) => Ok((section, at)),
        }
    }

    /// Returns the address that a gate or item leads to in this lane, unless it is closed.
    ///
    /// The sum overflows only if the gate is open and the entry is that of a lane.
    fn resolve(&self, gate: usize) -> Option<usize> {
        let (at, carries) = gate.overflowing_add(self.entry);
        carries.then_some(at)
    }

    fn load(&self, at: usize) -> u64 {
        word(at).load(Relaxed)
    }

    /// Ends the section without a store.
    fn refuse(self, outcome: Outcome) -> Outcome {
        match self.execution.leave(self.number, || {}) {
            true => outcome,
            false => Outcome::Aborted,
        }
    }

    /// Stores a value before the last step; returns `false` if the section was aborted.
    fn store(&self, at: usize, value: u64) -> bool {
        self.execution.preempt();
        let store = || self.execution.checker.store_at_once(at, word(at).first(), value);
        self.execution.during(self.number, store)
    }

    fn commit(self, at: usize, value: u64) -> Outcome {
        self.execution.preempt();
        // The check for an abort and the store are one step, so no abort can come in between.
        let store = || self.execution.checker.store_at_once(at, word(at).first(), value);
        match self.execution.leave(self.number, store) {
            true => Outcome::Committed,
            false => Outcome::Aborted,
        }
    }
}

/// Returns the word at `at`, in a lane.
fn word(at: usize) -> &'static AtomicU64 {
    debug_assert!(at.is_multiple_of(8));
    // SAFETY: sections are called with items, which are in the modelled address space. That stays
    // readable forever.
    unsafe { &*(at as *const AtomicU64) }
}

fn fits(count: u64, window: u64) -> bool {
    window.wrapping_sub(count) >> (window & 63) == 0
}

/// Takes an entered section, or returns its outcome, with `$value` if there is one.
macro_rules! entered {
    ($entered:expr $(, $value:expr)?) => {
        match $entered {
            Ok(entered) => entered,
            Err(outcome) => return (outcome $(, $value)?),
        }
    };
}

impl Sections for Processor {
    unsafe fn add_windowed(gate: &AtomicUsize, n: i64) -> Outcome {
        // SAFETY: the caller guarantees that this is the gate of an object whose item is large
        // enough and is not freed during the call.
        unsafe { Self::add_windowed_at(gate, 0, n) }
    }

    unsafe fn add_windowed_at(gate: &AtomicUsize, cell: usize, n: i64) -> Outcome {
        let section = entered!(Section::enter());
        let Some(bank) = section.resolve(gate.load(Relaxed)) else {
            return section.refuse(Outcome::GateClosed);
        };
        let at = bank + cell;
        let count = section.load(at).wrapping_add(n as u64);
        if !fits(count, section.load(at + 8)) {
            return section.refuse(Outcome::OutsideWindow);
        }
        section.commit(at, count)
    }

    unsafe fn add_up(gate: &AtomicUsize, n: i64) -> Outcome {
        let section = entered!(Section::enter());
        let Some(at) = section.resolve(gate.load(Relaxed)) else {
            return section.refuse(Outcome::GateClosed);
        };
        let count = section.load(at).wrapping_add(n as u64);
        if count.wrapping_sub(section.load(at + 8)) as i64 >= 0 {
            return section.refuse(Outcome::OutsideWindow);
        }
        section.commit(at, count)
    }

    unsafe fn add_credit(
        gate: &AtomicUsize,
        recalls: &AtomicU64,
        expected: u64,
        old: u64,
        window: u64,
    ) -> Outcome {
        let section = entered!(Section::enter());
        let Some(at) = section.resolve(gate.load(Relaxed)) else {
            return section.refuse(Outcome::GateClosed);
        };
        if recalls.load(Relaxed) != expected || section.load(at + 8) != old {
            return section.refuse(Outcome::Mismatch);
        }
        if !fits(section.load(at), window) {
            return section.refuse(Outcome::OutsideWindow);
        }
        section.commit(at + 8, window)
    }

    unsafe fn move_window(bank: usize, entry: usize, window: u64) -> Outcome {
        let section = entered!(Section::enter());
        if section.entry != entry {
            return section.refuse(Outcome::Mismatch);
        }
        let at = bank.wrapping_add(entry);
        if !fits(section.load(at), window) {
            return section.refuse(Outcome::OutsideWindow);
        }
        section.commit(at + 8, window)
    }

    unsafe fn cmpxchg_double(_: usize, old: [u64; 2], _: &[u64; 2]) -> (Outcome, [u64; 2]) {
        // As on a processor without such a store. The caller uses the shared lane, whose exchange
        // is modelled.
        (Outcome::NoLane, old)
    }

    unsafe fn push(item: usize, node: usize) -> Outcome {
        let (section, list) = entered!(Section::enter_item(item));
        word(node).store(section.load(list), Relaxed);
        section.commit(list, node as u64)
    }

    unsafe fn pop(item: usize) -> (Outcome, usize) {
        let (section, list) = entered!(Section::enter_item(item), 0);
        let node = section.load(list) as usize;
        if node == 0 {
            return (section.refuse(Outcome::Mismatch), 0);
        }
        let next = section.load(node);
        (section.commit(list, next), node)
    }

    unsafe fn spin(_: u64, _: &core::sync::atomic::AtomicU64) -> bool {
        unreachable!("nothing to model: spin tests whether the kernel aborts")
    }
}

impl LedgerSections for Processor {
    unsafe fn charge(set: usize, key: u64, cell: usize, n: i64) -> Outcome {
        let section = entered!(Section::enter());
        let Some(set) = section.resolve(set) else {
            return section.refuse(Outcome::GateClosed);
        };
        let Some(way) = (0..4).map(|way| set + 8 * way).find(|&way| section.load(way) == key)
        else {
            return section.refuse(Outcome::Mismatch);
        };
        let count = section.load(way + cell).wrapping_add(n as u64);
        if count.wrapping_add(u64::from(BATCH)) >> (1 + BATCH.trailing_zeros()) != 0 {
            return section.refuse(Outcome::OutsideWindow);
        }
        section.commit(way + cell, count)
    }
}

impl Section {
    /// Enters a section of a slab cache, and returns the address of its item in this lane.
    ///
    /// # Safety
    ///
    /// The gate is one that [`SlabSections::pop_object`] accepts for this kind of access.
    unsafe fn enter_gate<A: Access>(gate: *const AtomicUsize) -> Result<(Section, usize), Outcome> {
        let section = Section::enter()?;
        let (table, at): (&DirectTable, _) = match A::KIND {
            // SAFETY: a gate of this kind is the first word of a group, which lives as long as its
            // sections run.
            AccessKind::Direct => (unsafe { Group::direct_table_after(gate) }, 0),
            AccessKind::DirectMalloc => (&MALLOC_TABLE.items, TOP_OFFSET),
            // SAFETY: the caller guarantees that a gate of any other kind is valid during the call.
            _ => return unsafe { section.enter_by(&*gate) },
        };
        let index = section.execution.index_of(section.number.0);
        // Acquire: the further loads depend on this address; see `enter_by`.
        match table.item(index & 0xffff).map_or(0, |item| item.load(Acquire)) {
            0 => Err(section.refuse(Outcome::GateClosed)),
            item => Ok((section, item - at)),
        }
    }

    /// Enters the section by the gate itself.
    fn enter_by(self, gate: &AtomicUsize) -> Result<(Section, usize), Outcome> {
        // Acquire: the further loads of such a section are at addresses that depend on the gate. No
        // supported processor performs them before it, but the checker does not know about
        // dependencies.
        match self.resolve(gate.load(Acquire)) {
            None => Err(self.refuse(Outcome::GateClosed)),
            Some(lane) => Ok((self, lane)),
        }
    }
}

impl SlabSections for Processor {
    unsafe fn pop_object<A: Access>(gate: *const AtomicUsize, cell: usize) -> usize {
        // SAFETY: the caller guarantees that the gate is valid for this kind of access.
        let Ok((section, lane)) = (unsafe { Section::enter_gate::<A>(gate) }) else { return 0 };
        let hot = if A::KIND.has_hot() { section.load(lane) } else { 0 };
        if hot != 0 {
            return match section.commit(lane, 0) {
                Outcome::Committed => hot as usize,
                _ => 0,
            };
        }
        let top = section.load(lane + cell + TOP_OFFSET);
        let entry = section.load(lane.wrapping_add(top as usize) + TOP_OFFSET - 8);
        if entry == 0 {
            section.refuse(Outcome::Mismatch);
            return 0;
        }
        match section.commit(lane + cell + TOP_OFFSET, top.wrapping_sub(8)) {
            Outcome::Committed => entry as usize,
            _ => 0,
        }
    }

    unsafe fn push_object<A: Access>(
        gate: *const AtomicUsize,
        cell: usize,
        entry: usize,
    ) -> Outcome {
        // SAFETY: the caller guarantees that the gate is valid for this kind of access.
        let (section, lane) = entered!(unsafe { Section::enter_gate::<A>(gate) });
        if A::KIND.has_hot() && section.load(lane) == 0 {
            return section.commit(lane, entry as u64);
        }
        let top = section.load(lane + cell + TOP_OFFSET);
        let slot = lane.wrapping_add(top as usize) + TOP_OFFSET;
        if section.load(slot) == 0 {
            return section.refuse(Outcome::Mismatch);
        }
        // A section that was aborted before this store stores nothing.
        if !section.store(slot, entry as u64) {
            return section.refuse(Outcome::Aborted);
        }
        section.commit(lane + cell + TOP_OFFSET, top.wrapping_add(8))
    }

    unsafe fn cmpxchg_cell(
        gate: &AtomicUsize,
        entry: usize,
        cell: usize,
        old: usize,
        new: usize,
    ) -> Outcome {
        let entered = Section::enter().and_then(|section| section.enter_by(gate));
        let (section, lane) = entered!(entered);
        if section.entry != entry || section.load(lane + cell) != old as u64 {
            return section.refuse(Outcome::Mismatch);
        }
        section.commit(lane + cell, new as u64)
    }
}

macro_rules! words {
    ($($integer:ty),*) => {$(
        impl WordSections<$integer> for Processor {
            unsafe fn add(item: usize, n: $integer) -> Outcome {
                // SAFETY: the caller guarantees that this is a live item; `add_return` needs the
                // same.
                unsafe { Self::add_return(item, n).0 }
            }

            unsafe fn add_return(item: usize, n: $integer) -> (Outcome, $integer) {
                change(item, |now: $integer| Some(now.wrapping_add(n)), |_, new| new)
            }

            unsafe fn xchg(item: usize, new: $integer) -> (Outcome, $integer) {
                change(item, |_| Some(new), |before, _| before)
            }

            unsafe fn cmpxchg(item: usize, old: $integer, new: $integer) -> (Outcome, $integer) {
                change(item, |now| (now == old).then_some(new), |before, _| before)
            }
        }
    )*};
}

words!(u8, u16, u32, u64);

/// Runs a section on a word, which takes 8 bytes in the model whatever its type.
fn change<W: Copy + TryFrom<u64> + Into<u64> + Default>(
    item: usize,
    to: impl FnOnce(W) -> Option<W>,
    result: impl FnOnce(W, W) -> W,
) -> (Outcome, W) {
    let (section, at) = entered!(Section::enter_item(item), W::default());
    let before = W::try_from(section.load(at)).unwrap_or_default();
    match to(before) {
        None => (section.refuse(Outcome::Mismatch), before),
        Some(new) => (section.commit(at, new.into()), result(before, new)),
    }
}
