//! Workers: they charge in bulk, with other operations in between.

use std::{ops::Range, sync::Arc};

use fastrand::Rng;

use super::{
    shared::{PASSED, Shared, TENANT_SLOTS, TRANSFERRED},
    tenant::{COUNTERS, Tenant},
};
use crate::{cpus::Cpus, workloads::Setting};

/// The number of neighboring tenants that are charged most. They fit into a lane's cache.
const HOT_TENANTS: usize = 64;
/// The number of steps after which a thread's hot tenants are others.
const STEPS_PER_HOT_SET: u64 = 16_384;
/// The tenants of a sweep that do not fit into a lane's cache, and the charges to each.
const SWEPT: usize = 512;
const ROUNDS_OF_SWEPT: u32 = 16;
/// The charges to each hot tenant in a sweep over them.
const ROUNDS_OF_HOT: u32 = 16;

pub(super) struct Worker<'a> {
    shared: &'a Shared,
    cpus: &'a Cpus,
    random: Rng,
    steps: u64,
}

impl<'a> Worker<'a> {
    pub(super) fn new(shared: &'a Shared, setting: &Setting<'a>, index: usize) -> Self {
        let seed = u64::from(setting.round) << 32 | index as u64;
        Self { shared, cpus: setting.cpus, random: Rng::with_seed(seed), steps: 0 }
    }

    /// Does a random operation. Most of the time goes into charges.
    pub(super) fn step(&mut self) -> anyhow::Result<()> {
        let shared = self.shared;
        self.steps += 1;
        match self.random.u8(..) {
            // A lane's cache keeps small amounts, and flushes once in a while. Large ones hardly
            // fit, or do not.
            0..96 => self.charge(-4..5, 64..2_048),
            96..120 => self.charge(-5_000..5_000, 1..256),
            120..160 => self.sweep(),
            160..176 => self.charge_uncached(),
            176..192 => self.pass(),
            192..216 => self.transfer_some(),
            216..232 => {
                let slot = self.random.usize(..TENANT_SLOTS);
                // Rarely a hot one, since its successor is in no lane's cache yet.
                let is_hot = self.random.u8(..64) == 0;
                shared.replace(if is_hot { self.hot_slot(slot % HOT_TENANTS) } else { slot });
            }
            232..252 => {
                let slot = self.any_slot();
                self.with_tenant(slot, |tenant| tenant.check(&shared.errors));
                shared.counts.sums.add(COUNTERS as u64 + 1);
            }
            252..254 => self.migrate()?,
            254.. => self.sync_or_snapshot(),
        }
        Ok(())
    }

    /// Returns a slot: mostly that of a hot tenant, which is hot for most threads.
    ///
    /// Others are not in the lane's cache, which a thread soon bypasses if they are frequent.
    fn any_slot(&mut self) -> usize {
        let nth = self.random.usize(..HOT_TENANTS);
        match self.random.u8(..) {
            0 => self.random.usize(..TENANT_SLOTS),
            _ => self.hot_slot(nth),
        }
    }

    fn hot_slot(&self, nth: usize) -> usize {
        ((self.steps / STEPS_PER_HOT_SET) as usize * HOT_TENANTS + nth) % TENANT_SLOTS
    }

    fn with_tenant(&self, slot: usize, f: impl FnOnce(&Tenant)) {
        let tenant = self.shared.tenant(slot);
        f(&tenant);
        self.shared.release(tenant);
    }

    fn count_charges(&self, charges: impl Into<u64>) {
        self.shared.counts.charges.add(charges.into());
    }

    /// Charges one amount several times.
    fn charge(&mut self, n: Range<i64>, times: Range<u32>) {
        let slot = self.any_slot();
        let (index, n) = (self.random.usize(..COUNTERS), self.random.i64(n));
        let times = self.random.u32(times);
        self.with_tenant(slot, |tenant| tenant.charge(index, n, times));
        self.count_charges(times);
    }

