//! Adds from destructors of a thread that exits, after its registration was taken back too.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::SeqCst};

use thiscpu::{Counter, Counters, PerCpu};

use crate::common::threads::{DecrementOnDrop, to_percpu_mode, together};
use crate::common::{SELF_REGISTERED_ONLY, Scenario, TIERS, TIERS_AND_SANDBOXES, scale, scenario};

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

fn assert_all_is_there() {
    assert_eq!(COUNTER.sum(), ADDED.load(SeqCst));
    assert_eq!(COUNTERS.snapshot(), [0, ADDED.load(SeqCst)]);
}

/// Adds when its thread's variables are dropped.
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

/// The destructors of a key run in rounds for as long as they set their key again; the last one
/// that POSIX promises is the fourth. The library's own comes among them.
const ROUNDS: u64 = 4;
static ROUNDS_RUN: AtomicU64 = AtomicU64::new(0);
/// The key plus one, of which the destructor below is.
static KEY: AtomicUsize = AtomicUsize::new(0);

extern "C" fn add_each_round(round: *mut c_void) {
    (0..50).for_each(|_| add(3));
    ROUNDS_RUN.fetch_add(1, SeqCst);
    if (round as u64) < ROUNDS {
        arm(round as u64 + 1);
    }
}

fn arm(round: u64) {
    let key = (KEY.load(SeqCst) - 1) as libc::pthread_key_t;
    // SAFETY: the key exists for the life of the process; the value is only a number.
    let result = unsafe { libc::pthread_setspecific(key, round as *const c_void) };
    assert_eq!(result, 0);
}

fn make_key(destructor: extern "C" fn(*mut c_void)) {
    let mut key = 0;
    // SAFETY: `key` is valid for the write; the destructor takes any value.
    let result = unsafe { libc::pthread_key_create(&mut key, Some(destructor)) };
    assert_eq!(result, 0);
    KEY.store(key as usize + 1, SeqCst);
}

/// How many threads exit at the same time.
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
            // Made after the library's own, hence dropped in another order.
            LATE.set(Some(AddsAtExit(Cell::new(5))));
            if !thread.is_multiple_of(2) {
                arm(1);
            }
        };
        together(TOGETHER, work, || {});
    }
    assert_all_is_there();
    assert_eq!(ROUNDS_RUN.load(SeqCst), times * TOGETHER as u64 * ROUNDS);
}

/// A thread may use the library for the first time in its last destructor.
fn first_add_may_be_in_destructor() {
    make_key(add_each_round);
    let words = PerCpu::<u64>::new();
    for round in 1..=ROUNDS {
        for _ in 0..10 {
            together(3, |_| arm(round), || {});
        }
    }
    assert_all_is_there();
    words.add(1);
    assert_eq!(words.lanes().sum::<u64>(), 1);
}

/// A thread that has given up its registration does not register again: nobody would take that back
/// before its memory goes. In the last round no registration is there, so another one can be made.
fn thread_stays_unregistered() {
    static FOUND: AtomicU64 = AtomicU64::new(0);
    extern "C" fn look_in_the_last_round(round: *mut c_void) {
        add(1);
        if (round as u64) < ROUNDS {
            return arm(round as u64 + 1);
        }
        #[repr(align(32))]
        struct Area([u32; 8]);
        let mut area = Area([0; 8]);
        let mut call = |flags: i32| {
            let area = area.0.as_mut_ptr();
            // SAFETY: the area is aligned, as long as is said, and registered only in here.
            unsafe { libc::syscall(libc::SYS_rseq, area, 32, flags, 0x5305_3053) }
        };
        const UNREGISTER: i32 = 1;
        if call(0) == 0 && call(UNREGISTER) == 0 {
            FOUND.fetch_add(1, SeqCst);
        }
    }
    make_key(look_in_the_last_round);
    let work = |_| {
        arm(1);
        add(1);
    };
    for _ in 0..10 {
        together(3, work, || {});
    }
    assert_eq!(FOUND.load(SeqCst), 30, "threads that were still registered, or again");
    assert_all_is_there();
}

/// One of a pair of adds is made by a thread that lives, the other by one that exits.
fn adds_are_exact_while_others_sum() {
    to_percpu_mode(&COUNTER);
    thread_local! {
        static TAKES_AWAY: RefCell<Option<TakesAway>> = const { RefCell::new(None) };
    }
    struct TakesAway;
    impl Drop for TakesAway {
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
                std::thread::spawn(|| TAKES_AWAY.set(Some(TakesAway))).join().expect("no panic");
            }
        }
        while running.load(SeqCst) > 0 {
            let sum = COUNTER.sum();
            assert!(sum == 0 || sum == 1, "{sum}");
            std::thread::yield_now();
        }
    };
    together(2, work, || {});
    assert_eq!(COUNTER.sum(), 0);
}
