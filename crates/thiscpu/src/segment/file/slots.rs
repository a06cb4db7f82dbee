//! Where a segment records its participants.
//!
//! The lock of a slot's first byte in the file tells whether its process lives: the kernel releases
//! it when the process has ended and its memory is gone. The other words tell which process it is,
//! for the case that its program has closed the descriptor of the lock.

use super::layout::SLOT_BYTES;
use super::mapping::Mapping;
use crate::segment::budget::{Slot, SlotState, Slots};
use crate::sys::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Release},
};
use crate::sys::futex::{self, Scope};
use crate::sys::lock_file;
use crate::sys::process::Identity;

/// How often a reader looks at a slot whose participant changes.
const LOOKS_MAX: u32 = 100;

/// The record of one slot.
#[repr(C, align(64))]
pub(in crate::segment) struct Record {
    pub(in crate::segment) slot: Slot,
    pid: AtomicU64,
    start: AtomicU64,
    stack: AtomicU64,
    namespace: AtomicU64,
    /// Counts wakes of tasks. The thread that wakes the tasks sleeps on this word.
    task_wakes: AtomicU32,
}

const _: () = assert!(size_of::<Record>() as u64 == SLOT_BYTES);

impl Record {
    /// Records the process that takes the slot. Only the holder of the slot's lock calls this.
    pub(in crate::segment) fn set_identity(&self, identity: &Identity) {
        let Identity { pid, start, stack, namespace } = *identity;
        // Release: pairs with the Acquire loads in `identity`. Who loads one of these has the free
        // slot behind it, so a later load of the slot's word tells that the slot has changed.
        self.pid.store(pid, Release);
        self.start.store(start, Release);
        self.stack.store(stack, Release);
        self.namespace.store(namespace, Release);
    }

    /// Returns who took the slot; from several processes, if it changes meanwhile.
    ///
    /// They are of one process if the slot's word is that of a participant before the call and
    /// unchanged after it.
    pub(in crate::segment) fn identity(&self) -> Identity {
        // Acquire: pairs with the Release stores in `set_identity`. A load of the slot's word comes
        // after these.
        Identity {
            pid: self.pid.load(Acquire),
            start: self.start.load(Acquire),
            stack: self.stack.load(Acquire),
            namespace: self.namespace.load(Acquire),
        }
    }

    /// Returns the word on which a thread sleeps that wakes the tasks of the process.
    ///
    /// That thread loads the word, looks, and sleeps only if the word is unchanged.
    pub(in crate::segment) fn task_wakes(&self) -> &AtomicU32 {
        &self.task_wakes
    }

    /// Wakes the thread that wakes the tasks of the process.
    pub(in crate::segment) fn wake_tasks(&self) {
        // Release: pairs with the load by the thread that is about to look.
        self.task_wakes.fetch_add(1, Release);
        futex::wake(&self.task_wakes, 1, Scope::Shared);
    }

    /// Returns the generation of a free slot.
    pub(in crate::segment) fn free_generation(&self) -> Option<u64> {
        let (state, generation) = self.slot.load();
        (state == SlotState::Free).then_some(generation)
    }
}

/// Returns the records of all slots.
pub(in crate::segment) fn records(mapping: &Mapping) -> &[Record] {
    let count = mapping.layout.participants as usize;
    // SAFETY: the layout has these slots before the lanes, at a multiple of 64. The mapping lives
    // as long as the result. All fields are atomics, so other processes may write any values.
    unsafe { core::slice::from_raw_parts(first(mapping), count) }
}

/// Describes the slots for the protocol of budgets.
pub(in crate::segment) fn slots(mapping: &Mapping) -> Slots {
    let count = mapping.layout.participants as u32;
    // SAFETY: the slot is the first field of its record, and there are as many records.
    unsafe { Slots::new(first(mapping).cast(), size_of::<Record>(), count) }
}

/// Returns the byte of the file whose lock belongs to a slot.
pub(in crate::segment) fn lock_at(mapping: &Mapping, slot: u32) -> u64 {
    mapping.layout.participants_at() + SLOT_BYTES * u64::from(slot)
}

/// Returns whether the process of a slot is gone, whether or not the slot says so yet.
///
/// `is_locked` looks at the lock in another way if the program has closed the segment's descriptor.
/// It gets the error number.
pub(in crate::segment) fn is_gone(
    mapping: &Mapping,
    slot: u32,
    is_locked: impl FnOnce(i32) -> Result<bool, i32>,
) -> bool {
    let by_number = || records(mapping).get(slot as usize)?.identity().is_gone();
    match lock_file::is_locked(&mapping.file, lock_at(mapping, slot)).or_else(is_locked) {
        Ok(true) => false,
        // The program of that process may have closed its descriptor.
        Ok(false) => by_number().unwrap_or(true),
        // This program has closed all descriptors.
        Err(_) => by_number().unwrap_or(false),
    }
}

/// Returns the process ID of a slot's participant, whether it is alive, and what it holds.
///
/// Makes no change of the slot, even if the participant has ended. `held` gets whether it is gone,
/// and is called after that is known. Returns `None` if the slot is free, or keeps changing.
pub(in crate::segment) fn look(
    mapping: &Mapping,
    slot: u32,
    held: impl Fn(bool) -> u64,
) -> Option<(u32, bool, u64)> {
    let record = records(mapping).get(slot as usize)?;
    for _ in 0..LOOKS_MAX {
        let word = record.slot.load();
        if word.0 == SlotState::Free {
            return None;
        }
        let pid = record.identity().pid as u32;
        let is_gone = word.0 == SlotState::Dead || is_gone(mapping, slot, Err);
        // After the look whether it is gone: then this is what it held in the end.
        let held = held(is_gone);
        // All is of one participant. If it was declared dead meanwhile, this looks again, so what
        // a participant held that lived is not said of one that is gone.
        if record.slot.load() == word {
            return Some((pid, !is_gone, held));
        }
    }
    None
}

fn first(mapping: &Mapping) -> *const Record {
    mapping.before_lanes(mapping.layout.participants_at()) as *const Record
}
