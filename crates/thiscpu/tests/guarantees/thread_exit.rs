//! Adds in destructors of an exiting thread, some of them after its registration has ended.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::SeqCst};

use thiscpu::{Counter, Counters, PerCpu};

use crate::common::destructors::{ROUNDS, arm, end_round, make_key, rounds_run};
use crate::common::{
    DecrementOnDrop, SELF_REGISTERED_ONLY, Scenario, TIERS, TIERS_AND_SANDBOXES, scale, scenario,
    to_percpu_mode, together,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(thread_exit::destructors_may_add, TIERS_AND_SANDBOXES),
    scenario!(thread_exit::first_add_may_be_in_destructor, TIERS),
    scenario!(thread_exit::thread_stays_unregistered, SELF_REGISTERED_ONLY),
    scenario!(thread_exit::adds_are_exact_while_others_sum, TIERS),
];

static COUNTER: Counter = Counter::new();
static COUNTERS: Counters<2> = Counters::new();
static ADDED: AtomicI64 = AtomicI64::new(0);

fn add(n: i64) {
    COUNTER.add(n);
    COUNTERS.add(1, n);
    ADDED.fetch_add(n, SeqCst);
}

fn assert_exact() {
    assert_eq!(COUNTER.sum(), ADDED.load(SeqCst));
    assert_eq!(COUNTERS.snapshot(), [0, ADDED.load(SeqCst)]);
}

/// A thread-local value that adds when it is dropped.
struct AddsAtExit(Cell<i64>);

impl Drop for AddsAtExit {
    fn drop(&mut self) {
        (0..50).for_each(|_| add(self.0.get()));
    }
}

thread_local! {
    static EARLY: AddsAtExit = const { AddsAtExit(Cell::new(1)) };
    static LATE: RefCell<Option<AddsAtExit>> = const { RefCell::new(None) };
}

extern "C" fn add_each_round(round: *mut c_void) {
    (0..50).for_each(|_| add(3));
    end_round(round);
}

/// The number of threads that exit at the same time.
const TOGETHER: usize = 5;

fn destructors_may_add() {
    make_key(add_each_round);
    let times = scale::rounds(20);
    for _ in 0..times {
        let work = |thread: usize| {
            EARLY.with(|early| early.0.set(2));
            if thread.is_multiple_of(2) {
                arm(1);
            }
            add(1);
            // Created after the library's own value, and so dropped in another order.
            LATE.set(Some(AddsAtExit(Cell::new(5))));
            if !thread.is_multiple_of(2) {
                arm(1);
            }
        };
        together(TOGETHER, work);
    }
    assert_exact();
    assert_eq!(rounds_run(), times * TOGETHER as u64 * ROUNDS);
}

// A thread may use the library first in any destructor, even in its last one.
fn first_add_may_be_in_destructor() {
    make_key(add_each_round);
    let words = PerCpu::<u64>::new();
    for round in 1..=ROUNDS {
        for _ in 0..10 {
            together(3, |_| arm(round));
        }
    }
    assert_exact();
    words.add(1);
    assert_eq!(words.lanes().sum::<u64>(), 1);
}

// A thread that has ended its registration does not register again.
//
// A second registration would outlive the thread's memory. In the last round the thread has none,
// so the test can make one of its own.
fn thread_stays_unregistered() {
    static UNREGISTERED: AtomicU64 = AtomicU64::new(0);
    extern "C" fn register_in_last_round(round: *mut c_void) {
        add(1);
        if !end_round(round) {
            return;
        }
        #[repr(align(32))]
        struct Area([u32; 8]);
        let mut area = Area([0; 8]);
        let mut call = |flags: i32| {
            let area = area.0.as_mut_ptr();
            // SAFETY: the area has the required size and alignment, and is unregistered before it
            // is dropped.
            unsafe { libc::syscall(libc::SYS_rseq, area, 32, flags, 0x5305_3053) }
        };
        const UNREGISTER: i32 = 1;
        if call(0) == 0 && call(UNREGISTER) == 0 {
            UNREGISTERED.fetch_add(1, SeqCst);
        }
    }
    make_key(register_in_last_round);
    let work = |_| {
        arm(1);
        add(1);
    };
    for _ in 0..10 {
        together(3, work);
    }
    assert_eq!(UNREGISTERED.load(SeqCst), 30, "the other threads were registered");
    assert_exact();
}

// A living thread adds 1, and an exiting thread subtracts it.
fn adds_are_exact_while_others_sum() {
    to_percpu_mode(&COUNTER);
    thread_local! {
        static SUBTRACTS: RefCell<Option<Subtracts>> = const { RefCell::new(None) };
    }
    struct Subtracts;
    impl Drop for Subtracts {
        fn drop(&mut self) {
            COUNTER.add(-1);
        }
    }
    let running = AtomicUsize::new(1);
    let work = |thread: usize| {
        if thread == 0 {
            let _decrement = DecrementOnDrop(&running);
            for _ in 0..scale::rounds(150) {
                COUNTER.add(1);
                std::thread::spawn(|| SUBTRACTS.set(Some(Subtracts))).join().expect("no panic");
            }
        }
        while running.load(SeqCst) > 0 {
            let sum = COUNTER.sum();
            assert!(sum == 0 || sum == 1, "{sum}");
            std::thread::yield_now();
        }
    };
    together(2, work);
    assert_eq!(COUNTER.sum(), 0);
}
