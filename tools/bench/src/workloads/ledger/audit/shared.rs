//! State that all workers share: tenant accounts that open and close, and transfer accounts whose
//! total is constant.

use std::{
    mem,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use thiscpu::{__test_support, Account, AccountId, Ledger, Tier};

use super::tenant::{COUNTERS, Errors, Tenant};
use crate::contenders::Padded;

/// The number of tenants: twice as many as fit into a lane's cache.
pub(super) const TENANT_SLOTS: usize = 2_048;
const TRANSFER_ACCOUNTS: usize = 64;
/// The counter of transfer accounts that only transfers change, and its initial value.
pub(super) const TRANSFERRED: usize = 0;
const INITIAL_UNITS: u32 = 1_000;
/// The counter that is charged in one transfer account, then uncharged in another.
///
/// Its total is at least 0, and at most 1 per thread.
pub(super) const PASSED: usize = 1;

/// A count of operations. Relaxed: no other memory depends on it.
#[derive(Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

#[derive(Default)]
pub(super) struct Counts {
    pub(super) charges: Count,
    pub(super) opened: Count,
    pub(super) closed: Count,
    pub(super) transfers: Count,
    pub(super) sums: Count,
    pub(super) snapshots: Count,
}

pub(super) struct Shared {
    pub(super) ledger: Ledger<COUNTERS>,
    tenant_slots: Vec<Mutex<Arc<Tenant>>>,
    pub(super) transfer_accounts: Vec<Tenant>,
    /// Sorted.
    transfer_ids: Vec<AccountId>,
    /// A handle that one thread has left for the next one to drop.
    handoff: Mutex<Option<Account<COUNTERS>>>,
    threads: usize,
    pub(super) errors: Errors,
    pub(super) counts: Padded<Counts>,
}

impl Shared {
    pub(super) fn new(threads: usize) -> Self {
        let (ledger, errors) = (Ledger::new_signed(), Errors::default());
        let slot = |_| Mutex::new(Arc::new(Tenant::open(&ledger, &errors)));
        let tenant_slots = (0..TENANT_SLOTS).map(slot).collect();
        let transfer_accounts: Vec<_> =
            (0..TRANSFER_ACCOUNTS).map(|_| Tenant::open(&ledger, &errors)).collect();
        transfer_accounts.iter().for_each(|account| account.charge(TRANSFERRED, 1, INITIAL_UNITS));
        let mut transfer_ids: Vec<_> =
            transfer_accounts.iter().map(|account| account.account.id()).collect();
        transfer_ids.sort_unstable();
        let (handoff, counts) = (Mutex::new(None), Padded::<Counts>::default());
        counts.opened.add((TENANT_SLOTS + TRANSFER_ACCOUNTS) as u64);
        counts.charges.add(u64::from(INITIAL_UNITS) * TRANSFER_ACCOUNTS as u64);
        Self {
            ledger,
            tenant_slots,
            transfer_accounts,
            transfer_ids,
            handoff,
            threads,
            errors,
            counts,
        }
    }

    pub(super) fn tenant(&self, slot: usize) -> Arc<Tenant> {
        Arc::clone(&self.tenant_slots[slot].lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the tenant in a slot by a new one.
    pub(super) fn replace(&self, slot: usize) {
        let new = Arc::new(Tenant::open(&self.ledger, &self.errors));
        self.counts.opened.add(1);
        let mut tenant = self.tenant_slots[slot].lock().unwrap_or_else(PoisonError::into_inner);
        let old = mem::replace(&mut *tenant, new);
        drop(tenant);
        self.release(old);
    }

    /// Ends one use of a tenant's account. The last use checks and closes it.
    pub(super) fn release(&self, tenant: Arc<Tenant>) {
        if let Some(tenant) = Arc::into_inner(tenant) {
            self.counts.closed.add(1);
            self.hand_off(tenant.close(&self.errors));
        }
    }

    /// Leaves a handle for the next thread, and drops the one that was left before.
    pub(super) fn hand_off(&self, account: Account<COUNTERS>) {
        let mut handoff = self.handoff.lock().unwrap_or_else(PoisonError::into_inner);
        let before = handoff.replace(account);
        drop(handoff);
        drop(before);
    }

    /// Checks the totals of all transfer accounts at one instant.
    pub(super) fn check_snapshot(&self, errors: &Errors) {
        let (mut count, mut all) = (0, [0; COUNTERS]);
        self.ledger.for_each(|id, counters| {
            if self.transfer_ids.binary_search(&id).is_ok() {
                count += 1;
                (0..COUNTERS).for_each(|index| all[index] += counters[index]);
            }
        });
        errors.expect(TRANSFER_ACCOUNTS as i64, count);
        errors.expect(i64::from(INITIAL_UNITS) * TRANSFER_ACCOUNTS as i64, all[TRANSFERRED]);
        errors.expect_within((0, self.threads as i64), all[PASSED]);
    }

    /// Returns the percentage of charges that hit a lane's cache, if there are lanes.
    pub(super) fn hit_rate(&self) -> Option<f64> {
        let rate = |misses| 100.0 * (1.0 - misses as f64 / self.counts.charges.get() as f64);
        let has_lanes = thiscpu::tier() != Ok(Tier::Atomic);
        has_lanes.then(|| rate(__test_support::misses(&self.ledger)).max(0.0))
    }

    /// Checks and closes all accounts, after all threads have ended.
    pub(super) fn settle(&mut self) {
        self.check_snapshot(&self.errors);
        self.ledger.sync();
        let tenant_slots = mem::take(&mut self.tenant_slots).into_iter();
        let tenants = tenant_slots.map(|slot| {
            let tenant = slot.into_inner().unwrap_or_else(PoisonError::into_inner);
            Arc::into_inner(tenant).expect("all threads that charged it have ended")
        });
        for tenant in tenants.chain(mem::take(&mut self.transfer_accounts)) {
            let read = [0, 1].map(|index| tenant.account.read(index));
            let account = tenant.close(&self.errors);
            (0..COUNTERS).for_each(|index| self.errors.expect(account.sum(index), read[index]));
            self.counts.closed.add(1);
        }
        *self.handoff.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
        self.errors.expect(0, self.ledger.len() as i64);
        self.ledger.for_each(|_, _| self.errors.expect(0, 1));
    }
}
