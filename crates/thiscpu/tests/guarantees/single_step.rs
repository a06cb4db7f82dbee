//! Each operation of a counter is stopped at every instruction in turn, while another thread does
//! something that conflicts; then it goes on. The answers must be as if each had happened at one
//! instant.

use std::cell::Cell;
use std::sync::{Mutex, mpsc};

use thiscpu::{Counter, PerCpu};

use crate::common::single_step::{at_sampled_steps, can_single_step, conflict_in_handler};
use crate::common::threads::to_percpu_mode;
use crate::common::{Scenario, TIERS, pin, scenario};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(single_step::answers_hold_during_compare, TIERS).needs(can_single_step),
    scenario!(single_step::sum_holds_while_units_move, TIERS).needs(can_single_step),
    scenario!(single_step::answers_hold_during_set, TIERS).needs(can_single_step),
    scenario!(single_step::add_holds_during_compare, TIERS).needs(can_single_step),
    scenario!(single_step::take_holds_during_add, TIERS).needs(can_single_step),
    scenario!(single_step::add_without_lane_stays_out_of_lanes, TIERS).needs(can_single_step),
    scenario!(single_step::handler_add_takes_effect_at_once, TIERS).needs(can_single_step),
];

/// The value that nobody sees change.
const VALUE: i64 = 1_000_000;

static COUNTER: Counter = Counter::new();

fn assert_value(steps: u64, asked: (i64, i64), what: &str) {
    // Where the conflict spreads the counter, that adds 1 and takes it away again.
    assert!(asked.0 <= VALUE + 1 && VALUE <= asked.1, "{what}, stopped after {steps}: {asked:?}");
    let (sum, bounds) = (COUNTER.sum(), COUNTER.bounds());
    assert_eq!(sum, VALUE, "after {what}, stopped after {steps}");
    assert!(bounds.low <= VALUE && VALUE <= bounds.high, "after {what}: {bounds:?}");
}

/// Makes the counter tight: a comparison that needs its exact value.
fn gather() {
    assert!(COUNTER.compare(VALUE).ordering.is_ge());
}

type Question = fn() -> (i64, i64);

/// The questions, each with the limits that its answer gives.
const QUESTIONS: [(&str, Question); 4] = [
    ("sum", || {
        let sum = COUNTER.sum();
        (sum, sum)
    }),
    ("bounds", || {
        let bounds = COUNTER.bounds();
        (bounds.low, bounds.high)
    }),
    ("compare", || {
        let compared = COUNTER.compare(VALUE + 2);
        assert!(compared.ordering.is_lt(), "{compared:?}");
        compared.exact.map_or((i64::MIN, i64::MAX), |exact| (exact, exact))
    }),
    // An estimate, but of a value that does not change and lies in few lanes.
    ("read", || {
        let value = COUNTER.read();
        (value - 100_000, value + 100_000)
    }),
];

fn answers_hold_during_compare() {
    COUNTER.set(VALUE);
    for (what, ask) in QUESTIONS {
        let compare = |_| gather();
        at_sampled_steps(
            || to_percpu_mode(&COUNTER),
            ask,
            compare,
            |s, _, asked| assert_value(s, asked, what),
        );
    }
}

/// Units move from one place to another while a sum is stopped between looking at the two: they are
/// first added here and then taken away there, so that the value is never below what it was.
fn sum_holds_while_units_move() {
    const MOVED: i64 = 1000;
    COUNTER.set(VALUE);
    let (order, orders) = mpsc::channel::<i64>();
    let (done, dones) = mpsc::channel();
    let laneless = std::thread::spawn(move || {
        thiscpu::__test_support::leave_lanes();
        for n in orders {
            COUNTER.add(n);
            done.send(()).expect("somebody waits");
        }
    });
    let slow_lane = Mutex::new((order, dones));
    let add_to_slow_lane = |n| {
        let slow_lane = slow_lane.lock().expect("no panic");
        slow_lane.0.send(n).expect("the thread runs");
        slow_lane.1.recv().expect("the thread runs");
    };
    for from_slow_lane in [true, false] {
        let moving = |_| match from_slow_lane {
            true => {
                COUNTER.add(MOVED);
                add_to_slow_lane(-MOVED);
            }
            false => {
                add_to_slow_lane(MOVED);
                COUNTER.add(-MOVED);
            }
        };
        let sum = || COUNTER.sum();
        at_sampled_steps(
            || to_percpu_mode(&COUNTER),
            sum,
            moving,
            |steps, _, sum| {
                let range = VALUE..=VALUE + MOVED;
                assert!(range.contains(&sum), "stopped after {steps}: {sum}");
                assert_eq!(COUNTER.sum(), VALUE, "after being stopped after {steps}");
            },
        );
    }
    drop(slow_lane);
    laneless.join().expect("no panic");
}

