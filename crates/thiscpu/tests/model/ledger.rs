//! Ledgers under long random runs: every history is linearizable.

use std::collections::{BTreeMap, HashSet};
use std::sync::LazyLock;

use thiscpu::model::{self, Machine};
use thiscpu::{Account, AccountId, Ledger, Tier};

use crate::history::{Call, Specification};
use crate::run::{CPUS, assert_linearizable, in_random_orders_on, leave_lanes_if, record};

const THREADS: usize = 4;

/// Starts afresh in each execution, as every static does.
static LEDGER: LazyLock<Ledger<2>> = LazyLock::new(Ledger::new_signed);

type Counters = [i64; 2];

#[derive(Clone, Debug)]
enum Op {
    Charge(AccountId, usize, i64),
    Transfer {
        from: AccountId,
        to: AccountId,
        index: usize,
        n: i64,
    },
    Sum(AccountId, usize, i64),
    Snapshot(AccountId, Counters),
    ForEach(BTreeMap<AccountId, Counters>),
    Sync,
    Open(AccountId),
    /// One handle is dropped.
    Drop(AccountId),
}

/// The open accounts, with the number of handles and the counters of each.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
struct State(BTreeMap<AccountId, (usize, Counters)>);

impl State {
    /// Returns the state with `accounts` open, each with `handles` handles and counters of 0.
    fn open(accounts: &[AccountId], handles: usize) -> State {
        State(accounts.iter().map(|&id| (id, (handles, [0, 0]))).collect())
    }

    fn counters(&self, id: AccountId) -> Option<Counters> {
        self.0.get(&id).map(|&(_, counters)| counters)
    }

    fn charged(&self, id: AccountId, index: usize, n: i64) -> Option<State> {
        let mut after = self.clone();
        after.0.get_mut(&id)?.1[index] += n;
        Some(after)
    }
}

impl Specification for State {
    type Op = Op;

    fn after(&self, op: &Op) -> Option<State> {
        let same = |holds: bool| holds.then(|| self.clone());
        match *op {
            Op::Charge(id, index, n) => self.charged(id, index, n),
            Op::Transfer { from, to, index, n } => {
                self.charged(from, index, -n)?.charged(to, index, n)
            }
            Op::Sum(id, index, sum) => same(self.counters(id)?[index] == sum),
            Op::Snapshot(id, counters) => same(self.counters(id)? == counters),
            Op::ForEach(ref seen) => same(
                seen.iter()
                    .map(|(&id, &n)| (id, n))
                    .eq(self.0.keys().map(|&id| (id, self.0[&id].1))),
            ),
            Op::Sync => same(true),
            Op::Open(id) if self.0.contains_key(&id) => None,
            Op::Open(id) => {
                let mut after = self.clone();
                after.0.insert(id, (1, [0, 0]));
                Some(after)
            }
            Op::Drop(id) => {
                let mut after = self.clone();
                let (handles, _) = after.0.get_mut(&id)?;
                *handles -= 1;
                if *handles == 0 {
                    after.0.remove(&id);
                }
                Some(after)
            }
        }
    }
}

fn charge(account: &Account<2>, index: usize, n: i64) -> Call<Op> {
    record(|| {
        account.charge(index, n);
        Op::Charge(account.id(), index, n)
    })
}

fn sum(account: &Account<2>, index: usize) -> Call<Op> {
    record(|| Op::Sum(account.id(), index, account.sum(index)))
}

fn for_each() -> Call<Op> {
    record(|| {
        let mut seen = BTreeMap::new();
        LEDGER.for_each(|id, counters| {
            assert!(seen.insert(id, counters).is_none(), "{id} is listed twice");
        });
        Op::ForEach(seen)
    })
}

/// Makes a random call on random accounts.
fn any_op(accounts: &[Account<2>]) -> Call<Op> {
    let some = || &accounts[model::choose(accounts.len())];
    // All but the last fit into a lane beside other charges.
    let n = [1, -1, 20, -3, 700, 5000][model::choose(6)];
    let (account, index) = (some(), model::choose(2));
    match model::choose(16) {
        0..=6 => charge(account, index, n),
        7 => record(|| {
            account.charge_uncached(index, n);
            Op::Charge(account.id(), index, n)
        }),
        8 | 9 => sum(account, index),
        10 | 11 => record(|| Op::Snapshot(account.id(), account.snapshot())),
        12 => {
            let to = some();
            record(|| {
                account.transfer_to(to, index, n);
                Op::Transfer { from: account.id(), to: to.id(), index, n }
            })
        }
        13 | 14 => for_each(),
        _ => record(|| {
            LEDGER.sync();
            Op::Sync
        }),
    }
}

fn open(accounts: usize) -> Vec<Account<2>> {
    (0..accounts).map(|_| LEDGER.open()).collect()
}

/// Fills the lanes with accounts that count as idle, so a miss or two evicts one.
fn fill_lanes(accounts: &[Account<2>]) {
    for cpu in 0..CPUS {
        model::run_on(cpu);
        for _ in 0..2 {
            accounts.iter().for_each(|account| account.charge(0, 0));
        }
    }
    model::run_on(0);
}

/// Starts thread `number`; thread 3 has no lane.
fn spawn<R: Send + 'static>(
    number: usize,
    work: impl FnOnce() -> R + Send + 'static,
) -> model::Thread<R> {
    model::spawn(number % CPUS, move || {
        leave_lanes_if(number == 3);
        work()
    })
}

