//! The threads of an audit: charges in bulk, with all other operations in between.

use std::sync::Arc;

use anyhow::Context as _;
use fastrand::Rng;

use super::{
    shared::{MOVED, PASSED, Shared, TENANT_SLOTS},
    tenant::{COUNTERS, Tenant},
};
use crate::{cpus::Cpus, workloads::Setting};

/// The number of tenants that get most charges. A lane has room for all of them.
const HOT: usize = 64;
/// The number of a thread's turns after which other tenants become the hot ones.
const SEASON: u64 = 16_384;
/// The number of tenants charged in turn that exceed a lane's room.
const MANY: usize = 512;
/// The charges of each of the many tenants in a sweep.
const ROUNDS_OF_MANY: u32 = 16;
/// The charges of each hot tenant in a sweep.
const ROUNDS_OF_HOT: u32 = 16;

/// One thread of an audit.
pub(super) struct Worker<'a> {
    shared: &'a Shared,
    cpus: &'a Cpus,
    random: Rng,
    turns: u64,
}

impl<'a> Worker<'a> {
    pub(super) fn new(shared: &'a Shared, setting: &Setting<'a>, index: usize) -> Self {
        let seed = u64::from(setting.round) << 32 | index as u64;
        Self { shared, cpus: setting.cpus, random: Rng::with_seed(seed), turns: 0 }
    }

    /// Performs a random operation. Most of the time goes into charges.
    pub(super) fn step(&mut self) -> anyhow::Result<()> {
        let (shared, counts) = (self.shared, &self.shared.counts);
        self.turns += 1;
        let charges = match self.random.u8(..) {
            0..96 => self.charge_often(),
            96..120 => self.charge_much(),
            120..160 => self.sweep(),
            160..176 => self.charge_uncached(),
            176..192 => self.pass(),
            192..216 => self.transfer_some(),
            216..232 => {
                let slot = self.random.usize(..TENANT_SLOTS);
                // Hot tenants are replaced rarely, because their successors are in no lane yet.
                let is_hot = self.random.u8(..64) == 0;
                shared.replace(if is_hot { self.hot_slot(slot % HOT) } else { slot });
                0
            }
            232..252 => {
                let slot = self.any_slot();
                self.with_tenant(slot, |tenant| tenant.check(&shared.errors));
                counts.sums.add(COUNTERS as u64 + 1);
                0
            }
            252..254 => {
                self.migrate()?;
                0
            }
            254.. => {
                self.sync_or_snapshot();
                0
            }
        };
        counts.charges.add(charges);
        Ok(())
    }

    /// Picks a slot, mostly of one of the hot tenants, which most threads share.
    ///
    /// Any other tenant is not in the lane, and the thread would soon bypass the lane for it.
    fn any_slot(&mut self) -> usize {
        let nth = self.random.usize(..HOT);
        match self.random.u8(..) {
            0 => self.random.usize(..TENANT_SLOTS),
            _ => self.hot_slot(nth),
        }
    }

    fn hot_slot(&self, nth: usize) -> usize {
        ((self.turns / SEASON) as usize * HOT + nth) % TENANT_SLOTS
    }

    fn with_tenant(&self, slot: usize, f: impl FnOnce(&Tenant)) {
        let tenant = self.shared.tenant(slot);
        f(&tenant);
        self.shared.release(tenant);
    }

    /// Charges a few units at a time to one account, which the lane rarely has to publish.
    fn charge_often(&mut self) -> u64 {
        let slot = self.any_slot();
        let (index, n) = (self.random.usize(..COUNTERS), self.random.i64(-4..=4));
        let times = self.random.u32(64..2_048);
        self.with_tenant(slot, |tenant| tenant.charge(index, n, times));
        u64::from(times)
    }

    /// Charges amounts to one account that barely fit into a lane, or do not.
    fn charge_much(&mut self) -> u64 {
        let slot = self.any_slot();
        let (index, n) = (self.random.usize(..COUNTERS), self.random.i64(-5_000..5_000));
        let times = self.random.u32(1..256);
        self.with_tenant(slot, |tenant| tenant.charge(index, n, times));
        u64::from(times)
    }

