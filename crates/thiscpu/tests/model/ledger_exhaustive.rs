//! Ledgers in every order of steps, with weak memory.
//!
//! A token is passed on while somebody looks: from CPU to CPU, where it is charged twice, or from account to
//! account. Whoever looks sees it once or not at all. Then two charges are made one after the other: whoever
//! sees the second sees the first.

use std::sync::LazyLock;

use thiscpu::model::{self, Machine, exhaustive};
use thiscpu::{Account, Ledger, Tier};

/// Starts afresh in each execution, as statics do, and has the same address in each.
static LEDGER: LazyLock<Ledger<2>> = LazyLock::new(Ledger::new_signed);

/// Runs `test` in every order with up to `preemptions` preemptions, in each kind of tier.
fn in_every_order(preemptions: usize, test: fn()) {
    for tier in [Tier::RseqCid, Tier::Atomic] {
        let orders = exhaustive(Machine::new(3, tier), preemptions, test);
        println!("{tier}: {orders} orders");
    }
}

/// Opens accounts that stay open until the execution ends, and are 0.
fn open<const ACCOUNTS: usize>() -> [&'static Account<2>; ACCOUNTS] {
    [(); ACCOUNTS].map(|()| &*Box::leak(Box::new(LEDGER.open())))
}

/// Puts accounts into the lanes of `cpus`; they stay 0.
fn cache(accounts: &[&Account<2>], cpus: impl IntoIterator<Item = usize>) {
    for cpu in cpus {
        model::run_on(cpu);
        // The first charge finds no way, and takes one.
        accounts.iter().for_each(|account| (0..3).for_each(|n| account.charge(n % 2, 0)));
    }
    model::run_on(0);
}

/// The counters of some accounts at one instant.
fn report<const ACCOUNTS: usize>(accounts: [&Account<2>; ACCOUNTS]) -> [[i64; 2]; ACCOUNTS] {
    let mut seen = Vec::new();
    LEDGER.for_each(|id, counters| seen.push((id, counters)));
    accounts.map(|account| {
        let mine = |(id, _): &&(_, _)| *id == account.id();
        seen.iter().find(mine).expect("the account is open").1
    })
}

/// A thread that takes a token from CPU 1 to CPU 2.
fn carrier(account: &'static Account<2>) -> model::Thread<()> {
    model::spawn(1, move || {
        account.charge(0, 1);
        model::run_on(2);
        account.charge(0, -1);
    })
}

fn assert_token(seen: i64) {
    assert!(seen == 0 || seen == 1, "the token was seen {seen} times");
}

#[test]
fn sum_sees_moving_token_once() {
    in_every_order(3, || {
        let [account] = open();
        cache(&[account], [1, 2]);
        let carrier = carrier(account);
        assert_token(account.sum(0));
        carrier.join();
        assert_eq!(account.sum(0), 0);
    });
}

#[test]
fn snapshot_sees_moving_token_once() {
    in_every_order(3, || {
        let [account] = open();
        cache(&[account], [1, 2]);
        let carrier = carrier(account);
        assert_token(account.snapshot()[0]);
        carrier.join();
        assert_eq!(account.snapshot(), [0, 0]);
    });
}

#[test]
fn for_each_sees_moving_token_once() {
    in_every_order(2, || {
        let [account] = open();
        cache(&[account], [1, 2]);
        let carrier = carrier(account);
        assert_token(report([account])[0][0]);
        carrier.join();
        assert_eq!(report([account]), [[0, 0]]);
    });
}

/// Whoever comes late completes the account's note, before the report's thread does.
#[test]
fn for_each_sees_moving_token_once_with_late_charge() {
    in_every_order(1, || {
        let [account] = open();
        cache(&[account], [1, 2]);
        let carrier = carrier(account);
        let other = model::spawn(0, move || account.charge_uncached(1, 1));
        let [[token, late]] = report([account]);
        assert_token(token);
        assert!(late == 0 || late == 1, "{late}");
        carrier.join();
        other.join();
        assert_eq!(report([account]), [[0, 1]]);
    });
}

