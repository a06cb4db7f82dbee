//! Each operation is stopped between two instructions, while another thread does something that
//! conflicts; then it goes on. The answers must be as if each had happened at one instant.
//!
//! The stop is made by single steps, so it comes to every instruction in turn, and neither chance
//! nor the scheduler has a part in it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, mpsc};

use thiscpu::Counter;

use crate::common::threads::spread;
use crate::common::{ALL, Scenario, futex, signal};

pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario::new("steps::ask_while_comparing", &ALL, ask_while_comparing).needs(single_steps),
    Scenario::new("steps::sum_while_moving", &ALL, sum_while_moving).needs(single_steps),
    Scenario::new("steps::ask_while_setting", &ALL, ask_while_setting).needs(single_steps),
    Scenario::new("steps::add_while_comparing", &ALL, add_while_comparing).needs(single_steps),
    Scenario::new("steps::set_while_adding", &ALL, set_while_adding).needs(single_steps),
    Scenario::new("steps::add_from_a_handler", &ALL, add_from_a_handler).needs(single_steps),
];

/// The value that nobody sees change.
const VALUE: i64 = 1_000_000;

static COUNTER: Counter = Counter::new();

fn single_steps() -> Result<(), String> {
    match cfg!(target_arch = "x86_64") {
        true => Ok(()),
        false => Err("only x86-64 steps single instructions without a debugger".into()),
    }
}

/// How many steps are left until the stop.
static STEPS_LEFT: AtomicU64 = AtomicU64::new(0);
/// The number of stops begun, and of those that another thread has answered.
static STOPS: AtomicU32 = AtomicU32::new(0);
static ANSWERED: AtomicU32 = AtomicU32::new(0);
/// If not 0, the handler adds this itself.
static ADDS: AtomicU64 = AtomicU64::new(0);

/// How long a stop waits for the other thread, in looks: it may be waiting for the stopped one.
const PATIENCE: u32 = 2000;

/// The trap flag.
#[cfg(target_arch = "x86_64")]
const TRAP: u64 = 0x100;

extern "C" fn stepped(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    if STEPS_LEFT.fetch_sub(1, SeqCst) != 1 {
        return;
    }
    match ADDS.load(SeqCst) {
        0 => {
            let stop = STOPS.fetch_add(1, SeqCst) + 1;
            futex::wake(&STOPS);
            for _ in 0..PATIENCE {
                if ANSWERED.load(SeqCst) == stop {
                    break;
                }
                std::thread::yield_now();
            }
        }
        n => COUNTER.add(n as i64),
    }
    let context = context.cast::<libc::ucontext_t>();
    // SAFETY: the kernel passes a context to handlers of this kind; without the flag there are no
    // more steps.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        (*context).uc_mcontext.gregs[libc::REG_EFL as usize] &= !(TRAP as i64)
    };
}

/// Runs `op` and stops it after `steps` instructions. Whether it was that long.
fn stopped_after<R>(steps: u64, op: impl FnOnce() -> R) -> (R, bool) {
    STEPS_LEFT.store(steps, SeqCst);
    // SAFETY: sets a flag that makes a SIGTRAP of the next instructions, whose handler is there.
    // The red zone is stepped over, because pushing may otherwise write into it.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("lea rsp, [rsp - 128]", "pushf", "or qword ptr [rsp], {trap}", "popf",
            "lea rsp, [rsp + 128]", trap = const TRAP);
    }
    let result = op();
    // SAFETY: as above; clears the flag.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("lea rsp, [rsp - 128]", "pushf", "and qword ptr [rsp], ~{trap}", "popf",
            "lea rsp, [rsp + 128]", trap = const TRAP);
    }
    (result, STEPS_LEFT.load(SeqCst) as i64 <= 0)
}

/// Runs `op` again and again, stopped a little later each time: at each of its first instructions
/// and then at fewer and fewer. `conflict` runs on another thread during the stop, `prepare`
/// before each run.
fn at_each_step<R>(
    prepare: impl Fn(),
    op: impl Fn() -> R,
    conflict: impl Fn(u32) + Sync,
    check: impl Fn(u64, bool, R),
) {
    signal::handle_with_context(libc::SIGTRAP, stepped);
    const OVER: u32 = u32::MAX;
    STOPS.store(0, SeqCst);
    ANSWERED.store(0, SeqCst);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut answered = 0;
            loop {
                match STOPS.load(SeqCst) {
                    OVER => return,
                    stops if stops == answered => futex::wait(&STOPS, stops),
                    stops => {
                        conflict(stops);
                        answered = stops;
                        ANSWERED.store(stops, SeqCst);
                    }
                }
            }
        });
        let _over = Defer(|| {
            STOPS.store(OVER, SeqCst);
            futex::wake(&STOPS);
        });
        let mut steps = 1;
        loop {
            prepare();
            let (result, reached) = stopped_after(steps, &op);
            // The conflict may have had to wait for the operation.
            while ADDS.load(SeqCst) == 0 && ANSWERED.load(SeqCst) != STOPS.load(SeqCst) {
                std::thread::yield_now();
            }
            check(steps, reached, result);
            if !reached {
                break;
            }
            steps += 1 + steps / 10;
        }
    });
}

struct Defer<F: Fn()>(F);

impl<F: Fn()> Drop for Defer<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

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

fn ask_while_comparing() {
    COUNTER.set(VALUE);
    for (what, ask) in QUESTIONS {
        let compare = |_| gather();
        at_each_step(|| spread(&COUNTER), ask, compare, |s, _, asked| assert_value(s, asked, what));
    }
}

/// Units move from one place to another while a sum is stopped between looking at the two: they are
/// first added here and then taken away there, so that the value is never below what it was.
fn sum_while_moving() {
    const MOVED: i64 = 1000;
    COUNTER.set(VALUE);
    let (order, orders) = mpsc::channel::<i64>();
    let (done, dones) = mpsc::channel();
    let laneless = std::thread::spawn(move || {
        thiscpu::probe::leave_lanes();
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
        at_each_step(
            || spread(&COUNTER),
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
fn ask_while_setting() {
    COUNTER.set(VALUE);
    for (what, ask) in QUESTIONS {
        let set = |_| {
            COUNTER.set(VALUE);
            spread(&COUNTER);
        };
        at_each_step(|| spread(&COUNTER), ask, set, |s, _, asked| assert_value(s, asked, what));
    }
}

fn add_while_comparing() {
    COUNTER.set(VALUE);
    let add = || COUNTER.add(1);
    let compare = |_| gather();
    at_each_step(
        || spread(&COUNTER),
        add,
        compare,
        |steps, _, ()| {
            assert_eq!(COUNTER.sum(), VALUE + 1, "stopped after {steps}");
            COUNTER.add(-1);
        },
    );
}

fn set_while_adding() {
    const ADDED: i64 = 5;
    let prepare = || {
        COUNTER.set(VALUE);
        spread(&COUNTER);
    };
    let take = || COUNTER.take();
    let add = |_| COUNTER.add(ADDED);
    at_each_step(prepare, take, add, |steps, stopped, taken| {
        let all = if stopped { VALUE + ADDED } else { VALUE };
        assert_eq!(taken + COUNTER.sum(), all, "stopped after {steps}");
    });
}

/// Does something, and returns what it adds.
type Op = fn() -> i64;

/// What the handler adds is there at once and stays.
fn add_from_a_handler() {
    const ADDED: i64 = 3;
    ADDS.store(ADDED as u64, SeqCst);
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
            spread(&COUNTER);
        };
        at_each_step(
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
