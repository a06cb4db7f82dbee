//! Accounts of many tenants: what a charge costs, and whether the totals are those of one instant.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Result, ensure};
use indicatif::HumanCount;
use thiscpu::Ledger;

use super::{Row, Scene, crew};

pub(super) const SCENE: Scene = Scene {
    title: "Ledgers: 100,000 tenants' accounts",
    page: "docs/design/ledger.md",
    workload: "ledger",
    run,
};

const TENANTS: usize = 100_000;

/// Requests of a thread for one tenant before it serves another, as in a server.
const REQUESTS_EACH: u64 = 8;

/// Tenants that a thread serves one after the other: a few of them most of the time.
fn tenants(thread: usize) -> impl FnMut() -> usize {
    let mut random = crew::random(thread);
    let (mut tenant, mut served) = (0, 0);
    move || {
        if served % REQUESTS_EACH == 0 {
            let uniform = random() as f64 / (1_u64 << 31) as f64;
            // The fourth power gives more than half of the load to a tenth of the tenants.
            tenant = (uniform.powi(4) * TENANTS as f64) as usize;
        }
        served += 1;
        tenant
    }
}

fn run(length: Duration) -> Result<Vec<Row>> {
    let ledger = Ledger::<1>::new();
    let accounts: Vec<_> = (0..TENANTS).map(|_| ledger.open()).collect();
    let prepare = |thread: usize| {
        let (accounts, mut tenant) = (&accounts, tenants(thread));
        move || accounts[tenant()].charge(0, 1)
    };
    let show = || {
        let (mut total, mut largest) = (0, 0);
        ledger.for_each(|_, [requests]| {
            total += requests;
            largest = largest.max(requests);
        });
        format!("{} charges, busiest {}", HumanCount(total as u64), HumanCount(largest as u64))
    };
    let work = crew::run(length / 2, prepare, show);
    let mut total = 0;
    ledger.for_each(|_, [requests]| total += requests);
    let made = work.operations;
    ensure!(total as u64 == made, "a ledger has {total} of {made} charges; please report this");

    let map: Mutex<HashMap<usize, AtomicI64>> =
        Mutex::new((0..TENANTS).map(|tenant| (tenant, AtomicI64::new(0))).collect());
    let prepare = |thread: usize| {
        let (map, mut tenant) = (&map, tenants(thread));
        move || {
            let map = map.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            map[&tenant()].fetch_add(1, Relaxed);
        }
    };
    let show = || "a map under a lock".to_owned();
    let locked = crew::run(length / 2, prepare, show);
    let (ours, theirs) = (work.ns_each(), locked.ns_each());
    Ok(vec![
        Row::of_times("a charge, while all threads charge", "locked map", ours, theirs),
        Row::of_counts("charges made, none lost", "locked map", made, locked.operations),
    ])
}
