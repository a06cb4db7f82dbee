//! Every contender's guarantee: once all threads are done and all caches are empty, each charge is
//! counted exactly once, in its own account. Also tests which charges each cache serves.

use std::thread;

use super::{Atomic, COUNTERS, Contender, Kamezawa, MemcgStock, PerThread64};
use crate::cpus::Cpus;

const THREADS: usize = 4;
const ACCOUNTS: usize = 23;
const CHARGES: usize = 20_000;

/// Amounts on both sides of every batch, of both signs, that do not cancel out.
const AMOUNTS: [i64; 9] = [1, -1, 7, 64, -63, 65, -1_000, 300, 1];

/// The initial charge of each counter, which keeps it positive and exceeds every cache.
const BEGINNING: i64 = 1 << 40;

/// Yields a thread's charges: account, counter, amount. Accounts repeat, for cache hits.
fn charges(thread: usize) -> impl Iterator<Item = (usize, usize, i64)> {
    let mut random = fastrand::Rng::with_seed(thread as u64);
    let mut account = 0;
    (0..CHARGES).map(move |turn| {
        if random.u8(..) < 64 {
            account = random.usize(..ACCOUNTS);
        }
        (account, random.usize(..COUNTERS), AMOUNTS[turn % AMOUNTS.len()])
    })
}

fn counts_exactly<C: Contender>() {
    let ledger = C::new(ACCOUNTS);
    let accounts: Vec<C::Account> = (0..ACCOUNTS).map(|_| ledger.open()).collect();
    for account in &accounts {
        (0..COUNTERS).for_each(|index| ledger.charge(account, index, BEGINNING));
    }
    let work = |thread| {
        for (account, index, n) in charges(thread) {
            match n {
                0.. => ledger.charge(&accounts[account], index, n),
                _ => ledger.uncharge(&accounts[account], index, -n),
            }
        }
    };
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        // The end of the scope does not wait for destructors of thread-locals; a join does.
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    ledger.sync();
    let mut expected = [[BEGINNING; COUNTERS]; ACCOUNTS];
    for (account, index, n) in (0..THREADS).flat_map(charges) {
        expected[account][index] += n;
    }
    for (account, expected) in accounts.iter().zip(expected) {
        let counters: [i64; COUNTERS] = std::array::from_fn(|index| ledger.read(account, index));
        assert_eq!(counters, expected);
    }
}

fn counts_exactly_when_one_thread_charges_two_ledgers<C: Contender>() {
    let ledgers = [C::new(1), C::new(1)];
    let accounts = ledgers.each_ref().map(C::open);
    for _ in 0..100 {
        for (ledger, account) in ledgers.iter().zip(&accounts) {
            ledger.charge(account, 1, 5);
            ledger.charge(account, 2, 8);
            ledger.uncharge(account, 2, 3);
        }
    }
    for (ledger, account) in ledgers.iter().zip(&accounts) {
        ledger.sync();
        assert_eq!([0, 1, 2, 3].map(|index| ledger.read(account, index)), [0, 500, 500, 0]);
    }
}

test_all!(counts_exactly counts_exactly_when_one_thread_charges_two_ledgers);

/// Counts the misses when a thread on one CPU charges `live` accounts in 64 rounds.
fn misses_of<C: Contender>(live: usize) -> Option<u64> {
    let cpus = Cpus::allowed().unwrap();
    let work = || {
        let ledger = C::new(live);
        let accounts: Vec<C::Account> = (0..live).map(|_| ledger.open()).collect();
        for _ in 0..64 {
            accounts.iter().for_each(|account| ledger.charge(account, 0, 1));
        }
        ledger.sync();
        assert!(accounts.iter().all(|account| ledger.read(account, 0) == 64));
        Ok(ledger.misses())
    };
    cpus.confined(0..1, work).unwrap()
}

#[test]
fn caches_miss_when_they_have_fewer_places_than_owners() {
    let of_one = [
        misses_of::<Atomic>(1),
        misses_of::<Kamezawa>(1),
        misses_of::<PerThread64>(1),
        misses_of::<MemcgStock>(1),
    ];
    // Kamezawa misses its first charge, a per-thread cache also the 64th, and a stock its first.
    assert_eq!(of_one, [None, Some(1), Some(2), Some(1)]);
    assert_eq!(misses_of::<Kamezawa>(2), Some(2 * 64));
    assert_eq!(misses_of::<PerThread64>(2), Some(2 * 64));
    assert_eq!(misses_of::<MemcgStock>(7), Some(7));
    assert!(misses_of::<MemcgStock>(8) > Some(8));
}
