//! `PerCpu`: operations on words of each width lose nothing and leave neighboring words unchanged.
//!
//! They come from many threads, with and without lanes, and from signal handlers.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use thiscpu::{PerCpu, PerCpuInt, PerCpuWord};
use thiscpu_test_support::bits::Bits;

use crate::common::{
    Random, Scenario, TIERS, TIERS_AND_SANDBOXES, leave_lanes_if, pin, place_one_of_five, scale,
    scenario, signal, together,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(words::ops_of_each_width_are_exact, TIERS_AND_SANDBOXES),
    scenario!(words::xchg_transfers_ownership, TIERS),
    scenario!(words::ops_are_exact_under_signals, TIERS),
    scenario!(words::ops_match_plain_integer, TIERS),
];

/// An integer that words may hold.
trait Int: PerCpuInt + Bits {}

impl<T: PerCpuInt + Bits> Int for T {}

/// Updates this CPU's word by `to`, and returns its old value; tries `expected` first.
fn update<T: PerCpuWord + Copy>(word: &PerCpu<T>, mut expected: T, to: impl Fn(T) -> T) -> T {
    while let Err(actual) = word.cmpxchg(expected, to(expected)) {
        expected = actual;
    }
    expected
}

fn lanes_total<T: Int>(word: &PerCpu<T>) -> T {
    T::of(word.lanes().fold(0, |sum, lane| sum.wrapping_add(lane.bits())))
}

/// Adds by every operation, on threads of every kind.
fn add_on_all_threads<T: Int>() {
    // `before` and `after` are next to `word` in each lane, and share its 8 bytes if they fit.
    let [before, word, after] = [(); 3].map(|()| PerCpu::<T>::new());
    let mark = T::of(0x5a5a_5a5a_5a5a_5a5a);
    before.xchg(mark);
    after.xchg(mark);
    let sums = together(5, |thread| {
        place_one_of_five(thread);
        let mut random = Random::new(thread as u64);
        let mut sum = 0u64;
        for _ in 0..scale::rounds(1500) {
            let n = random.next();
            sum = sum.wrapping_add(n);
            match random.below(4) {
                0 => word.add(T::of(n)),
                1 => drop(word.add_return(T::of(n))),
                2 => {
                    let add = |current: T| T::of(current.bits().wrapping_add(n));
                    update(&word, T::of(0), add);
                }
                // Takes this lane's value, and adds it and `n` to the lane of that moment.
                _ => {
                    let taken = word.xchg(T::of(0));
                    word.add(T::of(taken.bits().wrapping_add(n)));
                }
            }
        }
        sum
    });
    let sum = sums.into_iter().fold(0, u64::wrapping_add);
    assert_eq!(lanes_total(&word), T::of(sum), "{}", std::any::type_name::<T>());
    for neighbor in [&before, &after] {
        assert_eq!(lanes_total(neighbor), mark);
    }
}

fn ops_of_each_width_are_exact() {
    add_on_all_threads::<u8>();
    add_on_all_threads::<i8>();
    add_on_all_threads::<u16>();
    add_on_all_threads::<i16>();
    add_on_all_threads::<u32>();
    add_on_all_threads::<i32>();
    add_on_all_threads::<u64>();
    add_on_all_threads::<i64>();
    add_on_all_threads::<usize>();
    add_on_all_threads::<isize>();
}

// Threads exchange pointers: each box is freed exactly once, by the thread that gets it.
fn xchg_transfers_ownership() {
    const EACH: u64 = 4000;
    let slot = PerCpu::<*mut u64>::new();
    let own = |pointer: *mut u64| {
        // SAFETY: only pointers to boxes are stored, and an exchange gives each to one thread.
        (!pointer.is_null()).then(|| unsafe { *Box::from_raw(pointer) })
    };
    let got = together(4, |thread| {
        leave_lanes_if(thread == 3);
        let mut got = Vec::new();
        for n in 0..EACH {
            let new = Box::into_raw(Box::new(thread as u64 * EACH + n));
            if n % 2 == 0 {
                got.extend(own(slot.xchg(new)));
                continue;
            }
            got.extend(own(update(&slot, std::ptr::null_mut(), |_| new)));
        }
        got
    });
    let left = slot.lanes().filter_map(own);
    let all: Vec<u64> = got.into_iter().flatten().chain(left).collect();
    assert_eq!(all.len() as u64, 4 * EACH);
    assert_eq!(all.into_iter().collect::<HashSet<_>>().len() as u64, 4 * EACH);
}

static HANDLED: AtomicU64 = AtomicU64::new(0);
static WORDS: std::sync::OnceLock<(PerCpu<u16>, PerCpu<u64>)> = std::sync::OnceLock::new();

extern "C" fn add_to_words(_: i32) {
    if let Some((narrow, wide)) = WORDS.get() {
        narrow.add(3);
        update(wide, wide.add_return(2), |current| current.wrapping_add(5));
    }
    HANDLED.fetch_add(1, SeqCst);
}

fn ops_are_exact_under_signals() {
    let (narrow, wide) = WORDS.get_or_init(Default::default);
    signal::handle(libc::SIGUSR1, add_to_words);
    let mut own = 0u64;
    signal::storm(libc::SIGUSR1, &HANDLED, 1500, || {
        for _ in 0..100 {
            narrow.add(1);
            wide.add(1);
            update(wide, 0, |current| current.wrapping_add(1));
            let taken = wide.xchg(0);
            wide.add(taken);
        }
        own += 100;
    });
    let handled = HANDLED.load(SeqCst);
    assert_eq!(lanes_total(narrow), (own + 3 * handled) as u16);
    assert_eq!(lanes_total(wide), 2 * own + 7 * handled);
}

// A single thread on one CPU gets the results of an ordinary integer.
fn ops_match_plain_integer() {
    pin::pin(0);
    let word = PerCpu::<i8>::new();
    assert_eq!(word.add_return(120), 120);
    assert_eq!(word.add_return(10), -126);
    assert_eq!(word.cmpxchg(0, 1), Err(-126));
    assert_eq!(word.cmpxchg(-126, 1), Ok(()));
    assert_eq!(word.xchg(-1), 1);
    word.add(-1);
    assert_eq!(word.xchg(0), -2);
    assert!(word.lanes().all(|value| value == 0));
    let mut target = 7u32;
    let pointer = PerCpu::<*mut u32>::new();
    assert_eq!(pointer.cmpxchg(std::ptr::null_mut(), &mut target), Ok(()));
    assert_eq!(pointer.cmpxchg(std::ptr::null_mut(), &mut target), Err(&raw mut target));
    assert_eq!(pointer.xchg(std::ptr::null_mut()), &raw mut target);
}
