//! Ledgers in every order of steps, with weak memory.
//!
//! In some tests a token moves while another thread reads: from CPU to CPU (two charges), or from
//! account to account. The reader must see it at most once. In the others a thread makes two
//! charges in turn: a reader that sees the second must see the first.

use std::sync::LazyLock;

use thiscpu::model::{self, Machine};
use thiscpu::{Account, Ledger, Tier};

use crate::run::{CPUS, in_every_order_on};

/// Starts afresh in each execution, as every static does, and always has one address.
static LEDGER: LazyLock<Ledger<2>> = LazyLock::new(Ledger::new_signed);

/// Runs `test` in all orders with up to `preemptions` preemptions, with and without sections.
fn in_every_order(preemptions: usize, test: impl Fn() + Copy + Send + Sync + 'static) {
    let machines = [Tier::RseqCid, Tier::Atomic].map(|tier| Machine::new(CPUS, tier));
    in_every_order_on(machines, preemptions, test);
}

/// Opens accounts that stay open until the execution ends.
fn open<const ACCOUNTS: usize>() -> [&'static Account<2>; ACCOUNTS] {
    [(); ACCOUNTS].map(|()| &*Box::leak(Box::new(LEDGER.open())))
}

/// Puts accounts into the lanes of `cpus`; their counters stay 0.
fn cache_in_lanes(accounts: &[&Account<2>], cpus: impl IntoIterator<Item = usize>) {
    for cpu in cpus {
        model::run_on(cpu);
        // The first charge misses and occupies a way.
        accounts.iter().for_each(|account| (0..3).for_each(|n| account.charge(n % 2, 0)));
    }
    model::run_on(0);
}

/// Returns the counters of `accounts` at one instant.
fn for_each<const ACCOUNTS: usize>(accounts: [&Account<2>; ACCOUNTS]) -> [[i64; 2]; ACCOUNTS] {
    let mut seen = Vec::new();
    LEDGER.for_each(|id, counters| seen.push((id, counters)));
    accounts.map(|account| {
        let mine = |(id, _): &&(_, _)| *id == account.id();
        seen.iter().find(mine).expect("the account is open").1
    })
}

/// Starts a thread that carries a token from CPU 1 to CPU 2.
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