    /// Charges one unit to each of some accounts in turn.
    fn sweep(&mut self) -> u64 {
        if self.random.u8(..64) > 0 {
            let tenant_slots: Vec<usize> = (0..HOT).map(|nth| self.hot_slot(nth)).collect();
            return self.charge_in_turn(tenant_slots, ROUNDS_OF_HOT);
        }
        // These accounts evict each other from the lane until the thread bypasses it. The step is
        // odd, so that no account repeats.
        let (first, step) =
            (self.random.usize(..TENANT_SLOTS), 2 * self.random.usize(..TENANT_SLOTS) + 1);
        let tenant_slots = (0..MANY).map(|nth| (first + nth * step) % TENANT_SLOTS).collect();
        self.charge_in_turn(tenant_slots, ROUNDS_OF_MANY)
    }

    fn charge_in_turn(&mut self, tenant_slots: Vec<usize>, rounds: u32) -> u64 {
        let (shared, index) = (self.shared, self.random.usize(..COUNTERS));
        let tenants: Vec<Arc<Tenant>> =
            tenant_slots.into_iter().map(|slot| shared.tenant(slot)).collect();
        tenants.iter().for_each(|tenant| tenant.begin(index, rounds.into()));
        for _ in 0..rounds {
            tenants.iter().for_each(|tenant| tenant.account.charge(index, 1));
        }
        tenants.iter().for_each(|tenant| tenant.end(index, rounds.into()));
        let charges = u64::from(rounds) * tenants.len() as u64;
        tenants.into_iter().for_each(|tenant| shared.release(tenant));
        charges
    }

    /// Charges an account without the cache, by a handle that another thread drops.
    fn charge_uncached(&mut self) -> u64 {
        let slot = self.any_slot();
        let (index, n) = (self.random.usize(..COUNTERS), self.random.i64(-3_000..3_000));
        let times = self.random.u32(1..256);
        self.with_tenant(slot, |tenant| {
            let all = n * i64::from(times);
            tenant.begin(index, all);
            let account = tenant.account.clone();
            (0..times).for_each(|_| account.charge_uncached(index, n));
            tenant.end(index, all);
            self.shared.leave(account);
        });
        u64::from(times)
    }

    fn two_transfer_accounts(&mut self) -> [&'a Tenant; 2] {
        let transfer_accounts = &self.shared.transfer_accounts;
        [0; 2].map(|_| &transfer_accounts[self.random.usize(..transfer_accounts.len())])
    }

    /// Syncs the ledger or takes a snapshot, but rarely.
    ///
    /// While all accounts are marked in lanes, charges miss, and threads begin to bypass the lanes.
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

    /// Passes units between transfer accounts by two charges each, one unit in flight at a time.
    fn pass(&mut self) -> u64 {
        let ([from, to], times) = (self.two_transfer_accounts(), self.random.u32(1..1_024));
        to.begin(PASSED, times.into());
        from.begin(PASSED, -i64::from(times));
        for _ in 0..times {
            to.account.charge(PASSED, 1);
            from.account.uncharge(PASSED, 1);
        }
        to.end(PASSED, times.into());
        from.end(PASSED, -i64::from(times));
        2 * u64::from(times)
    }

    /// Transfers units between transfer accounts, and between tenants.
    fn transfer_some(&mut self) -> u64 {
        const TRANSFERS: u32 = 16;
        for _ in 0..TRANSFERS {
            let ([from, to], n) = (self.two_transfer_accounts(), self.random.i64(-5_000..5_000));
            from.transfer_to(to, MOVED, n);
        }
        let [from, to] = [0; 2].map(|_| self.any_slot());
        let (index, n) = (self.random.usize(..COUNTERS), self.random.i64(-5_000..5_000));
        self.with_tenant(from, |from| self.with_tenant(to, |to| from.transfer_to(to, index, n)));
        self.shared.counts.transfers.add(u64::from(TRANSFERS) + 1);
        0
    }

    /// Pins the thread to another CPU, or lets the kernel choose.
    fn migrate(&mut self) -> anyhow::Result<()> {
        match self.random.bool() {
            true => self.cpus.pin(self.random.usize(..self.cpus.len())),
            false => self.cpus.unpin(),
        }
        .context("cannot move a thread to another CPU")
    }
}
