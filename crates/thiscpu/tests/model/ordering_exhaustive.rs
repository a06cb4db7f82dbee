//! The memory order of calls, in every order of steps, with weak memory.
//!
//! A thread writes [`DATA`] and then makes a call. A thread whose own call shows that the first one
//! came before must read what was written.

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::LazyLock;

use thiscpu::model::{self, Data};
use thiscpu::{Account, Budget, Counter, Counters, Ledger, PerCpu, PerCpuPair, RawCache, sum_all};

use crate::counter_history::take_lanes;
use crate::run::in_every_order;

static DATA: Data = Data::zeroed();

/// Asserts that the calling thread sees the write, if `is_ordered` says that it must.
fn assert_seen(is_ordered: bool) {
    assert!(!is_ordered || DATA.read() == 1, "the write before the call is not visible");
}

/// Starts a thread on `cpu` that writes, and then makes a call.
fn after_write(cpu: usize, call: impl FnOnce() + Send + 'static) -> model::Thread<()> {
    model::spawn(cpu, move || {
        DATA.write(1);
        call();
    })
}

static NEW: Counter = Counter::new();
static COUNTERS: Counters<2> = Counters::new();

#[test]
fn sum_in_shared_mode_sees_what_precedes_add() {
    in_every_order(3, || {
        let adder = after_write(1, || NEW.add(1));
        assert_seen(NEW.sum() == 1);
        adder.join();
    });
}

#[test]
fn take_sees_what_precedes_add() {
    in_every_order(2, || {
        let adder = after_write(1, || NEW.add(1));
        assert_seen(NEW.take() == 1);
        adder.join();
    });
}

/// Tests an add in per-CPU mode, with lanes on the first two CPUs.
fn add_in_lanes(preemptions: usize, prepare: fn(), sum: fn() -> i64) {
    in_every_order(preemptions, move || {
        take_lanes(&COUNTERS, 2);
        let adder = after_write(1, move || {
            prepare();
            COUNTERS.add(0, 1);
        });
        assert_seen(sum() == 1);
        adder.join();
    });
}

#[test]
fn sum_sees_what_precedes_add_to_lane() {
    add_in_lanes(3, || (), || COUNTERS.sum(0));
}

#[test]
fn sum_sees_what_precedes_add_to_shared_lane() {
    add_in_lanes(3, model::leave_lanes, || COUNTERS.sum(0));
}

#[test]
fn sum_all_sees_what_precedes_add_to_lane() {
    add_in_lanes(2, || (), || sum_all(&[&COUNTERS])[0]);
}

// The second sum finds the add in the bank that the first one left.
#[test]
fn second_sum_sees_what_precedes_add() {
    add_in_lanes(
        2,
        || (),
        || {
            COUNTERS.sum(0);
            COUNTERS.sum(0)
        },
    );
}

// The threads may share a flip, or a fence.
#[test]
fn concurrent_sums_see_what_precedes_add() {
    static OTHERS: Counters<2> = Counters::new();
    in_every_order(2, || {
        take_lanes(&COUNTERS, 2);
        take_lanes(&OTHERS, 2);
        let adder = after_write(1, || COUNTERS.add(0, 1));
        let other = model::spawn(2, || OTHERS.sum(0));
        assert_seen(COUNTERS.sum(0) == 1);
        other.join();
        adder.join();
    });
}

#[test]
fn sharing_sum_sees_what_precedes_add() {
    in_every_order(2, || {
        take_lanes(&COUNTERS, 2);
        let adder = after_write(1, || COUNTERS.add(0, 1));
        let other = model::spawn(2, || assert_seen(COUNTERS.sum(0) == 1));
        assert_seen(COUNTERS.sum(0) == 1);
        other.join();
        adder.join();
    });
}

const LIMIT: u64 = 400;
static BUDGET: Budget = Budget::new(LIMIT);
static SMALL: Budget = Budget::new(2);

fn is_acquired(n: u64) -> bool {
    BUDGET.try_acquire(n).is_ok()
}

/// Puts the budget into per-CPU mode, with credit in the lane of CPU 1; one unit is held.
fn one_held_in_percpu_mode() {
    for _ in 0..40 {
        assert!(is_acquired(0));
    }
    model::run_on(1);
    assert!(is_acquired(1));
}

#[test]
fn acquire_in_shared_mode_sees_what_precedes_release() {
    in_every_order(3, || {
        SMALL.try_acquire(2).expect("two units");
        let releaser = after_write(1, || SMALL.release(1));
        assert_seen(SMALL.try_acquire(1).is_ok());
        releaser.join();
    });
}

// Whoever holds all units sees what preceded every release.
#[test]
fn acquire_of_all_sees_what_precedes_each_release() {
    static OTHER_DATA: Data = Data::zeroed();
    in_every_order(2, || {
        SMALL.try_acquire(2).expect("two units");
        let first = after_write(1, || SMALL.release(1));
        let second = model::spawn(2, || {
            OTHER_DATA.write(1);
            SMALL.release(1);
        });
        if SMALL.try_acquire(2).is_ok() {
            assert_eq!((DATA.read(), OTHER_DATA.read()), (1, 1));
        }
        first.join();
        second.join();
    });
}

// The unit is in a lane; a recall brings it to the pool.
#[test]
fn acquire_after_recall_sees_what_precedes_release() {
    in_every_order(3, || {
        one_held_in_percpu_mode();
        model::run_on(0);
        let releaser = after_write(1, || BUDGET.release(1));
        assert_seen(is_acquired(LIMIT));
        releaser.join();
    });
}