/// The conflict changes where the value is kept, though not the value.
fn answers_hold_during_set() {
    COUNTER.set(VALUE);
    for (what, ask) in QUESTIONS {
        let set = |_| {
            COUNTER.set(VALUE);
            to_percpu_mode(&COUNTER);
        };
        at_sampled_steps(
            || to_percpu_mode(&COUNTER),
            ask,
            set,
            |s, _, asked| assert_value(s, asked, what),
        );
    }
}

fn add_holds_during_compare() {
    COUNTER.set(VALUE);
    let add = || COUNTER.add(1);
    let compare = |_| gather();
    at_sampled_steps(
        || to_percpu_mode(&COUNTER),
        add,
        compare,
        |steps, _, ()| {
            assert_eq!(COUNTER.sum(), VALUE + 1, "stopped after {steps}");
            COUNTER.add(-1);
        },
    );
}

fn take_holds_during_add() {
    const ADDED: i64 = 5;
    let prepare = || {
        COUNTER.set(VALUE);
        to_percpu_mode(&COUNTER);
    };
    let take = || COUNTER.take();
    let add = |_| COUNTER.add(ADDED);
    at_sampled_steps(prepare, take, add, |steps, stopped, taken| {
        let all = if stopped { VALUE + ADDED } else { VALUE };
        assert_eq!(taken + COUNTER.sum(), all, "stopped after {steps}");
    });
}

/// A thread that is not registered is not aborted either, so it must stay out of every lane; where
/// lanes are chosen by `mm_cid`, which reads 0 then, that of the first CPU in use would be its.
fn add_without_lane_stays_out_of_lanes() {
    // So that this CPU is the only one in use, and the other thread's index is 0.
    pin::pin(0);
    let words = &PerCpu::<u64>::new();
    to_percpu_mode(&COUNTER);
    pin::pin(0);
    words.add(1);
    // In either bank the lane has a window.
    COUNTER.sum();
    COUNTER.add(1);
    COUNTER.sum();
    COUNTER.add(1);
    thiscpu::__test_support::leave_lanes();
    let value = || COUNTER.sum() + words.lanes().sum::<u64>() as i64;
    // One after the other, because only the first instructions are all stopped at.
    let ops: [fn(&PerCpu<u64>, i64); 2] = [
        // An op that is not one instruction, in which nothing could come between.
        |words, n| _ = words.add_return(n as u64),
        |_, n| COUNTER.add(n),
    ];
    for op in ops {
        // The window that the lane has now is the one that adds will meet.
        let (before, added) = (value(), Cell::new(0));
        let conflict = |_| {
            pin::pin(0);
            op(words, 7);
        };
        // No sums in between: after each, the lane's window in the other bank is a new one.
        let check = |_, stopped, ()| added.set(added.get() + if stopped { 8 } else { 1 });
        at_sampled_steps(|| (), || op(words, 1), conflict, check);
        assert_eq!(value(), before + added.get());
    }
}

/// Does something, and returns what it adds.
type Op = fn() -> i64;

/// What the handler adds is there at once and stays.
fn handler_add_takes_effect_at_once() {
    const ADDED: i64 = 3;
    conflict_in_handler(|| COUNTER.add(ADDED));
    let ops: [(&str, Op); 5] = [
        ("add", || {
            COUNTER.add(1);
            1
        }),
        ("a large add", || {
            COUNTER.add(32_768);
            32_768
        }),
        ("sum", || {
            let sum = COUNTER.sum();
            assert!(sum == VALUE || sum == VALUE + ADDED, "{sum}");
            0
        }),
        ("take", || -COUNTER.take()),
        ("compare", || {
            assert!(COUNTER.compare(VALUE - 1).ordering.is_gt());
            0
        }),
    ];
    for (what, op) in ops {
        let prepare = || {
            COUNTER.set(VALUE);
            to_percpu_mode(&COUNTER);
        };
        at_sampled_steps(
            prepare,
            op,
            |_| (),
            |steps, stopped, added| {
                let all = VALUE + added + if stopped { ADDED } else { 0 };
                assert_eq!(COUNTER.sum(), all, "{what}, stopped after {steps}");
            },
        );
    }
}
