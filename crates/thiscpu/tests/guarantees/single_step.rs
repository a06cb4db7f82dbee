//! Counters: operations are stopped at each instruction while another thread does a conflicting
//! one.
//!
//! The answers must be as if each operation had happened at one instant.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, mpsc};

use thiscpu::{Counter, PerCpu};

use crate::common::{
    DEFAULT_ONLY, Level, Scenario, TIERS, assert_bounds_contain, at_each_step, at_every_nth_step,
    at_sampled_steps, can_single_step, conflict_in_handler, pin, scale, scenario, step_through,
    stopped_at, to_percpu_mode,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(single_step::stops_come_at_each_instruction, DEFAULT_ONLY)
        .needs(can_single_step)
        .not_quick(),
    scenario!(single_step::no_stop_comes_behind_the_operation, DEFAULT_ONLY)
        .needs(can_single_step)
        .slow(),
    scenario!(single_step::sampled_stops_miss_none_of_the_first, DEFAULT_ONLY)
        .needs(can_single_step),
    scenario!(single_step::answers_hold_during_compare, TIERS).needs(can_single_step),
    scenario!(single_step::sum_holds_while_units_move, TIERS).needs(can_single_step),
    scenario!(single_step::answers_hold_during_set, TIERS).needs(can_single_step),
    scenario!(single_step::add_holds_during_compare, TIERS).needs(can_single_step),
    scenario!(single_step::take_holds_during_add, TIERS).needs(can_single_step),
    scenario!(single_step::add_without_lane_stays_out_of_lanes, TIERS).needs(can_single_step),
    scenario!(single_step::handler_add_takes_effect_at_once, TIERS).needs(can_single_step),
];

/// The value, which stays the same for all observers.
const VALUE: i64 = 1_000_000;

static COUNTER: Counter = Counter::new();

fn assert_value(steps: u64, asked: (i64, i64), what: &str) {
    // A conflict that restores per-CPU mode adds 1 and subtracts it again.
    assert!(asked.0 <= VALUE + 1 && VALUE <= asked.1, "{what}, stopped after {steps}: {asked:?}");
    assert_eq!(COUNTER.sum(), VALUE, "after {what}, stopped after {steps}");
    assert_bounds_contain(&COUNTER, VALUE);
}

/// Puts the counter into shared mode, by a comparison that needs the exact value.
fn to_shared_mode() {
    assert!(COUNTER.compare(VALUE).ordering.is_ge());
}

/// Sets the counter, and puts it into per-CPU mode.
fn to_value_in_percpu_mode() {
    COUNTER.set(VALUE);
    to_percpu_mode(&COUNTER);
}

type Question = fn() -> (i64, i64);

/// The operations that read a counter, each with the limits that its answer implies.
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
    // The estimate of a constant value in few lanes is close.
    ("read", || {
        let value = COUNTER.read();
        (value - 100_000, value + 100_000)
    }),
];

/// Asks each question of a counter in per-CPU mode, and stops it for `conflict`.
fn answers_hold_during(conflict: fn()) {
    COUNTER.set(VALUE);
    for (what, ask) in QUESTIONS {
        let check = |steps, _, asked| assert_value(steps, asked, what);
        at_sampled_steps(|| to_percpu_mode(&COUNTER), ask, |_| conflict(), check);
    }
}

fn answers_hold_during_compare() {
    answers_hold_during(to_shared_mode);
}

// Units move between a lane and the shared lane while a sum is stopped.
//
// They are added in one lane before they are subtracted in the other, so the value is never too
// low.
fn sum_holds_while_units_move() {
    const MOVED: i64 = 1000;
    COUNTER.set(VALUE);
    let (order, orders) = mpsc::channel::<i64>();
    let (done, dones) = mpsc::channel();
    let laneless = std::thread::spawn(move || {
        thiscpu::__test_support::leave_lanes();
        for n in orders {
            COUNTER.add(n);
            done.send(()).expect("the receiver waits");
        }
    });
    let shared_lane = Mutex::new((order, dones));
    let add_to_shared_lane = |n| {
        let shared_lane = shared_lane.lock().expect("no panic");
        shared_lane.0.send(n).expect("the thread runs");
        shared_lane.1.recv().expect("the thread runs");
    };
    for from_shared_lane in [true, false] {
        let moving = |_| match from_shared_lane {
            true => {
                COUNTER.add(MOVED);
                add_to_shared_lane(-MOVED);
            }
            false => {
                add_to_shared_lane(MOVED);
                COUNTER.add(-MOVED);
            }
        };
        let check = |steps, _, sum| {
            let range = VALUE..=VALUE + MOVED;
            assert!(range.contains(&sum), "stopped after {steps}: {sum}");
            assert_eq!(COUNTER.sum(), VALUE, "after a stop after {steps}");
        };
        at_sampled_steps(|| to_percpu_mode(&COUNTER), || COUNTER.sum(), moving, check);
    }
    drop(shared_lane);
    laneless.join().expect("no panic");
}

// The conflict changes where the value is stored, but not the value.
fn answers_hold_during_set() {
    answers_hold_during(to_value_in_percpu_mode);
}

fn add_holds_during_compare() {
    COUNTER.set(VALUE);
    let check = |steps, _, ()| {
        assert_eq!(COUNTER.sum(), VALUE + 1, "stopped after {steps}");
        COUNTER.add(-1);
    };
    at_sampled_steps(|| to_percpu_mode(&COUNTER), || COUNTER.add(1), |_| to_shared_mode(), check);
}

