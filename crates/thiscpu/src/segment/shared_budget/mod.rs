//! The public type of budgets that processes share.
//!
//! - `error`: why an acquire fails;
//! - `future`: futures that acquire units;
//! - `lease`: units that are released when a value is dropped;
//! - `look`: whether a release looks at its pair first;
//! - `wait`: waiting for units, in a thread.

pub(in crate::segment) mod error;
pub(in crate::segment) mod future;
pub(in crate::segment) mod lease;
mod look;
mod wait;

use std::fmt;
use std::sync::Arc;

use self::error::SharedAcquireError;
use self::look::LookFirst;
use crate::budget::TryAcquireError;
use crate::segment::attached::Segment;
use crate::segment::budget::{Instant, Pair, Participant, Parts, Released, UNITS_MAX};
use crate::segment::file::budgets::BudgetAt;
use crate::segment::file::error::{SegmentError, SegmentErrorKind};
use crate::segment::lanes::cpu;
use crate::segment::member::Member;
use crate::segment::member::membership::OwnSlot;
use crate::sys::errno;

/// A limit that processes share, and that holds when any of them is killed.
///
/// [`Segment::budget`] makes it. The guarantees are those of [`Budget`](crate::Budget), over all
/// processes: no acquire makes the units held exceed the limit, and a call is refused only if at
/// one instant fewer units were available than it requested. Waiters are served in the order they
/// came, in whichever process.
///
/// | released | never waits | blocks the thread | waits in a task |
/// |---|---|---|---|
/// | by hand | [`try_acquire`] | [`acquire`], [`acquire_timeout`], [`acquire_deadline`] | |
/// | by a lease, which borrows | [`lease`] | [`SharedAcquire::wait`] | [`acquire_async`] |
/// | by an owned lease | [`try_acquire_owned`] | [`SharedAcquireOwned::wait`] | [`acquire_owned`] |
///
/// [`acquire_async`]: SharedBudget::acquire_async
/// [`acquire_owned`]: SharedBudget::acquire_owned
/// [`SharedAcquire::wait`]: crate::SharedAcquire::wait
/// [`SharedAcquireOwned::wait`]: crate::SharedAcquireOwned::wait
/// [`acquire_deadline`]: SharedBudget::acquire_deadline
/// [`acquire_timeout`]: SharedBudget::acquire_timeout
/// [`lease`]: SharedBudget::lease
/// [`try_acquire_owned`]: SharedBudget::try_acquire_owned
///
/// | | far from the limit | near the limit |
/// |---|---|---|
/// | [`try_acquire`], [`release`] | one locked instruction | two 16-byte exchanges |
/// | [`acquire`] | one locked instruction | sleeps until there are units |
/// | [`available`], [`close`] | three exchanges for each CPU and process | at most one |
/// | [`set_limit`] | two exchanges; to lower it, at most as `available` | two exchanges |
///
/// Only the calls in the last two columns of the first table wait, and only for units.
///
/// [`try_acquire`]: SharedBudget::try_acquire
/// [`release`]: SharedBudget::release
/// [`acquire`]: SharedBudget::acquire
/// [`available`]: SharedBudget::available
/// [`set_limit`]: SharedBudget::set_limit
/// [`close`]: SharedBudget::close
///
/// # Processes
///
/// A process that uses budgets is a *participant* and has a *slot* of the segment; see
/// [`participants`](crate::SegmentOptions::participants). It takes the slot in
/// [`Segment::budget`], or at its first acquire after a `fork`. That takes some microseconds and a
/// descriptor.
///
/// - **End.** If a process ends for whatever reason, or executes another program, all units that it
///   held come back. That happens at the next call that would refuse, wait or report otherwise, and
///   within 100 ms if anybody waits. A large process holds its units until the kernel has freed its
///   memory.
/// - **Detaching.** If the last handle of the segment, of its budgets and of their leases is
///   dropped, the units that the process held come back at once.
/// - **Fork.** A child is a participant of its own, and holds nothing. A lease of its parent does
///   nothing when it is dropped in the child. Units that the parent acquired by hand must be
///   released by the parent. A child of `clone` without the C library has a copy of its parent's
///   lock until it first acquires units. Until then, the units of a parent that has ended do not
///   come back.
/// - **vfork.** A child of `vfork` acts for its parent; see [`vfork_scope`](crate::vfork_scope).
///   The parent must have used a budget of the segment before.
/// - **Stopped processes** keep their units, and zombies do not.
/// - **Closed descriptors.** A program that closes all descriptors, as daemons do, closes the lock
///   that shows that it lives. Then other processes of its PID namespace still know it by its
///   process ID. The process takes the lock again when it is refused or waits next, if it can open
///   the file again: by its path, or by another descriptor that is still open.
/// - **Rights.** A process that takes a slot opens the segment's file again, by `/proc` or by its
///   path. So `/proc` or the path must exist, and the process must still have access to the file.
///
/// # Memory order
///
/// What a thread did before it released units happens before the return of the acquire that gets
/// these units, in any process. An acquire that gets some of the available units need not see the
/// releases of the others. A refusal orders nothing.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let segment = thiscpu::Segment::anonymous()?;
/// // In each worker:
/// let connections = segment.budget("connections", 100)?;
/// let lease = connections.lease(1)?;
/// assert_eq!(connections.available(), 99);
/// drop(lease); // or the process is killed
/// assert_eq!(connections.available(), 100);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SharedBudget {
    pub(in crate::segment) at: BudgetAt,
    own_slot: OwnSlot,
    look_first: LookFirst,
    pub(in crate::segment) member: Arc<Member>,
}

