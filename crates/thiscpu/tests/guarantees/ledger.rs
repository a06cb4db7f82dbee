//! `Ledger`: every charge counts exactly once, whichever accounts the lanes cache.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::catch_unwind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};

use thiscpu::{__test_support, Account, Ledger, Tier};

use crate::common::{
    Random, Scenario, TIERS, TIERS_AND_SANDBOXES, pin, scale, scenario, together_while,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(ledger::charges_are_never_lost, TIERS_AND_SANDBOXES),
    scenario!(ledger::sums_and_snapshots_are_one_instant, TIERS_AND_SANDBOXES),
    scenario!(ledger::for_each_is_one_instant, TIERS),
    scenario!(ledger::for_each_lists_open_accounts_and_misuse_panics, TIERS),
    scenario!(ledger::read_is_never_negative_when_unsigned, TIERS),
    scenario!(ledger::new_accounts_start_at_zero, TIERS),
    scenario!(ledger::busy_accounts_stay_cached, TIERS),
    scenario!(ledger::counters_wrap_at_62_bits, TIERS),
    scenario!(ledger::accounts_outlive_ledger, TIERS),
];

/// More accounts than a lane caches, so they evict each other.
const MANY: usize = 600;

pub(super) fn open<const N: usize>(ledger: &Ledger<N>, accounts: usize) -> Vec<Account<N>> {
    (0..accounts).map(|_| ledger.open()).collect()
}

/// Makes this CPU's lane cache an account, if there are lanes.
pub(super) fn cache_in_lane(account: &Account<2>) {
    (0..200).for_each(|_| account.charge(0, 0));
}

fn charges_are_never_lost() {
    let ledger: Ledger<2> = Ledger::new_signed();
    let accounts = open(&ledger, MANY);
    let oracle: Vec<[AtomicI64; 2]> = (0..MANY).map(|_| Default::default()).collect();
    let work = |thread: usize| {
        let mut random = Random::new(thread as u64);
        for _ in 0..scale::rounds(100_000) {
            // The product makes low numbers more likely.
            let account = (random.below(MANY as u64) * random.below(MANY as u64)) as usize / MANY;
            let index = random.below(2) as usize;
            let n = [1, -1, 40, -900, 5_000, 1 << 40][random.below(6) as usize];
            match random.below(16) {
                0 => accounts[account].charge_uncached(index, n),
                1 => {
                    let other = random.below(MANY as u64) as usize;
                    accounts[account].transfer_to(&accounts[other], index, n);
                    oracle[account][index].fetch_sub(n, SeqCst);
                    oracle[other][index].fetch_add(n, SeqCst);
                    continue;
                }
                _ => accounts[account].charge(index, n),
            }
            oracle[account][index].fetch_add(n, SeqCst);
        }
    };
    together_while(4, work, || {
        for account in accounts.iter().cycle().take(300) {
            account.sum(1);
            ledger.sync();
        }
    });
    for (account, oracle) in accounts.iter().zip(&oracle) {
        let oracle = [0, 1].map(|index| oracle[index].load(SeqCst));
        assert_eq!([0, 1].map(|index| account.sum(index)), oracle);
        assert_eq!(account.snapshot(), oracle);
    }
    ledger.sync();
    for (account, oracle) in accounts.iter().zip(&oracle) {
        assert_eq!([0, 1].map(|index| account.read(index)), [0, 1].map(|i| oracle[i].load(SeqCst)));
    }
}