// Every other unit is held, so the acquire gets the unit that the release put into the lane.
#[test]
fn acquire_on_same_lane_sees_what_precedes_release() {
    in_every_order(3, || {
        one_held_in_percpu_mode();
        // Takes the pool's units, and then the eighth of them that the lane has borrowed.
        let borrowed = (LIMIT - 1) / 8;
        model::run_on(2);
        assert!(is_acquired(LIMIT - 1 - borrowed));
        model::run_on(1);
        assert!(is_acquired(borrowed));
        let releaser = after_write(1, || BUDGET.release(1));
        assert_seen(is_acquired(1));
        releaser.join();
    });
}

#[test]
fn acquire_from_pool_sees_what_precedes_release_without_lane() {
    in_every_order(3, || {
        one_held_in_percpu_mode();
        model::run_on(0);
        let releaser = after_write(1, || {
            model::leave_lanes();
            BUDGET.release(1);
        });
        model::leave_lanes();
        assert_seen(is_acquired(LIMIT));
        releaser.join();
    });
}

static LEDGER: LazyLock<Ledger<2>> = LazyLock::new(Ledger::new_signed);

/// Opens an account that stays open, in the lanes of the first two CPUs.
fn account() -> &'static Account<2> {
    let account: &Account<2> = Box::leak(Box::new(LEDGER.open()));
    for cpu in [0, 1] {
        model::run_on(cpu);
        (0..3).for_each(|_| account.charge(0, 0));
    }
    model::run_on(0);
    account
}

#[test]
fn account_sum_sees_what_precedes_charge() {
    in_every_order(3, || {
        let account = account();
        let charger = after_write(1, move || account.charge(0, 1));
        assert_seen(account.sum(0) == 1);
        charger.join();
    });
}

#[test]
fn account_sum_sees_what_precedes_uncached_charge() {
    in_every_order(3, || {
        let account = account();
        let charger = after_write(1, move || account.charge_uncached(0, 1));
        assert_seen(account.sum(0) == 1);
        charger.join();
    });
}

#[test]
fn account_snapshot_sees_what_precedes_charge() {
    in_every_order(2, || {
        let account = account();
        let charger = after_write(1, move || account.charge(1, 1));
        assert_seen(account.snapshot()[1] == 1);
        charger.join();
    });
}

#[test]
fn for_each_sees_what_precedes_charge() {
    in_every_order(2, || {
        let account = account();
        let charger = after_write(1, move || account.charge(1, 1));
        let mut seen = 0;
        LEDGER.for_each(|_, counters| seen = counters[1]);
        assert_seen(seen == 1);
        charger.join();
    });
}

/// Tests two calls on one copy of a per-CPU variable: on one CPU, and in the shared lane.
fn on_one_copy<V: Sync + 'static>(make: fn() -> V, first: fn(&V), shows_first: fn(&V) -> bool) {
    for prepare in [|| model::run_on(1), model::leave_lanes] {
        in_every_order(3, move || {
            let variable: &V = Box::leak(Box::new(make()));
            let writer = after_write(1, move || {
                prepare();
                first(variable);
            });
            prepare();
            assert_seen(shows_first(variable));
            writer.join();
        });
    }
}

#[test]
fn add_return_sees_what_precedes_add() {
    on_one_copy(PerCpu::<u64>::new, |word| word.add(1), |word| word.add_return(0) == 1);
}

#[test]
fn xchg_sees_what_precedes_add() {
    on_one_copy(PerCpu::<u64>::new, |word| word.add(1), |word| word.xchg(5) == 1);
}

#[test]
fn refused_cmpxchg_sees_what_precedes_xchg() {
    let first = |word: &PerCpu<u64>| _ = word.xchg(1);
    on_one_copy(PerCpu::<u64>::new, first, |word| word.cmpxchg(7, 8) == Err(1));
}

#[test]
fn cmpxchg_double_sees_what_precedes_cmpxchg_double() {
    let first = |pair: &PerCpuPair<u64>| _ = pair.cmpxchg_double((0, 0), (1, 1));
    let is_second = |pair: &PerCpuPair<u64>| pair.cmpxchg_double((1, 1), (2, 2)).is_ok();
    on_one_copy(PerCpuPair::<u64>::new, first, is_second);
}

/// Four objects to a slab, and two to a sheaf.
static CACHE: RawCache = RawCache::new(Layout::new::<[u8; 16 * 1024]>());

/// Frees `count` objects on CPU 1, and allocates one on `cpu`.
fn object_is_handed_over(preemptions: usize, count: usize, cpu: usize) {
    in_every_order(preemptions, move || {
        model::run_on(1);
        let alloc = || CACHE.alloc().expect("memory").as_ptr() as usize;
        let objects: Vec<_> = (0..count).map(|_| alloc()).collect();
        let freed = objects.clone();
        let freer = after_write(1, move || {
            for object in freed {
                let object = std::ptr::with_exposed_provenance_mut(object);
                // SAFETY: the cache has allocated the object, and nobody else uses or frees it.
                unsafe { CACHE.free(NonNull::new(object).expect("an object")) };
            }
        });
        model::run_on(cpu);
        assert_seen(objects.contains(&alloc()));
        freer.join();
    });
}

#[test]
fn alloc_on_same_lane_sees_what_precedes_free() {
    object_is_handed_over(2, 1, 1);
}

// The lane of CPU 1 gives a sheaf to the barn, from which the lane of CPU 0 takes it.
#[test]
fn alloc_from_barn_sees_what_precedes_free() {
    object_is_handed_over(1, 5, 0);
}