impl Segment {
    /// Returns the budget of a name, and makes it with `limit` units if there is none.
    ///
    /// If the budget exists, it keeps its limit, which may be another one; see
    /// [`SharedBudget::set_limit`]. Takes a slot for this process, if it has none.
    ///
    /// # Errors
    ///
    /// If the limit is above [`SharedBudget::LIMIT_MAX`]. If the name is not valid or belongs to
    /// another kind of object, if the segment is full or damaged, or if the system has no memory.
    /// If all slots are taken by processes that live, or if the file cannot be opened again.
    pub fn budget(&self, name: &str, limit: u64) -> Result<SharedBudget, SegmentError> {
        let member = self.member();
        let error = |kind| member.mapping.error(kind);
        if limit > UNITS_MAX {
            let (option, min, max) = ("limit", 0, UNITS_MAX);
            return Err(error(SegmentErrorKind::OptionOutOfRange { option, min, max }));
        }
        let at = BudgetAt::find_or_make(&member.mapping, name, limit)?;
        member.join().map_err(error)?;
        let own_slot = member.membership().own_slot();
        let look_first = LookFirst::new();
        Ok(SharedBudget { at, own_slot, look_first, member: Arc::clone(member) })
    }
}

impl SharedBudget {
    /// The largest possible limit, 2^30 - 1. Count kibibytes instead of bytes.
    pub const LIMIT_MAX: u64 = UNITS_MAX;