/// Calls `read` while a token moves; `cpus` have lanes with the account.
fn while_token_moves(
    preemptions: usize,
    cpus: &'static [usize],
    read: fn(&'static Account<2>) -> [i64; 2],
) {
    in_every_order(preemptions, move || {
        let [account] = open();
        cache_in_lanes(&[account], cpus.iter().copied());
        let carrier = carrier(account);
        assert_token(read(account)[0]);
        carrier.join();
        assert_eq!(read(account), [0, 0]);
    });
}

#[test]
fn sum_sees_moving_token_once() {
    while_token_moves(3, &[1, 2], |account| [account.sum(0), 0]);
}

#[test]
fn snapshot_sees_moving_token_once() {
    while_token_moves(3, &[1, 2], |account| account.snapshot());
}

#[test]
fn for_each_sees_moving_token_once() {
    while_token_moves(2, &[1, 2], |account| for_each([account])[0]);
}

// A late charge completes the account's capture before the listing thread does.
#[test]
fn for_each_sees_moving_token_once_with_late_charge() {
    in_every_order(1, || {
        let [account] = open();
        cache_in_lanes(&[account], [1, 2]);
        let carrier = carrier(account);
        let other = model::spawn(0, move || account.charge_uncached(1, 1));
        let [[token, late]] = for_each([account]);
        assert_token(token);
        assert!(late == 0 || late == 1, "{late}");
        carrier.join();
        other.join();
        assert_eq!(for_each([account]), [[0, 1]]);
    });
}

// The account enters a lane while it is summed.
#[test]
fn sum_is_exact_when_account_enters_lane() {
    while_token_moves(3, &[1], |account| [account.sum(0), 0]);
}

#[test]
fn for_each_sees_transferred_token_once() {
    in_every_order(3, || {
        let [from, to] = open();
        from.charge(0, 1);
        let mover = model::spawn(1, move || from.transfer_to(to, 0, 1));
        let [[left, _], [moved, _]] = for_each([from, to]);
        assert!(left >= 0 && moved >= 0 && left + moved == 1, "{left} left and {moved} moved");
        mover.join();
        assert_eq!(for_each([from, to]), [[0, 0], [1, 0]]);
    });
}

// Two snapshots follow the token: they may see it twice, but never miss it.
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

// A listing never has the second charge without the first, whichever account it captures first.
#[test]
fn for_each_respects_charge_order() {
    in_every_order(2, || {
        let accounts @ [first, second] = open();
        let charger = model::spawn(1, move || {
            second.charge_uncached(0, 1);
            first.charge_uncached(0, 1);
            second.charge_uncached(1, 1);
        });
        let seen = for_each(accounts);
        let [[two, _], [one, three]] = seen;
        assert!(one >= two && two >= three, "{seen:?}");
        charger.join();
        assert_eq!(for_each(accounts), [[1, 0], [1, 1]]);
    });
}

// A capture leaves out charges after the instant.
//
// The test runs in the atomic tier only, because it needs three threads and no lanes.
#[test]
fn for_each_respects_charge_order_of_two_threads() {
    in_every_order_on([Machine::new(CPUS, Tier::Atomic)], 2, || {
        let accounts @ [first, second] = open();
        let charger = model::spawn(1, move || {
            second.charge_uncached(0, 1);
            first.charge_uncached(0, 1);
        });
        let other = model::spawn(2, move || first.charge_uncached(0, 2));
        let [[late, _], [early, _]] = for_each(accounts);
        assert!(early >= late % 2, "{early}, then {late}");
        charger.join();
        other.join();
    });
}

// As above, with both accounts in a lane.
#[test]
fn for_each_respects_charge_order_in_lane() {
    in_every_order(2, || {
        let accounts @ [first, second] = open();
        cache_in_lanes(&accounts, [1]);
        let charger = model::spawn(1, move || {
            second.charge(0, 1);
            first.charge(0, 1);
        });
        let seen = for_each(accounts);
        let [[two, _], [one, _]] = seen;
        assert!(one >= two, "{seen:?}");
        charger.join();
        assert_eq!(for_each(accounts), [[1, 0], [1, 0]]);
    });
}

// An account that is captured after a charge missed gets no way: its next charge would be hidden.
#[test]
fn for_each_respects_charge_order_when_account_enters_lane() {
    in_every_order(2, || {
        let [first, second, other] = open();
        let accounts = [first, second];
        cache_in_lanes(&[second, other], [1]);
        model::run_on(1);
        // Leaves a free way that the checker knows.
        other.charge(0, 1);
        LEDGER.sync();
        let lister = model::spawn(0, move || for_each(accounts));
        first.charge(0, 1);
        first.charge(1, 1);
        second.charge(0, 1);
        let seen = lister.join();
        let [[one, two], [three, _]] = seen;
        assert!(one >= two && two >= three, "{seen:?}");
        assert_eq!(for_each(accounts), [[1, 1], [1, 0]]);
    });
}

// Two counters of one account are charged in turn, in both directions.
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

// A charge that a snapshot delays meets the listing after it, and is captured once.
#[test]
fn for_each_counts_charge_delayed_by_snapshot_once() {
    in_every_order(3, || {
        let [account] = open();
        let charger = model::spawn(1, move || account.charge_uncached(0, 1));
        let before = account.snapshot()[0];
        let [[after, _]] = for_each([account]);
        assert!(0 <= before && before <= after && after <= 1, "{before}, then {after}");
        charger.join();
        assert_eq!(account.sum(0), 1);
    });
}

// A charge that begins before a snapshot cannot tell whether the listing includes it.
#[test]
fn for_each_respects_charge_order_after_snapshot() {
    in_every_order(2, || {
        let accounts @ [first, second] = open();
        let charger = model::spawn(1, move || {
            first.charge_uncached(0, 1);
            second.charge_uncached(0, 1);
        });
        first.snapshot();
        let seen = for_each(accounts);
        let [[one, _], [two, _]] = seen;
        assert!(one >= two, "{seen:?}");
        charger.join();
        assert_eq!(for_each(accounts), [[1, 0], [1, 0]]);
    });
}

// An account is closed, with a charge in a lane, while the instant of a listing passes.
#[test]
fn for_each_sees_all_charges_of_account_that_closes() {
    in_every_order(2, || {
        let account = LEDGER.open();
        cache_in_lanes(&[&account], [1]);
        model::run_on(1);
        account.charge(0, 1);
        model::run_on(0);
        let closer = model::spawn(1, move || drop(account));
        let mut seen = Vec::new();
        LEDGER.for_each(|_, counters| seen.push(counters));
        closer.join();
        assert!(seen.is_empty() || seen == [[1, 0]], "{seen:?}");
    });
}

/// Opens an account in the lane of CPU 1, which holds a charge of 1.
fn open_with_one_in_a_lane() -> &'static Account<2> {
    let [account] = open();
    cache_in_lanes(&[account], [1]);
    model::run_on(1);
    account.charge(0, 1);
    model::run_on(0);
    account
}

// A sync flushes the account's way while the lane charges it.
#[test]
fn sync_is_exact_during_charges() {
    in_every_order(3, || {
        let account = open_with_one_in_a_lane();
        // The first charge may find the way free, and occupies it for the second.
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

/// Fills the lane of CPU 1, so the next charge of the last account evicts the first.
///
/// The first account's way holds a charge of 1.
fn fill_lane(accounts: [&Account<2>; 5]) {
    cache_in_lanes(&accounts[..4], [1]);
    model::run_on(1);
    accounts[0].charge(0, 1);
    // This miss starts the idle check; no account is idle yet.
    accounts[4].charge(0, 0);
    model::run_on(0);
}

#[test]
fn sum_is_exact_during_eviction() {
    in_every_order(3, || {
        let accounts @ [account, .., other]: [_; 5] = open();
        fill_lane(accounts);
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
        fill_lane(accounts);
        let charger = model::spawn(1, move || account.charge(0, 1));
        model::run_on(1);
        other.charge(0, 1);
        charger.join();
        assert_eq!([account, other].map(|account| account.sum(0)), [2, 1]);
    });
}

// The flushed way goes to the account that evicts, and not to one that looks for a free way.
#[test]
fn eviction_is_exact_while_another_account_is_charged() {
    in_every_order(2, || {
        let [another] = open();
        let accounts @ [account, .., other]: [_; 5] = open();
        fill_lane(accounts);
        let charger = model::spawn(1, move || (0..2).for_each(|_| another.charge(0, 1)));
        model::run_on(1);
        other.charge(0, 1);
        charger.join();
        assert_eq!([account, other, another].map(|account| account.sum(0)), [1, 1, 2]);
    });
}

// The flushed way goes to another account, with counters of 0.
#[test]
fn sync_is_exact_when_way_changes_owner() {
    in_every_order(2, || {
        let accounts @ [account, .., other]: [_; 5] = open();
        fill_lane(accounts);
        let charger = model::spawn(1, move || (0..2).for_each(|_| other.charge(0, 1)));
        LEDGER.sync();
        charger.join();
        assert_eq!([account, other].map(|account| account.sum(0)), [1, 2]);
    });
}