/// Joins the threads and asserts that all calls together are linearizable.
fn check_history(
    start: State,
    threads: Vec<model::Thread<Vec<Call<Op>>>>,
    mut calls: Vec<Call<Op>>,
    end: Vec<Account<2>>,
) {
    calls.extend(threads.into_iter().flat_map(model::Thread::join));
    calls.push(for_each());
    // After a sync no lane holds charges, so `read` is exact.
    LEDGER.sync();
    for account in &end {
        calls.extend(
            [0, 1].map(|index| record(|| Op::Sum(account.id(), index, account.read(index)))),
        );
    }
    assert_linearizable(start, calls);
    // Closing these accounts is not checked.
    end.into_iter().for_each(std::mem::forget);
}

/// Runs `test` with lanes of dense and of sparse indices, and in the atomic tier.
fn in_each_tier(executions: usize, test: fn()) {
    let dense = Machine::new(CPUS, Tier::RseqCid);
    let sparse = Machine { indices: (5, 7), ..dense };
    let machines = [dense, sparse, Machine { tier: Tier::Atomic, ..dense }];
    in_random_orders_on(&machines, executions, move |_| test());
}

// There are more accounts than ways in a lane, so they evict each other.
#[test]
fn open_accounts_are_linearizable() {
    in_each_tier(12_000, || {
        let accounts = open(6);
        if model::choose(4) > 0 {
            fill_lanes(&accounts);
        }
        let ids: Vec<_> = accounts.iter().map(Account::id).collect();
        let thread = |number| {
            let accounts = accounts.clone();
            spawn(number, move || {
                let calls = (0..2 + model::choose(5)).map(|_| any_op(&accounts)).collect();
                accounts.into_iter().for_each(std::mem::forget);
                calls
            })
        };
        let threads = (0..THREADS).map(thread).collect();
        check_history(State::open(&ids, 1), threads, Vec::new(), accounts);
    });
}

// Accounts are closed while lanes hold charges of them, and new accounts take their records.
#[test]
fn opened_and_closed_accounts_are_linearizable() {
    in_each_tier(12_000, || {
        // All threads have handles of these; any thread may drop the last one.
        let shared = open(2);
        let stays = open(1);
        fill_lanes(&shared);
        let ids: Vec<_> = shared.iter().map(Account::id).collect();
        let mut start = State::open(&ids, THREADS + 1);
        start.0.insert(stays[0].id(), (1, [0, 0]));
        let thread = |number| {
            let mut mine = shared.clone();
            spawn(number, move || open_and_close(&mut mine))
        };
        let threads = (0..THREADS).map(thread).collect();
        check_history(start, threads, shared.into_iter().map(drop_handle).collect(), stays);
    });
}

fn open_and_close(mine: &mut Vec<Account<2>>) -> Vec<Call<Op>> {
    let mut calls = Vec::new();
    for _ in 0..2 + model::choose(5) {
        calls.push(match model::choose(8) {
            0 | 1 => record(|| {
                mine.push(LEDGER.open());
                Op::Open(mine[mine.len() - 1].id())
            }),
            2 if !mine.is_empty() => drop_one(mine),
            3 | 4 if !mine.is_empty() => any_op(mine),
            5 => for_each(),
            // The newest account enters a lane.
            _ if !mine.is_empty() => charge(&mine[mine.len() - 1], model::choose(2), 3),
            _ => for_each(),
        });
    }
    while !mine.is_empty() {
        calls.push(drop_one(mine));
    }
    calls
}

fn drop_one(mine: &mut Vec<Account<2>>) -> Call<Op> {
    drop_handle(mine.swap_remove(model::choose(mine.len())))
}

fn drop_handle(account: Account<2>) -> Call<Op> {
    let id = account.id();
    record(|| {
        drop(account);
        Op::Drop(id)
    })
}

// A new account is 0 and has a new id, whatever lanes still hold of its record's last owner.
#[test]
fn reused_records_start_at_zero() {
    in_each_tier(2_400, || {
        let [kept, last] = [LEDGER.open(), LEDGER.open()];
        let thread = |number| {
            let kept = kept.clone();
            spawn(number, move || {
                let mut ids = Vec::new();
                for _ in 0..6 {
                    let account = LEDGER.open();
                    // A message must not read the account: a panic hook that yields to other
                    // threads of the model is never left, and the process hangs at its end.
                    let id = account.id();
                    assert_eq!(account.snapshot(), [0, 0], "{id} is new");
                    account.charge(0, 1);
                    account.charge(0, 1);
                    kept.charge(1, 1);
                    model::run_on(model::choose(CPUS));
                    account.charge(0, 1);
                    kept.charge(1, 1);
                    assert_eq!(account.sum(0), 3);
                    ids.push(id);
                }
                std::mem::forget(kept);
                ids
            })
        };
        let threads: Vec<_> = (0..THREADS).map(thread).collect();
        let ids: Vec<_> = threads.into_iter().flat_map(model::Thread::join).collect();
        let others = [kept.id(), last.id()];
        let distinct_ids: HashSet<_> = ids.iter().chain(&others).collect();
        assert_eq!(distinct_ids.len(), THREADS * 6 + 2);
        assert_eq!(kept.snapshot(), [0, 12 * THREADS as i64]);
        LEDGER.sync();
        assert_eq!([kept.read(1), last.read(0)], [12 * THREADS as i64, 0]);
        assert_eq!(LEDGER.len(), 2);
        [kept, last].into_iter().for_each(std::mem::forget);
    });
}