/// The account gets into the lane while it is summed up.
#[test]
fn sum_is_exact_when_account_enters_lane() {
    in_every_order(3, || {
        let [account] = open();
        cache(&[account], [1]);
        let carrier = carrier(account);
        assert_token(account.sum(0));
        carrier.join();
        assert_eq!(account.sum(0), 0);
    });
}

#[test]
fn for_each_sees_transferred_token_once() {
    in_every_order(3, || {
        let [from, to] = open();
        from.charge(0, 1);
        let mover = model::spawn(1, move || from.transfer_to(to, 0, 1));
        let [[there, _], [here, _]] = report([from, to]);
        assert!(there >= 0 && here >= 0 && there + here == 1, "{there} there and {here} here");
        mover.join();
        assert_eq!(report([from, to]), [[0, 0], [1, 0]]);
    });
}

/// Snapshots one after the other, with the token's way: it may be seen twice, but not be missed.
#[test]
fn snapshots_never_miss_transferred_token() {
    in_every_order(3, || {
        let [from, to] = open();
        from.charge(0, 1);
        let mover = model::spawn(1, move || from.transfer_to(to, 0, 1));
        let seen = [from.snapshot()[0], to.snapshot()[0]];
        assert!([[1, 0], [0, 1], [1, 1]].contains(&seen), "{seen:?}");
        mover.join();
        assert_eq!([from, to].map(Account::snapshot), [[0, 0], [1, 0]]);
    });
}

/// The second charge is not in a report without the first, whichever account is noted first.
#[test]
fn for_each_respects_charge_order() {
    in_every_order(2, || {
        let accounts @ [first, second] = open();
        let charger = model::spawn(1, move || {
            second.charge_uncached(0, 1);
            first.charge_uncached(0, 1);
            second.charge_uncached(1, 1);
        });
        let seen = report(accounts);
        let [[two, _], [one, three]] = seen;
        assert!(one >= two && two >= three, "{seen:?}");
        charger.join();
        assert_eq!(report(accounts), [[1, 0], [1, 1]]);
    });
}

/// Who writes down what an account has come to does not write down what was charged after the instant. In one tier: there are three
/// threads, and no lanes.
#[test]
fn for_each_respects_charge_order_of_two_threads() {
    let orders = exhaustive(Machine::new(3, Tier::Atomic), 2, || {
        let accounts @ [first, second] = open();
        let charger = model::spawn(1, move || {
            second.charge_uncached(0, 1);
            first.charge_uncached(0, 1);
        });
        let other = model::spawn(2, move || first.charge_uncached(0, 2));
        let [[late, _], [early, _]] = report(accounts);
        assert!(early >= late % 2, "{early}, then {late}");
        charger.join();
        other.join();
    });
    println!("{orders} orders");
}

/// The same in lanes.
#[test]
fn for_each_respects_charge_order_in_lane() {
    in_every_order(2, || {
        let accounts @ [first, second] = open();
        cache(&accounts, [1]);
        let charger = model::spawn(1, move || {
            second.charge(0, 1);
            first.charge(0, 1);
        });
        let seen = report(accounts);
        let [[two, _], [one, _]] = seen;
        assert!(one >= two, "{seen:?}");
        charger.join();
        assert_eq!(report(accounts), [[1, 0], [1, 0]]);
    });
}

/// An account that is noted after a charge has missed it gets no way, where the next charge would be out of sight.
#[test]
fn for_each_respects_charge_order_when_account_enters_lane() {
    in_every_order(2, || {
        let [first, second, other] = open();
        let accounts = [first, second];
        cache(&[second, other], [1]);
        model::run_on(1);
        // Leaves a way that is known to the checker.
        other.charge(0, 1);
        LEDGER.sync();
        let reporter = model::spawn(0, move || report(accounts));
        first.charge(0, 1);
        first.charge(1, 1);
        second.charge(0, 1);
        let seen = reporter.join();
        let [[one, two], [three, _]] = seen;
        assert!(one >= two && two >= three, "{seen:?}");
        assert_eq!(report(accounts), [[1, 1], [1, 0]]);
    });
}

