//! Leases of a budget in an `Arc`: they own a reference to it, so tasks can store and send them.

use std::fmt;
use std::mem;
use std::sync::Arc;

use super::core::Budget;

/// Units of a budget in an [`Arc`] that are released when this value is dropped.
///
/// Like [`Lease`](super::Lease), but it owns a reference to the budget. So it is `'static`, and can
/// be stored, returned and sent to other threads and tasks. The budget lives at least as long.
///
/// An `Arc` counts its references in one word, which all CPUs write. So acquiring an owned lease
/// and dropping it cost two atomic additions on a shared line more than a [`Lease`](super::Lease)
/// does. Where that matters, make the budget a static, or leak it: its `Lease<'static>` can be
/// stored and sent too.
///
/// ```
/// use std::sync::Arc;
/// use thiscpu::{Budget, OwnedLease};
///
/// struct Upload {
///     buffer: Vec<u8>,
///     _memory: OwnedLease,
/// }
///
/// let memory = Arc::new(Budget::new(1 << 20));
/// let lease = memory.try_acquire_owned(4096)?;
/// let upload = Upload { buffer: vec![0; 4096], _memory: lease };
/// std::thread::spawn(move || drop(upload)).join().unwrap();
/// assert_eq!(memory.available(), 1 << 20);
/// # Ok::<(), thiscpu::TryAcquireError>(())
/// ```
#[must_use = "the units are released when the lease is dropped"]
pub struct OwnedLease {
    budget: Arc<Budget>,
    units: u64,
}

impl OwnedLease {
    /// Wraps units that the caller has acquired.
    pub(super) fn new(budget: Arc<Budget>, units: u64) -> OwnedLease {
        OwnedLease { budget, units }
    }

    /// Returns how many units the lease holds.
    pub fn units(&self) -> u64 {
        self.units
    }

    /// Returns the budget of these units.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Splits off a lease of `n` units, or returns `None` if this lease holds fewer.
    pub fn split(&mut self, n: u64) -> Option<OwnedLease> {
        self.units = self.units.checked_sub(n)?;
        Some(OwnedLease { budget: Arc::clone(&self.budget), units: n })
    }

    /// Adds the units of another lease to this one.
    ///
    /// # Panics
    ///
    /// If `other` is a lease of another budget. Its units are then released.
    pub fn merge(&mut self, other: OwnedLease) {
        assert!(
            Arc::ptr_eq(&self.budget, &other.budget),
            "thiscpu: leases not merged: they belong to different budgets"
        );
        self.units += other.forget();
    }

    /// Keeps the units acquired, and returns how many they are.
    ///
    /// The caller must [`release`](Budget::release) them later, or they are lost to the budget. The
    /// reference to the budget is dropped.
    pub fn forget(mut self) -> u64 {
        mem::take(&mut self.units)
    }
}

impl Drop for OwnedLease {
    fn drop(&mut self) {
        // A forgotten lease has none.
        if self.units > 0 {
            self.budget.release(self.units);
        }
    }
}

impl fmt::Debug for OwnedLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedLease").field("units", &self.units).finish_non_exhaustive()
    }
}