// One thread at a time charges 1 or -1 in turn, so each sum is 0 or 1.
fn sums_and_snapshots_are_one_instant() {
    let ledger: Ledger<2> = Ledger::new_signed();
    let account = &ledger.open();
    let (over, turn) = (AtomicBool::new(false), Mutex::new(0));
    let work = |thread: usize| {
        pin::pin(thread);
        while !over.load(SeqCst) {
            let mut turn = turn.lock().expect("no panic");
            let n = if *turn % 2 == 0 { 1 } else { -1 };
            account.charge(0, n);
            // The second counter follows the first.
            account.charge(1, n);
            *turn += 1;
        }
    };
    together_while(2, work, || {
        for _ in 0..scale::rounds(2_000) {
            let sum = account.sum(0);
            assert!((0..=1).contains(&sum), "{sum}");
            let [first, second] = account.snapshot();
            assert!((0..=1).contains(&first) && (0..=1).contains(&second), "{first}, {second}");
        }
        over.store(true, SeqCst);
    });
}

// Units move between accounts: a listing has each of them exactly once.
fn for_each_is_one_instant() {
    let ledger: Ledger<1> = Ledger::new();
    let accounts = open(&ledger, 40);
    accounts.iter().for_each(|account| account.charge(0, 100));
    let over = AtomicBool::new(false);
    let work = |thread: usize| {
        let mut random = Random::new(thread as u64);
        while !over.load(SeqCst) {
            let [from, to] = [0; 2].map(|_| &accounts[random.below(40) as usize]);
            from.transfer_to(to, 0, 3);
            // Charged before it is uncharged, so the total is never too low.
            to.charge(0, 1);
            from.uncharge(0, 1);
        }
    };
    together_while(3, work, || {
        for _ in 0..scale::rounds(300) {
            let (mut count, mut total) = (0, 0);
            ledger.for_each(|_, [units]| {
                count += 1;
                total += units;
            });
            assert!(count == 40 && (4000..=4003).contains(&total), "{count}, {total}");
        }
        over.store(true, SeqCst);
    });
}

fn for_each_lists_open_accounts_and_misuse_panics() {
    let ledger: Ledger<2> = Ledger::new();
    assert!(ledger.is_empty());
    let (one, other) = (ledger.open(), ledger.open());
    assert_ne!(one.id(), other.id());
    (0..3000).for_each(|_| one.charge(0, 2));
    one.transfer_to(&other, 0, 1_000);
    one.transfer_to(&one, 0, 7);
    other.clone().charge(1, 5);
    let expected = BTreeMap::from([(one.id(), [5_000, 0]), (other.id(), [1_000, 5])]);
    let mut found = BTreeMap::new();
    ledger.for_each(|id, counters| _ = found.insert(id, counters));
    assert_eq!((found, ledger.len()), (expected, 2));
    let foreign: Account<2> = Ledger::new().open();
    let refused = |what: &str, op: &dyn Fn()| {
        let panic = catch_unwind(std::panic::AssertUnwindSafe(op)).expect_err(what);
        assert!(panic.downcast::<&str>().expect("a message").contains(what));
    };
    refused("another ledger", &|| one.transfer_to(&foreign, 0, 1));
    refused("no such counter", &|| one.charge(2, 1));
    refused("no such counter", &|| _ = one.read(2));
    // An account keeps its ledger alive.
    foreign.charge(0, 9);
    assert_eq!(foreign.snapshot(), [9, 0]);
}

// One lane uncharges what another lane has charged and not yet flushed.
fn read_is_never_negative_when_unsigned() {
    for (ledger, least) in [(Ledger::<2>::new(), 0), (Ledger::new_signed(), i64::MIN)] {
        let account = ledger.open();
        for cpu in 0..pin::cpus().len() {
            pin::pin(cpu);
            cache_in_lane(&account);
        }
        pin::pin(0);
        account.charge(0, 600);
        pin::pin(1);
        (0..10).for_each(|_| account.uncharge(0, 60));
        // The second counter is 1 in all, but the lane has not flushed its charges.
        account.charge_uncached(1, -5);
        (0..6).for_each(|_| account.charge(1, 1));
        let read = [0, 1].map(|index| account.read(index));
        assert!(read.iter().all(|&read| read >= least), "{read:?}");
        assert_eq!(account.snapshot(), [0, 1]);
    }
}

