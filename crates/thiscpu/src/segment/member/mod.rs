//! This process as a participant of a segment: how it joins, keeps its lock, and leaves.
//!
//! - `membership`: the slot of this process, which children do not inherit;
//! - `tasks`: tasks that wait for units, and the thread that wakes them.

pub(in crate::segment) mod membership;
pub(in crate::segment) mod tasks;

use core::marker::PhantomPinned;
use core::ptr;
use std::sync::Arc;

use self::membership::Membership;
use self::tasks::Tasks;
use crate::segment::budget::{Participant, SlotState, Waiter, World, free_slot_of_dead};
use crate::segment::file::budgets;
use crate::segment::file::error::SegmentErrorKind;
use crate::segment::file::mapping::{Mapping, with_c_path};
use crate::segment::file::slots::{Record, is_gone, lock_at, records, slots};
use crate::sys::Host;
use crate::sys::atomic::{
    AtomicPtr,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use crate::sys::errno;
use crate::sys::futex::{self, Scope};
use crate::sys::machine::Machine as _;
use crate::sys::process::Identity;
use crate::sys::stderr::write_line;

/// How often a process looks whether its program has closed its lock.
const CHECK_EVERY_NS: u64 = 20_000_000;

/// An attached segment, in which this process may have a slot.
///
/// When this is dropped, the process gives up the slot, and all that it holds.
#[derive(Debug)]
pub(in crate::segment) struct Member {
    pub(in crate::segment) mapping: Arc<Mapping>,
    /// Null until a budget is used.
    membership: AtomicPtr<Membership>,
    pub(in crate::segment) tasks: Arc<Tasks>,
    /// The thread that wakes tasks has a pointer to this value, until `drop` takes it back.
    _pinned: PhantomPinned,
}

impl Member {
    pub(in crate::segment) fn new(mapping: Mapping) -> Member {
        let membership = AtomicPtr::new(ptr::null_mut());
        let (mapping, tasks) = (Arc::new(mapping), Arc::default());
        Member { mapping, membership, tasks, _pinned: PhantomPinned }
    }

    pub(in crate::segment) fn membership(&self) -> &'static Membership {
        // Acquire: pairs with the exchange below.
        let current = self.membership.load(Acquire);
        // SAFETY: memberships are never freed.
        unsafe { current.as_ref() }.unwrap_or_else(|| {
            let new = Membership::take();
            let own = ptr::from_ref(new).cast_mut();
            // AcqRel: pairs with the Acquire above.
            match self.membership.compare_exchange(ptr::null_mut(), own, AcqRel, Acquire) {
                Ok(_) => new,
                Err(other) => {
                    new.put_back();
                    // SAFETY: memberships are never freed.
                    unsafe { &*other }
                }
            }
        })
    }

    /// Takes a slot for this process, unless it has one.
    #[cold]
    pub(in crate::segment) fn join(&self) -> Result<Participant, SegmentErrorKind> {
        let _errno = errno::save();
        let membership = self.membership();
        if let Some(own) = membership.participant() {
            return Ok(own);
        }
        if Host::is_vfork_child() {
            // The child's descriptors are not those of its parent, for which it acts.
            return Err(SegmentErrorKind::InVforkScope);
        }
        let _guard = membership.lock.lock();
        if let Some(own) = membership.participant() {
            return Ok(own);
        }
        self.open_lock_file(membership)?;
        let identity = Identity::of_this_process();
        let taken = self.take_free_slot(membership, &identity).or_else(|| {
            self.reclaim_all_dead();
            self.take_free_slot(membership, &identity)
        });
        if taken.is_none() {
            membership.file.close();
        }
        membership.set_participant(taken);
        let participants = self.mapping.layout.participants;
        taken.ok_or(SegmentErrorKind::TooManyParticipants { participants })
    }

    /// Opens the file again. The caller holds the membership's lock.
    fn open_lock_file(&self, membership: &Membership) -> Result<(), SegmentErrorKind> {
        // A raw `clone` leaves its child with the parent's.
        membership.file.close();
        let cannot = |errno| SegmentErrorKind::CannotReopen { errno };
        let open =
            |path: Option<&_>| membership.file.open(&self.mapping.file, path).map_err(cannot);
        match &self.mapping.path {
            Some(path) => with_c_path(path, |path| Ok(open(Some(path))))
                .unwrap_or_else(|error| Err(error.into_kind())),
            None => open(None),
        }
    }

    fn take_free_slot(&self, membership: &Membership, own: &Identity) -> Option<Participant> {
        records(&self.mapping).iter().zip(0..).find_map(|(record, slot)| {
            let generation = record.free_generation()?;
            let lock_at = lock_at(&self.mapping, slot);
            if membership.file.try_lock(lock_at) != Ok(true) {
                return None;
            }
            // Taking the slot needs the lock, so no other process takes it from here on. One may
            // have taken it before, and have died: its identity must stay.
            if record.free_generation() == Some(generation) {
                record.set_identity(own);
                if record.slot.occupy(generation) {
                    return Some(Participant { slot, generation });
                }
            }
            membership.file.unlock(lock_at);
            None
        })
    }

    pub(in crate::segment) fn record(&self, slot: u32) -> Option<&Record> {
        records(&self.mapping).get(slot as usize)
    }

    /// Calls [`keep_lock`](Self::keep_lock), but not often.
    pub(in crate::segment) fn keep_lock_at_times(&self) {
        let (now, last) = (Host::coarse_time(), &self.membership().checked_at);
        // Relaxed: the time leads to nothing else.
        if now.wrapping_sub(last.load(Relaxed)) >= CHECK_EVERY_NS {
            last.store(now, Relaxed);
            self.keep_lock();
        }
    }

    /// Locks the slot of this process again, if the program has closed the descriptor.
    ///
    /// If others took the process for dead meanwhile, it takes another slot at its next call.
    fn keep_lock(&self) {
        let membership = self.membership();
        let Some(own) = membership.participant() else { return };
        let _errno = errno::save();
        let is_live = || {
            let word = self.record(own.slot).map(|record| record.slot.load());
            word == Some((SlotState::Live, own.generation))
        };
        if (membership.file.is_open() && is_live()) || Host::is_vfork_child() {
            return;
        }
        let _guard = membership.lock.lock();
        if membership.participant() != Some(own) {
            return;
        }
        if !is_live() {
            membership.set_participant(None);
        } else if !membership.file.is_open() && self.open_lock_file(membership).is_ok() {
            // A child may have a copy of the description that was closed here. Then the next check
            // finds no description again, and repeats this.
            if membership.file.try_lock(lock_at(&self.mapping, own.slot)) != Ok(true) {
                membership.file.close();
            }
        }
    }

    /// Returns whether the process of another slot is gone.
    fn is_gone(&self, slot: u32) -> bool {
        is_gone(&self.mapping, slot, |errno| {
            // The other description holds no lock but that of the own slot.
            let membership = self.membership();
            let is_locked = || membership.file.is_locked(lock_at(&self.mapping, slot));
            membership.participant().map_or(Err(errno), |_| is_locked())
        })
    }

    /// Frees all slots whose processes are gone, with all that they held.
    fn reclaim_all_dead(&self) {
        let slots = slots(&self.mapping);
        for slot in 0..self.mapping.layout.participants as u32 {
            free_slot_of_dead(&slots, slot, self);
        }
    }
}

