//! `sum token`: is a sum ever a value that the counter never had?
//!
//! Adders pass a token. Its holders add 1 and subtract 1 in turn, and only its holder adds. So at
//! each instant the true value is 0 or 1, and any other sum is wrong. The second half of the adders
//! has no lane. Meanwhile one thread sums. In the first half of the slice its sums are timed. In
//! the second half it is preempted all the time, so that adds happen in the middle of its sums.

use std::{
    sync::atomic::{
        AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
    thread,
    time::Instant,
};

use anyhow::{Context as _, Result, ensure};
use hdrhistogram::Histogram;
use thiscpu_test_support::tool::stop;

use super::{Measured, Setting, shared_counter};
use crate::{
    contenders::counters::Contender,
    deviations::Deviations,
    metric::{MAX_ERROR, Reading, SUMS, TIME_PER_SUM, TIME_PER_SUM_P999, TOKEN_MOVES, WRONG_SUMS},
    preempt::Preemptions,
    slice,
};

/// The factor by which a half may take longer to reach its number of sums.
const OVERTIME_MAX: u32 = 50;

/// The number of sums between two reads of the clock while they are not timed.
///
/// A read takes longer than most sums, and a preemption in the middle of a read shows nothing.
const SUMS_PER_READ: u64 = 16;

/// The moves of an adder before it yields to others on its CPU.
const MOVES_PER_STEP: u32 = 16;

/// Measures how many sums are wrong and by how much, and the time of a sum.
pub(crate) fn measure<C: Contender>(setting: &Setting<'_>) -> Measured {
    let counter = shared_counter::<C>()?;
    let token = Token::default();
    let laneless_from = setting.threads - setting.threads / 2;
    let prepare = |adder: usize| {
        if adder >= laneless_from {
            C::leave_lanes();
        }
        let (counter, token) = (&*counter, &token);
        move || {
            (0..MOVES_PER_STEP).for_each(|_| token.pass(adder as u64, |n| counter.add(n)));
            // Without a yield, two running adders would pass the token between themselves until the
            // scheduler preempts one.
            thread::yield_now();
            Ok(())
        }
    };
    // The summing thread takes a CPU from adders, another one in each round. The token still moves:
    // the adders of the other CPUs pass it among themselves.
    let seat = setting.round as usize;
    let conduct = || setting.cpus.confined(seat..seat + 1, || take_sums(&*counter, setting));
    let slice = slice::run(setting.cpus, setting.threads, 1, prepare, conduct)?;
    let (sum, truth) = (counter.sum(), (token.moves() % 2) as i64);
    ensure!(sum == truth, "the sum settled at {sum} instead of {truth}");
    let mut readings = slice.outcome.readings();
    readings.push(TOKEN_MOVES.reads(token.moves() as f64));
    Ok(readings)
}

/// Takes sums for the two halves of a slice.
fn take_sums<C: Contender>(counter: &C, setting: &Setting<'_>) -> Result<Sums> {
    let mut sums = Sums::new()?;
    sums.take_half::<1>(counter, setting)?;
    let preemptions = Preemptions::begin().context("cannot preempt the summing thread")?;
    sums.take_half::<SUMS_PER_READ>(counter, setting)?;
    drop(preemptions);
    Ok(sums)
}

/// The results of the sums of one slice.
struct Sums {
    count: u64,
    wrong: u64,
    error_max: u64,
    deviations: Deviations,
    call_ns: Histogram<u64>,
}

impl Sums {
    fn new() -> Result<Self> {
        const SIGNIFICANT_DIGITS: u8 = 3;
        let call_ns = Histogram::new(SIGNIFICANT_DIGITS)?;
        Ok(Self { count: 0, wrong: 0, error_max: 0, deviations: Deviations::default(), call_ns })
    }

    /// Takes `EACH` sums between two reads of the clock. If `EACH` is 1, it keeps their times.
    #[inline(always)]
    fn take_half<const EACH: u64>(
        &mut self,
        counter: &impl Contender,
        setting: &Setting<'_>,
    ) -> Result<()> {
        let length = setting.length / 2;
        let enough = self.count + setting.sums_min.div_ceil(2);
        let started = Instant::now();
        let mut before = started;
        loop {
            (0..EACH).for_each(|_| self.record(counter.sum()));
            let after = Instant::now();
            if EACH == 1 {
                self.call_ns.record((after - before).as_nanos() as u64)?;
            }
            let elapsed = after - started;
            let is_late = elapsed >= length * OVERTIME_MAX;
            let is_over = elapsed >= length && (self.count >= enough || is_late);
            if is_over || stop::is_requested() {
                return Ok(());
            }
            // One read of the clock ends this sum and begins the next.
            before = after;
        }
    }

    #[inline]
    fn record(&mut self, sum: i64) {
        let distance = sum - sum.clamp(0, 1);
        let error = distance.unsigned_abs();
        self.deviations.record(distance);
        self.count += 1;
        self.wrong += u64::from(error != 0);
        self.error_max = self.error_max.max(error);
    }

    fn readings(&self) -> Vec<Reading> {
        let quantile_ns = |quantile| self.call_ns.value_at_quantile(quantile) as f64;
        vec![
            SUMS.reads(self.count as f64),
            WRONG_SUMS.reads(self.wrong as f64),
            MAX_ERROR.reads(self.error_max as f64),
            TIME_PER_SUM.reads(quantile_ns(0.5)),
            TIME_PER_SUM_P999.reads(quantile_ns(0.999)),
            Reading::Deviations(Box::new(self.deviations.clone())),
        ]
    }
}

/// The token, in one word.
///
/// Bit 0 is set while an adder holds it, bits 1 to 15 are the last holder, and the others count its
/// moves. After an even number of moves the counter is 0.
#[derive(Default)]
struct Token(AtomicU64);

const HELD: u64 = 1;
const HOLDER_SHIFT: u32 = 1;
const MOVES_SHIFT: u32 = 16;
const HOLDER_MASK: u64 = (1 << MOVES_SHIFT) - 1 - HELD;

impl Token {
    /// Waits for the token of another adder, and moves it on.
    ///
    /// If none comes soon, because all others are preempted, the adder takes its own token again.
    fn pass(&self, adder: u64, add: impl Fn(i64)) {
        const YIELDS: u32 = 2;
        const SPINS: u32 = 32;
        for _ in 0..YIELDS {
            for _ in 0..SPINS {
                if self.try_move(adder, false, &add) {
                    return;
                }
                std::hint::spin_loop();
            }
            thread::yield_now();
        }
        self.try_move(adder, true, &add);
    }

    #[inline]
    fn try_move(&self, adder: u64, even_if_own: bool, add: impl Fn(i64)) -> bool {
        // Relaxed: only a hint; the exchange below checks the word again.
        let word = self.0.load(Relaxed);
        let is_own = word & HOLDER_MASK == adder << HOLDER_SHIFT;
        if word & HELD != 0 || (is_own && !even_if_own) {
            return false;
        }
        // Acquire: pairs with the Release store below by the last holder, so that its add comes
        // before this one.
        let taken = self.0.compare_exchange(word, word | HELD, Acquire, Relaxed);
        if taken.is_err() {
            return false;
        }
        let moves = word >> MOVES_SHIFT;
        add(if moves.is_multiple_of(2) { 1 } else { -1 });
        // Release: pairs with the Acquire exchange above by the next holder.
        let handed_on = (moves + 1) << MOVES_SHIFT | adder << HOLDER_SHIFT;
        self.0.store(handed_on, Release);
        true
    }

    fn moves(&self) -> u64 {
        // Relaxed: the adders have been joined.
        self.0.load(Relaxed) >> MOVES_SHIFT
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn token_adds_and_subtracts_in_turn() {
        let (token, value) = (Token::default(), Cell::new(0));
        let add = |n| value.set(value.get() + n);
        assert!(token.try_move(1, false, add));
        assert_eq!(value.get(), 1);
        assert!(!token.try_move(1, false, add), "it is adder 1's own token");
        assert!(token.try_move(4095, false, add));
        assert_eq!(value.get(), 0);
        assert!(token.try_move(4095, true, add));
        assert_eq!((value.get(), token.moves()), (1, 3));
    }

    #[test]
    fn error_is_the_distance_from_a_possible_value() {
        let mut sums = Sums::new().unwrap();
        for sum in [0, 1, 2, -3, 1] {
            sums.record(sum);
        }
        assert_eq!((sums.count, sums.wrong, sums.error_max), (5, 2, 3));
        let classes = sums.deviations.classes().map(|class| (class.from, class.to, class.sums));
        assert_eq!(classes.collect::<Vec<_>>(), [(-3, -2, 1), (0, 0, 3), (1, 1, 1)]);
    }
}