/// Of two counters of one account, in both directions.
#[test]
fn snapshot_respects_charge_order() {
    in_every_order(3, || {
        let [account] = open();
        let charger = model::spawn(1, move || {
            account.charge_uncached(0, 1);
            account.charge_uncached(1, 1);
            account.charge_uncached(0, 1);
        });
        let seen = account.snapshot();
        assert!([[0, 0], [1, 0], [1, 1], [2, 1]].contains(&seen), "{seen:?}");
        charger.join();
        assert_eq!(account.snapshot(), [2, 1]);
    });
}

/// A charge that a snapshot has held up finds the report that comes after it, and is written down once.
#[test]
fn for_each_counts_charge_delayed_by_snapshot_once() {
    in_every_order(3, || {
        let [account] = open();
        let charger = model::spawn(1, move || account.charge_uncached(0, 1));
        let before = account.snapshot()[0];
        let [[after, _]] = report([account]);
        assert!(0 <= before && before <= after && after <= 1, "{before}, then {after}");
        charger.join();
        assert_eq!(account.sum(0), 1);
    });
}

/// A charge that has begun before a snapshot, and cannot tell whether the report has it.
#[test]
fn for_each_respects_charge_order_after_snapshot() {
    in_every_order(2, || {
        let accounts @ [first, second] = open();
        let charger = model::spawn(1, move || {
            first.charge_uncached(0, 1);
            second.charge_uncached(0, 1);
        });
        first.snapshot();
        let seen = report(accounts);
        let [[one, _], [two, _]] = seen;
        assert!(one >= two, "{seen:?}");
        charger.join();
        assert_eq!(report(accounts), [[1, 0], [1, 0]]);
    });
}

/// An account that is in the lane of CPU 1, which holds 1 of it.
fn open_with_one_in_a_lane() -> &'static Account<2> {
    let [account] = open();
    cache(&[account], [1]);
    model::run_on(1);
    account.charge(0, 1);
    model::run_on(0);
    account
}

/// What a lane holds is added to the account while it is charged there.
#[test]
fn sync_is_exact_during_charges() {
    in_every_order(3, || {
        let account = open_with_one_in_a_lane();
        // The first may find the way free, and takes it for the second.
        let charger = model::spawn(1, move || (0..2).for_each(|_| account.charge(0, 1)));
        LEDGER.sync();
        charger.join();
        assert_eq!(account.sum(0), 3);
    });
}

#[test]
fn sum_is_exact_during_sync() {
    in_every_order(3, || {
        let account = open_with_one_in_a_lane();
        let syncer = model::spawn(2, || LEDGER.sync());
        assert_eq!(account.sum(0), 1);
        syncer.join();
        assert_eq!(account.read(0), 1);
    });
}

/// Fills the lane of CPU 1 with accounts of which the first holds 1; the next charge of the last evicts it.
fn fill(accounts: [&Account<2>; 5]) {
    cache(&accounts[..4], [1]);
    model::run_on(1);
    accounts[0].charge(0, 1);
    // Asks who is idle, and finds that nobody has been.
    accounts[4].charge(0, 0);
    model::run_on(0);
}

#[test]
fn sum_is_exact_during_eviction() {
    in_every_order(3, || {
        let accounts @ [account, .., other]: [_; 5] = open();
        fill(accounts);
        let evicter = model::spawn(1, move || other.charge(0, 1));
        assert_eq!(account.sum(0), 1);
        evicter.join();
        assert_eq!([account, other].map(|account| account.sum(0)), [1, 1]);
    });
}

#[test]
fn charge_is_exact_during_eviction() {
    in_every_order(3, || {
        let accounts @ [account, .., other]: [_; 5] = open();
        fill(accounts);
        let charger = model::spawn(1, move || account.charge(0, 1));
        model::run_on(1);
        other.charge(0, 1);
        charger.join();
        assert_eq!([account, other].map(|account| account.sum(0)), [2, 1]);
    });
}

/// The way that is free then is another's, with counters that are 0.
#[test]
fn sync_is_exact_when_way_changes_owner() {
    in_every_order(2, || {
        let accounts @ [account, .., other]: [_; 5] = open();
        fill(accounts);
        let charger = model::spawn(1, move || (0..2).for_each(|_| other.charge(0, 1)));
        LEDGER.sync();
        charger.join();
        assert_eq!([account, other].map(|account| account.sum(0)), [1, 2]);
    });
}
