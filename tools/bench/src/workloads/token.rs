//! `sum`, case `token`: whether a sum ever has a value that the counter never had.
//!
//! Adders pass a token: the next holder adds 1 if the previous one subtracted 1, and subtracts 1
//! otherwise. Only the holder adds, so the true value is always 0 or 1, and any other sum is wrong.
//! Half of the adders have no lane. Meanwhile one thread sums. In the first half of the round its
//! sums are timed; in the second half it is interrupted constantly, so that many adds happen in the
//! middle of its sums.

use std::{
    sync::atomic::{
        AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use hdrhistogram::Histogram;

use super::{Measured, Setting, shared_counter};
use crate::{
    contenders::counters::Contender,
    deviations::Deviations,
    metric::{MAX_ERROR, Reading, SUMS, TIME_PER_SUM, TIME_PER_SUM_P999, TOKEN_MOVES, WRONG_SUMS},
    preempt::Preemptions,
    slice,
};

/// The factor by which a half may take longer than planned to reach its number of sums.
const OVERTIME_MAX: u32 = 50;

/// Sums between two reads of the clock while they are not timed.
///
/// A read of the clock takes longer than most sums, and an interruption of it tests nothing.
const SUMS_A_LOOK: u64 = 16;

/// Moves of an adder before it yields to other threads on its CPU.
const MOVES_A_TURN: u32 = 16;

/// Measures the number of wrong sums, their largest error, and the time of a sum.
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
            (0..MOVES_A_TURN).for_each(|_| token.pass(adder as u64, |n| counter.add(n)));
            // Other adders on this CPU get a turn. Otherwise two running adders would pass the
            // token between themselves until the scheduler preempts one.
            thread::yield_now();
            Ok(())
        }
    };
    // The summing thread shares a CPU with adders, another one in each round. The adders that it
    // displaces do not stop the token: those on other CPUs pass it among themselves.
    let seat = setting.round as usize;
    let conduct = || {
        let half = Half { length: setting.length / 2, sums_min: setting.sums_min.div_ceil(2) };
        let summing = || take_sums(&*counter, &half);
        setting.cpus.confined(seat..seat + 1, summing).context("cannot pin the summing thread")?
    };
    let slice = slice::run(setting.cpus, setting.threads, 1, prepare, conduct)?;
    let (sum, truth) = (counter.sum(), (token.moves() % 2) as i64);
    ensure!(sum == truth, "the final sum is {sum} instead of {truth}");
    let mut readings = slice.outcome.readings();
    readings.push(TOKEN_MOVES.reads(token.moves() as f64));
    Ok(readings)
}

/// Takes sums for both halves of a round.
fn take_sums<C: Contender>(counter: &C, half: &Half) -> Result<Sums> {
    let mut sums = Sums::new()?;
    half.take::<1>(counter, &mut sums)?;
    let preemptions = Preemptions::begin().context("cannot interrupt the summing thread")?;
    half.take::<SUMS_A_LOOK>(counter, &mut sums)?;
    drop(preemptions);
    Ok(sums)
}

/// The length of a half, and its least number of sums.
struct Half {
    length: Duration,
    sums_min: u64,
}

impl Half {
    /// Takes sums, `EACH` between two reads of the clock. If `EACH` is 1, records their times.
    #[inline(always)]
    fn take<const EACH: u64>(&self, counter: &impl Contender, sums: &mut Sums) -> Result<()> {
        let enough = sums.count + self.sums_min;
        let started = Instant::now();
        let mut before = started;
        loop {
            (0..EACH).for_each(|_| sums.record(counter.sum()));
            let after = Instant::now();
            if EACH == 1 {
                sums.call_ns.record((after - before).as_nanos() as u64)?;
            }
            let elapsed = after - started;
            if EACH > 1 {
                slice::check_stop()?;
            }
            let is_late = elapsed >= self.length * OVERTIME_MAX;
            if elapsed >= self.length && (sums.count >= enough || is_late) {
                return Ok(());
            }
            // One read of the clock ends this sum and begins the next.
            before = after;
        }
    }
}

/// The results of the sums of one round.
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
        Ok(Self { count: 0, wrong: 0, error_max: 0, deviations: Deviations::new(), call_ns })
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
/// Bit 0 is set while a thread holds the token, bits 1 to 15 name the last holder, and the other
/// bits count its moves. An even count means that the counter is at 0.
#[derive(Default)]
struct Token(AtomicU64);

const HELD: u64 = 1;
const HOLDER_SHIFT: u32 = 1;
const MOVES_SHIFT: u32 = 16;
const HOLDER_MASK: u64 = (1 << MOVES_SHIFT) - 1 - HELD;

impl Token {
    /// Waits briefly for another adder to pass the token, and moves it on.
    ///
    /// If no other adder does, for example because all are preempted, this adder moves the token
    /// that it has passed itself.
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
    fn try_move(&self, adder: u64, even_if_mine: bool, add: impl Fn(i64)) -> bool {
        // Relaxed: the value is only a hint; the exchange below decides.
        let word = self.0.load(Relaxed);
        let is_mine = word & HOLDER_MASK == adder << HOLDER_SHIFT;
        if word & HELD != 0 || (is_mine && !even_if_mine) {
            return false;
        }
        // Acquire: pairs with the Release store below, made by the previous holder, so that its add
        // happens before this one.
        let taken = self.0.compare_exchange(word, word | HELD, Acquire, Relaxed);
        if taken.is_err() {
            return false;
        }
        let moves = word >> MOVES_SHIFT;
        add(if moves.is_multiple_of(2) { 1 } else { -1 });
        // Release: pairs with the Acquire exchange above, made by the next holder.
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
        assert!(!token.try_move(1, false, add), "an adder moved its own token");
        assert!(token.try_move(4095, false, add));
        assert_eq!(value.get(), 0);
        assert!(token.try_move(4095, true, add));
        assert_eq!((value.get(), token.moves()), (1, 3));
    }

    #[test]
    fn sum_error_is_distance_from_possible_values() {
        let mut sums = Sums::new().unwrap();
        for sum in [0, 1, 2, -3, 1] {
            sums.record(sum);
        }
        assert_eq!((sums.count, sums.wrong, sums.error_max), (5, 2, 3));
        let classes = sums.deviations.classes().map(|class| (class.from, class.to, class.sums));
        assert_eq!(classes.collect::<Vec<_>>(), [(-3, -2, 1), (0, 0, 3), (1, 1, 1)]);
    }
}