fn new_accounts_start_at_zero() {
    let ledger: Ledger<2> = Ledger::new();
    let ids = Mutex::new(BTreeSet::new());
    let work = |thread: usize| {
        let mut random = Random::new(thread as u64);
        for _ in 0..scale::rounds(3_000) {
            let account = ledger.open();
            assert!(
                ids.lock().expect("no panic").insert(account.id()),
                "{} is used twice",
                account.id()
            );
            assert_eq!(account.snapshot(), [0, 0], "charges of the previous account are left");
            let rounds = random.below(150) as i64;
            (0..rounds).for_each(|_| account.charge(1, 1));
            let clone = account.clone();
            drop(account);
            assert_eq!(clone.sum(1), rounds);
        }
    };
    together_while(4, work, || {
        for _ in 0..scale::rounds(50) {
            ledger.for_each(|_, [first, _]| assert_eq!(first, 0));
        }
    });
    assert!(ledger.is_empty());
    ledger.for_each(|id, _| panic!("{id} is closed"));
}

// Eight busy accounts stay in the lane while many others are charged once.
fn busy_accounts_stay_cached() {
    if thiscpu::tier() == Ok(Tier::Atomic) {
        return;
    }
    pin::pin(0);
    let ledger: Ledger<4> = Ledger::new();
    let busy = open(&ledger, 8);
    for _ in 0..1_000 {
        busy.iter().for_each(|account| account.charge(3, 1));
    }
    let rare = open(&ledger, 20_000);
    let before = __test_support::misses(&ledger);
    for account in &rare {
        account.charge(0, 1);
        busy.iter().for_each(|account| account.charge(3, 1));
    }
    let misses = __test_support::misses(&ledger) - before;
    assert!(misses < 20_000 + 200, "{misses} misses");
    assert!(busy.iter().all(|account| account.sum(3) == 21_000));
    assert!(rare.iter().all(|account| account.sum(0) == 1));
}

// Amounts as large as the 62-bit counters are charged during listings: all sums are right.
fn counters_wrap_at_62_bits() {
    let ledger: Ledger<2> = Ledger::new_signed();
    let accounts = open(&ledger, 8);
    let wrapped = |value: i64| (value << 2) >> 2;
    let oracle: Vec<AtomicI64> = (0..8).map(|_| AtomicI64::new(0)).collect();
    let work = |thread: usize| {
        let mut random = Random::new(thread as u64);
        for round in 0..scale::rounds(20_000) {
            let account = random.below(8) as usize;
            let n = [1, -1, i64::MAX, i64::MIN, 1 << 61, -1 << 60][random.below(6) as usize];
            accounts[account].charge((round % 2) as usize, n);
            if round % 2 == 0 {
                oracle[account].fetch_add(n, SeqCst);
            }
        }
    };
    together_while(2, work, || {
        let is_small = |value: &i64| wrapped(*value) == *value;
        for _ in 0..scale::rounds(300) {
            ledger.for_each(|_, counters| assert!(counters.iter().all(is_small), "{counters:?}"));
        }
    });
    let expected: Vec<i64> = oracle.iter().map(|value| wrapped(value.load(SeqCst))).collect();
    let sums = || accounts.iter().map(|account| account.sum(0)).collect::<Vec<_>>();
    assert_eq!(sums(), expected);
    let mut reported = Vec::new();
    ledger.for_each(|_, [first, _]| reported.push(first));
    assert_eq!(reported, expected);
    ledger.sync();
    assert_eq!(sums(), expected);
}

fn accounts_outlive_ledger() {
    for round in 0..scale::rounds(500) {
        let ledger: Ledger<8> = Ledger::new();
        let accounts = open(&ledger, 3);
        for account in &accounts {
            (0..20).for_each(|_| account.charge(7, round as i64));
        }
        drop(ledger);
        assert!(accounts.iter().all(|account| account.sum(7) == 20 * round as i64));
    }
}
