//! Units with an owner: leases, and reserves that only their owner draws on.

use std::fmt;
use std::mem;

use super::core::Budget;
use super::error::TryAcquireError;

/// Units of a budget that are released when this value is dropped.
///
/// A lease never releases more than it holds. Dropping it costs what [`Budget::release`] costs.
///
/// ```
/// use thiscpu::Budget;
///
/// let memory = Budget::new(100);
/// let mut all = memory.lease(10)?;
/// let some = all.split(4).unwrap();
/// assert_eq!((all.units(), some.units()), (6, 4));
/// all.merge(some);
/// drop(all);
/// assert_eq!(memory.available(), 100);
/// # Ok::<(), thiscpu::TryAcquireError>(())
/// ```
#[must_use = "the units are released when the lease is dropped"]
pub struct Lease<'a> {
    budget: &'a Budget,
    units: u64,
}

impl<'a> Lease<'a> {
    /// Wraps units that the caller has acquired.
    pub(super) fn new(budget: &'a Budget, units: u64) -> Lease<'a> {
        Lease { budget, units }
    }

    /// Returns how many units the lease holds.
    pub fn units(&self) -> u64 {
        self.units
    }

    /// Returns the budget of these units.
    pub fn budget(&self) -> &'a Budget {
        self.budget
    }

    /// Splits off a lease of `n` units, or returns `None` if this lease holds fewer.
    pub fn split(&mut self, n: u64) -> Option<Lease<'a>> {
        self.units = self.units.checked_sub(n)?;
        Some(Lease { budget: self.budget, units: n })
    }

    /// Adds the units of another lease to this one.
    ///
    /// # Panics
    ///
    /// If `other` is a lease of another budget. Its units are then released.
    pub fn merge(&mut self, other: Lease<'a>) {
        assert!(
            std::ptr::eq(self.budget, other.budget),
            "thiscpu: leases not merged: they belong to different budgets"
        );
        self.units += other.forget();
    }

    /// Keeps the units acquired, and returns how many they are.
    ///
    /// The caller must [`release`](Budget::release) them later, or they are lost to the budget.
    pub fn forget(self) -> u64 {
        mem::ManuallyDrop::new(self).units
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        self.budget.release(self.units);
    }
}

impl fmt::Debug for Lease<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("units", &self.units).finish_non_exhaustive()
    }
}

/// Units of a budget that are set aside for the owner of this value.
///
/// The owner can use them even when the budget is exhausted. Dropping the reserve releases the
/// units that no lease of it holds.
///
/// ```
/// use thiscpu::Budget;
///
/// let blocks = Budget::new(100);
/// let emergency = blocks.try_reserve(10)?;
/// blocks.try_acquire(90)?;
/// assert!(blocks.try_acquire(1).is_err());
/// // Cleaning up needs some blocks, and frees more.
/// let lease = emergency.lease(3)?;
/// assert_eq!(emergency.available(), 7);
/// drop(lease);
/// assert_eq!(emergency.available(), 10);
/// # Ok::<(), thiscpu::TryAcquireError>(())
/// ```
#[must_use = "the units are released when the reserve is dropped"]
#[derive(Debug)]
pub struct Reserve<'a> {
    budget: &'a Budget,
    units: u64,
    /// A budget of its own for the units set aside.
    own: Budget,
}

impl<'a> Reserve<'a> {
    pub(super) fn new(units: Lease<'a>) -> Reserve<'a> {
        let (budget, units) = (units.budget, units.forget());
        Reserve { budget, units, own: Budget::new(units) }
    }

    /// Takes `n` units of the reserve; dropping the lease returns them to the reserve.
    ///
    /// # Errors
    ///
    /// [`TryAcquireError`] if fewer than `n` units are left.
    pub fn lease(&self, n: u64) -> Result<Lease<'_>, TryAcquireError> {
        self.own.lease(n)
    }

    /// Returns how many units are left.
    pub fn available(&self) -> u64 {
        self.own.available()
    }

    /// Returns how many units were set aside.
    pub fn units(&self) -> u64 {
        self.units
    }
}

impl Drop for Reserve<'_> {
    fn drop(&mut self) {
        // Units of a forgotten lease stay acquired. A caller can reach the inner budget through a
        // lease and change its limit; that creates no units here.
        self.budget.release(self.units.saturating_sub(self.own.acquired()));
    }
}
