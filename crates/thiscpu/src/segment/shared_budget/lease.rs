//! Leases of shared budgets.

use std::fmt;
use std::mem;

use super::SharedBudget;
use super::error::SharedAcquireError;
use crate::segment::budget::Participant;

/// Units of a shared budget that are released when this value is dropped.
///
/// A lease belongs to the process that acquired it. In a forked child, where nobody has acquired
/// it, dropping it does nothing. [`SharedBudget::lease`] returns it.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let segment = thiscpu::Segment::anonymous()?;
/// let memory = segment.budget("memory", 100)?;
/// let mut all = memory.lease(10)?;
/// let some = all.split(4).unwrap();
/// assert_eq!((all.units(), some.units()), (6, 4));
/// all.merge(some);
/// drop(all);
/// assert_eq!(memory.available(), 100);
/// # Ok(())
/// # }
/// ```
#[must_use = "the units are released when the lease is dropped"]
pub struct SharedLease<'a> {
    budget: &'a SharedBudget,
    held: Held,
}

/// Units of a shared budget, as a lease that owns a handle of the budget.
///
/// Like [`SharedLease`], but `'static`: it can be stored, returned and sent to other threads and
/// tasks, and it keeps the segment attached. That costs two additions to a shared reference count.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let segment = thiscpu::Segment::anonymous()?;
/// let memory = segment.budget("memory", 100)?;
/// let lease = memory.try_acquire_owned(10)?;
/// std::thread::spawn(move || drop(lease)).join().unwrap();
/// assert_eq!(memory.available(), 100);
/// # Ok(())
/// # }
/// ```
#[must_use = "the units are released when the lease is dropped"]
pub struct SharedOwnedLease {
    budget: SharedBudget,
    held: Held,
}

/// Units, and the participant that has acquired them.
#[derive(Clone, Copy)]
struct Held {
    units: u64,
    by: Option<Participant>,
}

impl Held {
    fn new(budget: &SharedBudget, units: u64) -> Held {
        Held { units, by: budget.participant() }
    }

    fn release(self, budget: &SharedBudget) {
        // The units of another participant are its own, or were returned when it died.
        if self.units > 0 && self.by.is_some() && self.by == budget.participant() {
            budget.release(self.units);
        }
    }

    /// Returns how many units are another lease's after a split of `n`.
    fn split(&mut self, n: u64) -> Option<Held> {
        self.units = self.units.checked_sub(n)?;
        Some(Held { units: n, by: self.by })
    }

    /// Returns whether both are of one budget and of one participant.
    fn is_one(&self, budgets: [&SharedBudget; 2], other: Held) -> bool {
        budgets[0].is(budgets[1]) && self.by == other.by
    }

    /// Adds another lease's units, if both are of one budget and of one participant.
    fn merge(&mut self, budgets: [&SharedBudget; 2], other: Held) {
        let is_one = self.is_one(budgets, other);
        if !is_one {
            other.release(budgets[1]);
        }
        assert!(
            is_one,
            "thiscpu: leases not merged: they belong to different budgets or processes"
        );
        self.units += other.units;
    }
}

impl SharedBudget {
    /// Acquires `n` units as a lease, which releases them when dropped.
    ///
    /// Costs as much as [`try_acquire`](SharedBudget::try_acquire).
    ///
    /// # Errors
    ///
    /// As `try_acquire`.
    pub fn lease(&self, n: u64) -> Result<SharedLease<'_>, SharedAcquireError> {
        self.try_acquire(n).map(|()| SharedLease::new(self, n))
    }

    /// Acquires `n` units as a lease that owns a handle of this budget.
    ///
    /// Costs as much as [`try_acquire`](SharedBudget::try_acquire), and a reference count; see
    /// [`SharedOwnedLease`].
    ///
    /// # Errors
    ///
    /// As `try_acquire`.
    pub fn try_acquire_owned(&self, n: u64) -> Result<SharedOwnedLease, SharedAcquireError> {
        self.try_acquire(n).map(|()| SharedOwnedLease::new(self.clone(), n))
    }
}

impl<'a> SharedLease<'a> {
    /// Wraps units that the caller has acquired.
    pub(in crate::segment) fn new(budget: &'a SharedBudget, units: u64) -> SharedLease<'a> {
        SharedLease { budget, held: Held::new(budget, units) }
    }

    /// Returns how many units the lease holds.
    pub fn units(&self) -> u64 {
        self.held.units
    }

    /// Returns the budget of these units.
    pub fn budget(&self) -> &'a SharedBudget {
        self.budget
    }

    /// Splits off a lease of `n` units, or returns `None` if this lease holds fewer.
    pub fn split(&mut self, n: u64) -> Option<SharedLease<'a>> {
        Some(SharedLease { budget: self.budget, held: self.held.split(n)? })
    }

    /// Adds the units of another lease to this one.
    ///
    /// # Panics
    ///
    /// If `other` is a lease of another budget, or of another process. Its units are then released.
    pub fn merge(&mut self, other: SharedLease<'a>) {
        let other = mem::ManuallyDrop::new(other);
        self.held.merge([self.budget, other.budget], other.held);
    }

    /// Keeps the units acquired, and returns how many they are.
    ///
    /// The caller must [`release`](SharedBudget::release) them later. Otherwise they come back when
    /// the process ends, or detaches from the segment.
    pub fn forget(self) -> u64 {
        mem::ManuallyDrop::new(self).held.units
    }
}

impl Drop for SharedLease<'_> {
    fn drop(&mut self) {
        self.held.release(self.budget);
    }
}

impl fmt::Debug for SharedLease<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedLease").field("units", &self.held.units).finish_non_exhaustive()
    }
}

impl SharedOwnedLease {
    /// Wraps units that the caller has acquired.
    pub(in crate::segment) fn new(budget: SharedBudget, units: u64) -> SharedOwnedLease {
        let held = Held::new(&budget, units);
        SharedOwnedLease { budget, held }
    }

    /// Returns how many units the lease holds.
    pub fn units(&self) -> u64 {
        self.held.units
    }

    /// Returns the budget of these units.
    pub fn budget(&self) -> &SharedBudget {
        &self.budget
    }

    /// Splits off a lease of `n` units, or returns `None` if this lease holds fewer.
    pub fn split(&mut self, n: u64) -> Option<SharedOwnedLease> {
        let held = self.held.split(n)?;
        Some(SharedOwnedLease { budget: self.budget.clone(), held })
    }

    /// Adds the units of another lease to this one.
    ///
    /// # Panics
    ///
    /// If `other` is a lease of another budget, or of another process. Its units are then released.
    pub fn merge(&mut self, mut other: SharedOwnedLease) {
        let units = mem::replace(&mut other.held.units, 0);
        self.held.merge([&self.budget, &other.budget], Held { units, by: other.held.by });
    }

    /// Keeps the units acquired, and returns how many they are; see [`SharedLease::forget`].
    pub fn forget(mut self) -> u64 {
        mem::take(&mut self.held.units)
    }
}

/// Returns whether a merge of two leases succeeds, for C.
pub fn can_merge(into: &SharedOwnedLease, other: &SharedOwnedLease) -> bool {
    into.held.is_one([&into.budget, &other.budget], other.held)
}

impl Drop for SharedOwnedLease {
    fn drop(&mut self) {
        self.held.release(&self.budget);
    }
}

impl fmt::Debug for SharedOwnedLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedOwnedLease").field("units", &self.held.units).finish_non_exhaustive()
    }
}
