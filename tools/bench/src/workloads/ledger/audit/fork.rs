//! Children, forked while other threads use the ledger, that check their copy of it.
//!
//! A child has one thread, and the ledger as other threads left it, in the middle of their calls.
//! It takes only the ledger's locks and the allocator's, which glibc resets in a child.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use fastrand::Rng;
use thiscpu_test_support::child;

use super::{
    shared::{PASSED, Shared, TENANT_SLOTS, TRANSFERRED},
    tenant::{COUNTERS, Errors, Tenant},
};

/// The number of tenants that a child checks.
const TENANTS: usize = 64;

pub(super) struct Forks {
    random: Rng,
    pub(super) children: u64,
    /// Children that found an error, panicked or hung.
    pub(super) wrong: u64,
}

impl Forks {
    pub(super) fn new(round: u32) -> Self {
        Self { random: Rng::with_seed(round.into()), children: 0, wrong: 0 }
    }

    /// Forks a child and waits for its end.
    pub(super) fn fork(&mut self, shared: &Shared) -> Result<()> {
        // Looked up before the fork: in the child, a lost thread may hold the lock of a slot
        // forever.
        let tenants: Vec<_> =
            (0..TENANTS).map(|_| shared.tenant(self.random.usize(..TENANT_SLOTS))).collect();
        let child = child::try_fork().context("cannot fork")?;
        if child == 0 {
            // SAFETY: the call accesses no memory. The default action ends a child that hangs.
            unsafe { libc::signal(libc::SIGALRM, libc::SIG_DFL) };
            child::exit_with(|| i32::from(!check_in_child(shared, &tenants)));
        }
        self.children += 1;
        self.wrong += u64::from(child::wait(child) != 0);
        tenants.into_iter().for_each(|tenant| shared.release(tenant));
        Ok(())
    }
}

/// Checks the ledger in a child, uses it alone, and returns whether all values were right.
fn check_in_child(shared: &Shared, tenants: &[Arc<Tenant>]) -> bool {
    let errors = Errors::default();
    shared.check_snapshot(&errors);
    tenants.iter().chain(tenants).for_each(|tenant| tenant.check(&errors));
    shared.transfer_accounts.iter().for_each(|account| account.check(&errors));
    for (nth, tenant) in tenants.iter().enumerate() {
        let [first, second] = tenant.account.snapshot();
        (0..300).for_each(|_| tenant.account.charge(nth % COUNTERS, 7));
        let more = |index| if nth % COUNTERS == index { 2_100 } else { 0 };
        errors.expect(first + more(0), tenant.account.sum(0));
        errors.expect(second + more(1), tenant.account.sum(1));
    }
    for pair in shared.transfer_accounts.windows(2) {
        pair[0].transfer_to(&pair[1], TRANSFERRED, 300);
        pair[0].charge(PASSED, 1, 300);
        pair[1].charge(PASSED, -1, 300);
    }
    shared.check_snapshot(&errors);
    let new = Tenant::open(&shared.ledger, &errors);
    new.charge(0, 1, 300);
    drop(new.close(&errors));
    !errors.any()
}