fn take_holds_during_add() {
    const ADDED: i64 = 5;
    let check = |steps, stopped, taken: i64| {
        let all = if stopped { VALUE + ADDED } else { VALUE };
        assert_eq!(taken + COUNTER.sum(), all, "stopped after {steps}");
    };
    let add = |_| COUNTER.add(ADDED);
    at_sampled_steps(to_value_in_percpu_mode, || COUNTER.take(), add, check);
}

// An unregistered thread is never aborted, so it must stay out of all lanes.
//
// Its `mm_cid` reads 0, which would be the lane of the first CPU in use.
fn add_without_lane_stays_out_of_lanes() {
    // Only this CPU is in use, so the other thread's index is 0.
    pin::pin(0);
    let words = &PerCpu::<u64>::new();
    to_percpu_mode(&COUNTER);
    pin::pin(0);
    words.add(1);
    // The lane gets a window in each bank.
    COUNTER.sum();
    COUNTER.add(1);
    COUNTER.sum();
    COUNTER.add(1);
    thiscpu::__test_support::leave_lanes();
    let value = || COUNTER.sum() + words.lanes().sum::<u64>() as i64;
    // Tested separately, because only the first instructions all get a stop.
    let ops: [fn(&PerCpu<u64>, i64); 2] = [
        // This operation is not a single instruction, so a conflict can come in between.
        |words, n| _ = words.add_return(n as u64),
        |_, n| COUNTER.add(n),
    ];
    for op in ops {
        // Adds use the lane's current window, so nothing may sum in between: each sum gives the
        // other bank a new window.
        let (before, added) = (value(), Cell::new(0));
        let conflict = |_| {
            pin::pin(0);
            op(words, 7);
        };
        let check = |_, stopped, ()| added.set(added.get() + if stopped { 8 } else { 1 });
        at_sampled_steps(|| (), || op(words, 1), conflict, check);
        assert_eq!(value(), before + added.get());
    }
}

/// An operation that returns the amount it adds.
type Op = fn() -> i64;

// The handler's add takes effect at once and stays.
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
        let check = |steps, stopped, added| {
            let all = VALUE + added + if stopped { ADDED } else { 0 };
            assert_eq!(COUNTER.sum(), all, "{what}, stopped after {steps}");
        };
        at_sampled_steps(to_value_in_percpu_mode, op, |_| (), check);
    }
}

/// The most stops that [`note_stop`] keeps.
const STOPS_MAX: usize = 20_000;

/// The addresses of stops.
static ADDRESSES: [AtomicUsize; STOPS_MAX] = [const { AtomicUsize::new(0) }; STOPS_MAX];
/// The number of these.
static STOPS: AtomicUsize = AtomicUsize::new(0);

/// Keeps the address of a stop; runs in the signal handler.
fn note_stop() {
    let number = STOPS.fetch_add(1, SeqCst);
    if let Some(address) = ADDRESSES.get(number) {
        address.store(stopped_at(), SeqCst);
    }
}

/// Returns the addresses of the stops since the last call.
fn take_stops() -> Vec<usize> {
    let count = STOPS.swap(0, SeqCst);
    assert!(count <= STOPS_MAX, "{count} stops");
    ADDRESSES[..count].iter().map(|address| address.load(SeqCst)).collect()
}

/// Compares the stops of many runs, one in each, with those of one run that stops everywhere.
#[expect(
    clippy::needless_borrows_for_generic_args,
    reason = "both ways call the function of one type, so that addresses can be compared"
)]
fn stops_come_at_each_instruction() {
    let op = || {
        COUNTER.add(3);
        std::hint::black_box(COUNTER.sum());
    };
    to_value_in_percpu_mode();
    pin::pin(0);
    // The first use of anything takes another way.
    step_through(&op, note_stop);
    take_stops();
    step_through(&op, note_stop);
    let walked = take_stops();
    let count = at_each_step(op, note_stop, |_, _, ()| ());
    let stopped = take_stops();
    assert!(count > 100 && count as usize == stopped.len(), "{count}, {} stops", stopped.len());
    let differs = (0..walked.len()).find(|&number| stopped.get(number) != walked.get(number));
    assert_eq!(differs, None, "stops are missing or come elsewhere");
}

/// Tries each distance between stops, so that some would fall behind the last instruction.
fn no_stop_comes_behind_the_operation() {
    let op = || COUNTER.add(3);
    op();
    let check = |steps, is_stopped, ()| {
        let stops = take_stops().len();
        assert_eq!(stops, usize::from(is_stopped), "after {steps} instructions");
    };
    let length = at_each_step(op, note_stop, check);
    for distance in 2..=length + 2 {
        at_every_nth_step(distance, op, note_stop, check);
    }
}

fn sampled_stops_miss_none_of_the_first() {
    // The first instructions that each level stops at, and the divisor of later distances.
    let first = match scale::level() {
        Level::Quick => 4,
        Level::Usual => 20,
        Level::Full => 40,
    };
    let stops = RefCell::new(Vec::new());
    let op = || {
        COUNTER.add(3);
        std::hint::black_box(COUNTER.sum());
    };
    let note = |steps, is_long, ()| {
        if is_long {
            stops.borrow_mut().push(steps);
        }
    };
    at_sampled_steps(to_value_in_percpu_mode, op, |_| (), note);
    let stops = stops.into_inner();
    assert!(stops[..first as usize].iter().copied().eq(1..=first), "{stops:?}");
    let is_near = |pair: &[u64]| pair[1] - pair[0] <= 1 + pair[0] / first;
    assert!(stops.windows(2).all(is_near) && stops.len() > 2 * first as usize, "{stops:?}");
}
