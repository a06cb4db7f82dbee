//! Handles that are stored and sent: guards of counters, and accounts.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use thiscpu::{Account, Counter, InFlight, Ledger, OwnedInFlight};

use crate::common::{Scenario, TIERS, pin, scale, scenario, together};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(in_flight::guards_count_until_dropped, TIERS),
    scenario!(in_flight::guards_may_be_dropped_on_other_threads, TIERS),
    scenario!(in_flight::accounts_outlive_their_ledger_on_other_threads, TIERS),
];

const fn assert_sendable<T: Send + Sync + 'static>() {}
const _: () = assert_sendable::<InFlight<'static>>();
const _: () = assert_sendable::<OwnedInFlight>();
const _: () = assert_sendable::<Account<2>>();

fn guards_count_until_dropped() {
    let counter = Arc::new(Counter::new());
    let (first, second) = (counter.in_flight(), counter.in_flight_owned());
    assert_eq!((counter.sum(), Arc::strong_count(&counter)), (2, 2));
    assert!(std::ptr::eq(first.counter(), Arc::as_ptr(second.counter())));
    drop(second);
    assert_eq!((counter.sum(), Arc::strong_count(&counter)), (1, 1));
    let task = AssertUnwindSafe(|| {
        let (_guard, _owned) = (counter.in_flight(), counter.in_flight_owned());
        assert_eq!(counter.sum(), 3);
        panic!("a task fails");
    });
    catch_unwind(task).expect_err("the task's panic");
    assert_eq!(counter.sum(), 1);
    drop(first);
    assert_eq!((counter.sum(), Arc::strong_count(&counter)), (0, 1));
}

// Each guard counts up on one CPU and down on another.
fn guards_may_be_dropped_on_other_threads() {
    static COUNTER: Counter = Counter::new();
    let shared = Arc::new(Counter::new());
    let (send, receive) = std::sync::mpsc::channel();
    let receive = std::sync::Mutex::new(receive);
    let rounds = scale::rounds(20_000);
    together(2, |thread| {
        pin::pin(thread % pin::cpus().len());
        for _ in 0..rounds {
            match thread {
                0 => send.send((COUNTER.in_flight(), shared.in_flight_owned())).expect("open"),
                _ => drop(receive.lock().expect("no panic").recv().expect("a guard")),
            }
        }
    });
    assert_eq!((COUNTER.sum(), shared.sum(), Arc::strong_count(&shared)), (0, 0, 1));
}

// A task may own an account; the ledger's handle may be gone before.
fn accounts_outlive_their_ledger_on_other_threads() {
    let ledger: Ledger<2> = Ledger::new();
    let accounts: Vec<Account<2>> = (0..4).map(|_| ledger.open()).collect();
    drop(ledger);
    let work = |account: Account<2>| {
        std::thread::spawn(move || {
            (0..1_000).for_each(|_| account.charge(1, 3));
            account.snapshot()
        })
    };
    let threads: Vec<_> = accounts.into_iter().map(work).collect();
    for thread in threads {
        assert_eq!(thread.join().expect("no panic"), [0, 3_000]);
    }
}