impl World for Member {
    fn is_dead(&self, slot: u32, generation: u64) -> bool {
        let _errno = errno::save();
        let is_own = self.membership().participant().is_some_and(|own| own.slot == slot);
        // The record may be of another process by now. Then its word has another generation.
        let live = (SlotState::Live, generation);
        !is_own
            && self
                .record(slot)
                .is_some_and(|record| self.is_gone(slot) && record.slot.load() == live)
    }

    fn reclaim(&self, slot: u32, generation: u64) {
        budgets::reclaim(&self.mapping, slot, generation, self);
    }

    fn report_over_release(&self, slot: u32, units: u64, limit: u64) {
        let pid = self.record(slot).map_or(0, |record| record.identity().pid);
        write_line(
            libc::STDERR_FILENO,
            format_args!(
                "thiscpu: shared budget over-released: process {pid} released {units} units more \
                 than it held (limit {limit}); they are discarded, but the limit may have been \
                 exceeded by as many; find the caller that releases twice or too much (reported \
                 once, counted by over_released)"
            ),
        );
    }

    fn wake(&self, waiter: &Waiter) {
        let _errno = errno::save();
        match waiter.task_of().and_then(|slot| self.record(slot)) {
            Some(record) => record.wake_tasks(),
            None => futex::wake(waiter.wakes(), 1, Scope::Shared),
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _errno = errno::save();
        self.leave_thread();
        // SAFETY: memberships are never freed.
        let Some(membership) = (unsafe { self.membership.load(Acquire).as_ref() }) else { return };
        self.end_thread(membership);
        if let Some(Participant { slot, generation }) = membership.participant()
            && self.record(slot).is_some_and(|record| record.slot.declare_dead(generation))
        {
            // A dead slot needs no lock. Once it is free, another process must get it.
            membership.file.close();
            self.reclaim(slot, generation);
        }
        membership.put_back();
    }
}
