//! Units with an owner: leases, and reserves that only their owner draws on.

use core::fmt;
use core::mem;

use super::{Budget, Exhausted};

/// Units of a budget, released when this is dropped. A lease cannot release more than it holds. Dropping it costs
/// and panics as [`Budget::release`].
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
/// # Ok::<(), thiscpu::Exhausted>(())
/// ```
#[must_use = "the units are released when the lease is dropped"]
pub struct Lease<'a> {
    budget: &'a Budget,
    units: u64,
}

impl<'a> Lease<'a> {
    /// Units that the caller has acquired.
    pub(super) fn new(budget: &'a Budget, units: u64) -> Lease<'a> {
        Lease { budget, units }
    }

    /// How many units it holds.
    pub fn units(&self) -> u64 {
        self.units
    }

    /// The budget that they are of.
    pub fn budget(&self) -> &'a Budget {
        self.budget
    }

    /// A lease of `n` of its units, which this one then lacks. `None` if it holds fewer.
    pub fn split(&mut self, n: u64) -> Option<Lease<'a>> {
        self.units = self.units.checked_sub(n)?;
        Some(Lease { budget: self.budget, units: n })
    }

    /// Takes the units of another lease over.
    ///
    /// # Panics
    ///
    /// If that is of another budget.
    pub fn merge(&mut self, other: Lease<'a>) {
        assert!(
            core::ptr::eq(self.budget, other.budget),
            "thiscpu: a lease of one budget cannot hold units of another"
        );
        self.units += other.forget();
    }

    /// Keeps the units acquired and returns how many they are: somebody will [`release`](Budget::release)
    /// them.
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

/// Units of a budget set aside: whoever has this handle may use them when the budget is exhausted. What is
/// left of them is released when it is dropped.
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
/// # Ok::<(), thiscpu::Exhausted>(())
/// ```
///
/// The kernel's XFS keeps such a pool of blocks, for what must not fail.
#[must_use = "the units are released when the reserve is dropped"]
#[derive(Debug)]
pub struct Reserve<'a> {
    budget: &'a Budget,
    units: u64,
    /// The units that are set aside, a budget of their own.
    own: Budget,
}

impl<'a> Reserve<'a> {
    pub(super) fn new(units: Lease<'a>) -> Reserve<'a> {
        let (budget, units) = (units.budget, units.forget());
        Reserve { budget, units, own: Budget::new(units) }
    }

    /// Takes `n` of the units, to be given back to this reserve when the lease is dropped.
    ///
    /// # Errors
    ///
    /// Fewer are left.
    pub fn lease(&self, n: u64) -> Result<Lease<'_>, Exhausted> {
        self.own.lease(n)
    }

    /// How many are left.
    pub fn available(&self) -> u64 {
        self.own.available()
    }

    /// How many were set aside.
    pub fn units(&self) -> u64 {
        self.units
    }
}

impl Drop for Reserve<'_> {
    fn drop(&mut self) {
        // What a lease has been forgotten with stays acquired. Its budget could be reached through a lease, and
        // its limit be changed; that makes no units.
        self.budget.release(self.units.saturating_sub(self.own.acquired()));
    }
}