    /// Charges one unit to each of several tenants in turn.
    fn sweep(&mut self) {
        if self.random.u8(..64) > 0 {
            let slots: Vec<usize> = (0..HOT_TENANTS).map(|nth| self.hot_slot(nth)).collect();
            return self.charge_in_turn(slots, ROUNDS_OF_HOT);
        }
        // These evict each other from the lane's cache, until the thread bypasses it. The distance
        // between them is odd, so that none comes twice.
        let (first, step) =
            (self.random.usize(..TENANT_SLOTS), 2 * self.random.usize(..TENANT_SLOTS) + 1);
        let slots = (0..SWEPT).map(|nth| (first + nth * step) % TENANT_SLOTS).collect();
        self.charge_in_turn(slots, ROUNDS_OF_SWEPT);
    }

    fn charge_in_turn(&mut self, slots: Vec<usize>, rounds: u32) {
        let (shared, index) = (self.shared, self.random.usize(..COUNTERS));
        let tenants: Vec<Arc<Tenant>> = slots.into_iter().map(|slot| shared.tenant(slot)).collect();
        tenants.iter().for_each(|tenant| tenant.begin(index, rounds.into()));
        for _ in 0..rounds {
            tenants.iter().for_each(|tenant| tenant.account.charge(index, 1));
        }
        tenants.iter().for_each(|tenant| tenant.end(index, rounds.into()));
        self.count_charges(u64::from(rounds) * tenants.len() as u64);
        tenants.into_iter().for_each(|tenant| shared.release(tenant));
    }

    /// Charges past the cache, through a handle of its own, which another thread drops.
    fn charge_uncached(&mut self) {
        let slot = self.any_slot();
        let (index, n) = (self.random.usize(..COUNTERS), self.random.i64(-3_000..3_000));
        let times = self.random.u32(1..256);
        self.with_tenant(slot, |tenant| {
            let all = n * i64::from(times);
            tenant.begin(index, all);
            let account = tenant.account.clone();
            (0..times).for_each(|_| account.charge_uncached(index, n));
            tenant.end(index, all);
            self.shared.hand_off(account);
        });
        self.count_charges(times);
    }

    fn two_purses(&mut self) -> [&'a Tenant; 2] {
        let transfer_accounts = &self.shared.transfer_accounts;
        [0; 2].map(|_| &transfer_accounts[self.random.usize(..transfer_accounts.len())])
    }

    /// Synchronizes or takes a snapshot, but seldom.
    ///
    /// While all accounts are marked in lanes, charges miss, and threads begin to bypass the
    /// caches.
    fn sync_or_snapshot(&mut self) {
        match self.random.u8(..16) {
            0 => self.shared.ledger.sync(),
            1..4 => {
                self.shared.check_snapshot(&self.shared.errors);
                self.shared.counts.snapshots.add(1);
            }
            _ => {}
        }
    }

    /// Moves units between transfer accounts by two charges, one unit at a time.
    fn pass(&mut self) {
        let ([from, to], times) = (self.two_purses(), self.random.u32(1..1_024));
        to.begin(PASSED, times.into());
        from.begin(PASSED, -i64::from(times));
        for _ in 0..times {
            to.account.charge(PASSED, 1);
            from.account.uncharge(PASSED, 1);
        }
        to.end(PASSED, times.into());
        from.end(PASSED, -i64::from(times));
        self.count_charges(2 * times);
    }

    /// Transfers units between transfer accounts, and between tenants.
    fn transfer_some(&mut self) {
        const TRANSFERS: u32 = 16;
        for _ in 0..TRANSFERS {
            let ([from, to], n) = (self.two_purses(), self.random.i64(-5_000..5_000));
            from.transfer_to(to, TRANSFERRED, n);
        }
        let [from, to] = [0; 2].map(|_| self.any_slot());
        let (index, n) = (self.random.usize(..COUNTERS), self.random.i64(-5_000..5_000));
        self.with_tenant(from, |from| self.with_tenant(to, |to| from.transfer_to(to, index, n)));
        self.shared.counts.transfers.add(u64::from(TRANSFERS) + 1);
    }

    /// Pins the thread to another CPU, or unpins it.
    fn migrate(&mut self) -> anyhow::Result<()> {
        match self.random.bool() {
            true => self.cpus.pin(self.random.usize(..self.cpus.len())),
            false => self.cpus.unpin(),
        }
    }
}