    #[inline(always)]
    pub(in crate::segment) fn parts(&self) -> Parts<'_> {
        self.at.parts(&self.member.mapping)
    }

    /// Returns the lane of the CPU that this thread is on.
    #[inline(always)]
    pub(in crate::segment) fn lane(&self) -> u32 {
        cpu::lane(self.at.pairs().lanes())
    }

    /// Returns the participant that this process is, if it has a slot.
    #[inline(always)]
    pub(in crate::segment) fn participant(&self) -> Option<Participant> {
        self.own_slot.participant()
    }

    /// Returns the participant that this process is; takes a slot if it has none.
    #[inline(always)]
    pub(in crate::segment) fn joined(&self) -> Result<Participant, SharedAcquireError> {
        self.participant().map_or_else(
            || {
                self.member.join().map_err(|kind| {
                    SharedAcquireError::NoSlot(Box::new(self.member.mapping.error(kind)))
                })
            },
            Ok,
        )
    }

    /// Returns whether both are handles of one budget in one attached segment.
    pub(in crate::segment) fn is(&self, other: &SharedBudget) -> bool {
        self.at.is(&other.at)
    }

    /// Acquires `n` units, or none. Never waits for units.
    ///
    /// Costs one locked instruction if this process has credit on this CPU. Otherwise it costs two
    /// 16-byte exchanges. Before it refuses, the call takes back the credit of all processes, and
    /// asks the kernel about each process that holds units: one system call each.
    ///
    /// May be called after `fork`. Must not be called from a signal handler.
    ///
    /// # Errors
    ///
    /// [`Exhausted`](SharedAcquireError::Exhausted) if fewer than `n` units were available, or if
    /// they are promised to a waiter; [`Closed`](SharedAcquireError::Closed) if the budget is
    /// closed; [`NoSlot`](SharedAcquireError::NoSlot) if this is a child that can take no slot;
    /// [`Lost`](SharedAcquireError::Lost) if somebody has shortened the segment's file.
    #[inline]
    pub fn try_acquire(&self, n: u64) -> Result<(), SharedAcquireError> {
        match self.acquire_own(n) {
            true => Ok(()),
            false => self.acquire_slow(n),
        }
    }

    /// Calls `f` with this process's pair on a CPU, if the process has a slot and the CPU a lane.
    ///
    /// A locked instruction follows, and waits for all instructions before it. So this function
    /// calls and stores nothing, and does not compare the slot, whose range is known.
    #[inline(always)]
    fn on_own_pair<T>(&self, cpu: u32, f: impl FnOnce(&Pair) -> T) -> Option<T> {
        let (slot, pairs) = (self.own_slot.number()?, self.at.pairs());
        if cpu >= pairs.lanes() {
            return None;
        }
        // SAFETY: the lane was compared. `Segment::budget` has made this handle with the membership
        // and the pairs of one `Member`, which the handle keeps alive. So these pairs include one
        // for the slot.
        Some(f(unsafe { pairs.get_unchecked(slot, cpu) }))
    }

    /// Acquires `n` units, if this process has the credit on this CPU.
    #[inline(always)]
    fn acquire_own(&self, n: u64) -> bool {
        self.on_own_pair(cpu::number(), |pair| pair.acquire(n)) == Some(true)
    }

    #[cold]
    #[inline(never)]
    fn acquire_slow(&self, n: u64) -> Result<(), SharedAcquireError> {
        let (me, lane) = (self.joined()?, self.lane());
        let acquired = self.parts().try_acquire(me, lane, n, &*self.member);
        self.look_first.set(!self.at.pairs().is_open(me, lane));
        acquired.map_err(|error| self.refused(error))
    }

    fn refused(&self, error: TryAcquireError) -> SharedAcquireError {
        if self.member.mapping.is_lost() {
            return SharedAcquireError::Lost;
        }
        self.member.keep_lock_at_times();
        match error {
            TryAcquireError::Exhausted { available } => SharedAcquireError::Exhausted { available },
            TryAcquireError::Closed => SharedAcquireError::Closed,
        }
    }

    /// Acquires as many units as are available, at most `n`, and returns how many.
    ///
    /// Returns 0 if no unit is available, or if [`try_acquire`](SharedBudget::try_acquire) would
    /// fail for another reason. Costs as much as that call. If only a part of the `n` units is
    /// available, it costs two 16-byte exchanges more.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let segment = thiscpu::Segment::anonymous()?;
    /// let connections = segment.budget("connections", 100)?;
    /// connections.try_acquire(70)?;
    /// assert_eq!(connections.try_acquire_up_to(50), 30);
    /// assert_eq!(connections.try_acquire_up_to(50), 0);
    /// connections.release(100);
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_acquire_up_to(&self, n: u64) -> u64 {
        if self.acquire_own(n) {
            return n;
        }
        let (Ok(me), lane) = (self.joined(), self.lane()) else { return 0 };
        if self.member.mapping.is_lost() {
            return 0;
        }
        let units = self.parts().acquire_up_to(me, lane, n, &*self.member);
        if units < n {
            self.member.keep_lock_at_times();
        }
        units
    }

    /// Releases `n` units, which another thread of this process may have acquired. Never waits.
    ///
    /// Costs one locked instruction, or two 16-byte exchanges near the limit, and a system call if
    /// it grants units to a waiter. The first release after a recall costs both and one exchange.
    ///
    /// May be called from signal handlers and after `fork`. In a process that has acquired nothing
    /// since it was forked, it does nothing. A release of more units than the process holds is a
    /// bug of its caller, but no call fails because of it: see
    /// [`over_released`](SharedBudget::over_released). If `n` is more than
    /// [`LIMIT_MAX`](SharedBudget::LIMIT_MAX), the call releases nothing, and counts the units
    /// there.
    #[inline]
    pub fn release(&self, n: u64) {
        let (cpu, looks) = (cpu::number(), self.look_first.get());
        match self.on_own_pair(cpu, |pair| pair.release(n, looks)) {
            Some(Released::Done) if !looks => {}
            other => self.release_slow(cpu, n, other.unwrap_or(Released::Closed)),
        }
    }

    /// Completes a release that the pair of a CPU did not take, or that has looked at it first.
    #[cold]
    #[inline(never)]
    fn release_slow(&self, cpu: u32, n: u64, released: Released) {
        let Some(me) = self.participant() else { return };
        let lane = cpu::lane_of(cpu, self.at.pairs().lanes());
        let released = match lane == cpu {
            true => released,
            // The CPU has no lane.
            false => self.at.pairs().release(me, lane, n, self.look_first.get()),
        };
        self.look_first.set(released != Released::Done);
        if released != Released::Done {
            self.parts().release_slow(me, lane, n, released, &*self.member);
        }
    }

    /// Returns the state at one instant, after units of the dead came back.
    pub(in crate::segment) fn instant(&self) -> Instant {
        let _errno = errno::save();
        self.member.keep_lock_at_times();
        // A process without a slot may look at all of them.
        let nobody = Participant { slot: u32::MAX, generation: 0 };
        self.parts().instant(self.participant().unwrap_or(nobody), &*self.member)
    }

    /// Returns how many units are available, at one instant of this call; 0 while anybody waits.
    ///
    /// After [`close`](SharedBudget::close) it returns how many units nobody holds.
    ///
    /// Takes the credit of all processes back: do not poll a hot budget. Asks the kernel about
    /// each process that holds units. Must not be called from a signal handler.
    pub fn available(&self) -> u64 {
        let Instant { limit, free, is_queued, .. } = self.instant();
        if is_queued { 0 } else { free.clamp(0, limit as i64) as u64 }
    }

    /// Returns how many units are held, in all processes, at one instant of this call.
    ///
    /// Costs as [`available`](SharedBudget::available) does.
    pub fn acquired(&self) -> u64 {
        let Instant { limit, free, .. } = self.instant();
        (limit as i64 - free).max(0) as u64
    }

    /// Returns how many units processes have released although they did not hold them. One load.
    ///
    /// Such a release is a bug of its caller. For example, a caller releases a lease's units by
    /// hand, or a child releases units of its parent. No call fails or panics because of it, in any
    /// process. A call finds the excess when it looks at the units of each process:
    ///
    /// - before the first refusal after plenty;
    /// - in [`available`](SharedBudget::available) and [`acquired`](SharedBudget::acquired);
    /// - when a release makes more units free than the limit;
    /// - when the process has ended.
    ///
    /// Then it takes the excess back, and adds it to this number. It reports the first excess of
    /// each budget on standard error, with the process.
    ///
    /// Until the excess is found, it counts as available, and the limit can be exceeded by as many
    /// units. If callers have released `e` units too many, at most `limit + e` units are held. Once
    /// the excess is found, nothing is granted until fewer units are held than the limit allows. If
    /// the process acquires units meanwhile, they hide the excess until it releases them. An excess
    /// that no other process could acquire before its process ended is not counted.
    ///
    /// The number stops at `u64::MAX`. It can be too low if a process was killed while it took an
    /// excess back. May be called from a signal handler and after `fork`.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let segment = thiscpu::Segment::anonymous()?;
    /// let budget = segment.budget("memory", 10)?;
    /// budget.try_acquire(4)?;
    /// budget.release(4);
    /// budget.release(4); // a bug
    /// assert_eq!((budget.available(), budget.over_released()), (10, 4));
    /// # Ok(())
    /// # }
    /// ```
    pub fn over_released(&self) -> u64 {
        self.parts().over_released()
    }

    /// Returns the limit. Two loads.
    ///
    /// While another thread or process changes the limit, the result is the old or the new one.
    pub fn limit(&self) -> u64 {
        self.parts().limit(&*self.member)
    }

    /// Changes the limit, for all processes, at one instant of this call.
    ///
    /// A limit below the units held takes nothing from their holders. Then nothing is granted until
    /// enough units have been released. Must not be called from a signal handler.
    ///
    /// # Panics
    ///
    /// If `limit` is above [`LIMIT_MAX`](SharedBudget::LIMIT_MAX).
    pub fn set_limit(&self, limit: u64) {
        assert!(limit <= Self::LIMIT_MAX, "the limit of a shared budget is below 2^30");
        let _errno = errno::save();
        self.parts().set_limit(limit, &*self.member);
    }

    /// Closes the budget for all processes: ends all waits, and refuses all later acquires.
    ///
    /// Units that are held stay held, and are released as usual. A budget cannot be opened again,
    /// as long as the segment exists. Closing it twice does nothing. If the process is killed in
    /// this call, and the budget is closed, each waiter finds that within 100 ms.
    ///
    /// Must not be called from a signal handler.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use thiscpu::SharedAcquireError;
    ///
    /// let segment = thiscpu::Segment::anonymous()?;
    /// let connections = segment.budget("connections", 100)?;
    /// let connection = connections.lease(1)?;
    /// connections.close(); // accept no more
    /// assert_eq!(connections.try_acquire(1), Err(SharedAcquireError::Closed));
    /// assert_eq!(connections.acquired(), 1); // still being served
    /// drop(connection);
    /// assert_eq!(connections.acquired(), 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn close(&self) {
        let _errno = errno::save();
        self.parts().close(&*self.member);
    }

    /// Returns whether the budget is closed. May be called from a signal handler.
    pub fn is_closed(&self) -> bool {
        self.parts().is_closed()
    }

    /// Returns how many threads and tasks wait for units, in all processes.
    ///
    /// Looks at each waiter of the segment. The number may be out of date when it is returned, and
    /// includes waiters of processes whose end was not noticed yet. May be called from a signal
    /// handler.
    pub fn waiters(&self) -> usize {
        self.parts().waiting()
    }
}

impl fmt::Debug for SharedBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedBudget").field("limit", &self.limit()).finish_non_exhaustive()
    }
}
