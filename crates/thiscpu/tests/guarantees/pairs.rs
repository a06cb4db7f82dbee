//! `PerCpuPair`: both words change together or not at all.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use thiscpu::{PairWord, PerCpuPair};
use thiscpu_test_support::bits::Bits;

use crate::common::{
    Scenario, TIERS, TIERS_AND_SANDBOXES, pin, place_one_of_five, scale, scenario, signal, together,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(pairs::words_change_together, TIERS_AND_SANDBOXES),
    scenario!(pairs::words_change_together_under_signals, TIERS),
    scenario!(pairs::cmpxchg_double_compares_both_halves, TIERS),
];

/// Returns the value that belongs to a number of changes; a new pair has 0 and 0.
fn value(changes: u64) -> u64 {
    changes.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// A half of a pair.
trait Half: PairWord + Bits {}

impl<W: PairWord + Bits> Half for W {}

/// Changes the pair once; returns false if a read was torn.
///
/// The pair is a value and the number of changes, which determines the value.
fn change<W: Half>(pair: &PerCpuPair<W>) -> bool {
    let mut current = (W::of(0), W::of(0));
    loop {
        if current.0 != W::of(value(current.1.bits())) {
            return false;
        }
        let next = current.1.bits() + 1;
        match pair.cmpxchg_double(current, (W::of(value(next)), W::of(next))) {
            Ok(()) => return true,
            Err(actual) => current = actual,
        }
    }
}

/// Checks the pairs of all lanes, and returns their total number of changes.
fn changes<W: Half>(pair: &PerCpuPair<W>) -> u64 {
    pair.lanes().for_each(|lane| assert_eq!(lane.0, W::of(value(lane.1.bits())), "{lane:?}"));
    pair.lanes().map(|lane| lane.1.bits()).sum()
}

fn change_on_all_threads<W: Half>() {
    let each = scale::rounds(10_000);
    let pair = PerCpuPair::<W>::new();
    together(5, |thread| {
        place_one_of_five(thread);
        (0..each).for_each(|_| assert!(change(&pair), "torn: {:?}", pair.lanes().next()));
    });
    assert_eq!(changes(&pair), 5 * each);
}

fn words_change_together() {
    change_on_all_threads::<u32>();
    change_on_all_threads::<u64>();
}

static HANDLED: AtomicU64 = AtomicU64::new(0);
static TORN: AtomicBool = AtomicBool::new(false);
static PAIRS: OnceLock<(PerCpuPair<u32>, PerCpuPair<u64>)> = OnceLock::new();

extern "C" fn change_both(_: i32) {
    if let Some((narrow, wide)) = PAIRS.get() {
        TORN.fetch_or(!change(narrow) || !change(wide), SeqCst);
    }
    HANDLED.fetch_add(1, SeqCst);
}

fn words_change_together_under_signals() {
    let (narrow, wide) = PAIRS.get_or_init(Default::default);
    signal::handle(libc::SIGUSR1, change_both);
    let mut own = 0;
    signal::storm(libc::SIGUSR1, &HANDLED, 1500, || {
        for _ in 0..100 {
            assert!(change(narrow) && change(wide));
            own += 1;
        }
    });
    assert!(!TORN.load(SeqCst), "torn in the handler");
    let all = own + HANDLED.load(SeqCst);
    assert_eq!((changes(narrow), changes(wide)), (all, all));
}

/// Checks the exchange with a pair whose second word is `wide`.
fn compare_both_halves<W: PairWord + Copy + PartialEq + std::fmt::Debug + From<i8>>(wide: W) {
    let word = |n: i8| W::from(n);
    let pair = PerCpuPair::<W>::new();
    let [zero, first, other] = [0, -1, 2].map(word);
    assert_eq!(pair.cmpxchg_double((zero, zero), (first, wide)), Ok(()));
    assert_eq!(pair.cmpxchg_double((first, zero), (other, other)), Err((first, wide)));
    assert_eq!(pair.cmpxchg_double((zero, wide), (other, other)), Err((first, wide)));
    assert_eq!(pair.cmpxchg_double((first, wide), (word(3), word(4))), Ok(()));
    assert!(pair.lanes().any(|lane| lane == (word(3), word(4))));
}

// A difference in either word makes the exchange fail, with the current pair as the error.
fn cmpxchg_double_compares_both_halves() {
    pin::pin(0);
    compare_both_halves(i64::MAX);
    compare_both_halves(i32::MIN);
}
