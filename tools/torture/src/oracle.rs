//! The oracle: what workers have added, and therefore what a counter must hold.
//!
//! Each worker records an amount as *begun*, adds it, and records it as *done*. An exact answer is
//! then between the amounts that were done before the question and those that had begun at the
//! answer, whatever handlers, forks and stopped threads do meanwhile. While no thread adds, both
//! ends are equal.

use std::sync::atomic::{
    AtomicI64, AtomicU64,
    Ordering::{Relaxed, SeqCst},
    fence,
};

/// The least and the greatest possible value.
pub(crate) type Range = (i64, i64);

/// Increases or decreases. They are apart so that it is known how much of each is in flight.
#[derive(Debug, Default)]
struct Column {
    begun: AtomicI64,
    done: AtomicI64,
}

/// One worker's record.
///
/// It has a cache line of its own, so workers do not delay each other here.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Record {
    plus: Column,
    minus: Column,
}

/// Amounts to add: the sum of increases and the sum of decreases, both positive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amounts {
    plus: i64,
    minus: i64,
}

impl Amounts {
    pub(crate) fn of(amounts: impl IntoIterator<Item = i64>) -> Amounts {
        amounts.into_iter().fold(Amounts::default(), |sum, n| match n < 0 {
            true => Amounts { minus: sum.minus.wrapping_sub(n), ..sum },
            false => Amounts { plus: sum.plus.wrapping_add(n), ..sum },
        })
    }
}

/// The oracle of one value.
#[derive(Debug, Default)]
pub(crate) struct Oracle(Box<[Record]>);

impl Oracle {
    pub(crate) fn new(slots: usize) -> Oracle {
        Oracle((0..slots).map(|_| Record::default()).collect())
    }

    /// Records that `add` adds `amounts`, on the worker in `slot` or in a handler on it.
    pub(crate) fn add(&self, slot: usize, amounts: Amounts, add: impl FnOnce()) {
        let Record { plus, minus } = &self.0[slot];
        // SeqCst, and the fence: the stores of `add` may be relaxed. They must come after the begun
        // amounts and before the done amounts for a reader. Pairs with the loads and fences in
        // `around`.
        plus.begun.fetch_add(amounts.plus, SeqCst);
        minus.begun.fetch_add(amounts.minus, SeqCst);
        fence(SeqCst);
        add();
        plus.done.fetch_add(amounts.plus, SeqCst);
        minus.done.fetch_add(amounts.minus, SeqCst);
    }

    /// Records that `take` takes up to `n`, on the worker in `slot`, and returns the amount.
    ///
    /// The rest counts as begun only while the call runs.
    pub(crate) fn take(&self, slot: usize, n: i64, take: impl FnOnce() -> i64) -> i64 {
        let plus = &self.0[slot].plus;
        // SeqCst, and the fence: pairs with the loads and fences in `around`, as in `add`.
        plus.begun.fetch_add(n, SeqCst);
        fence(SeqCst);
        let taken = take();
        plus.done.fetch_add(taken, SeqCst);
        plus.begun.fetch_sub(n - taken, SeqCst);
        taken
    }

    fn total(&self, column: impl Fn(&Record) -> &AtomicI64) -> i64 {
        // SeqCst: pairs with the additions in `add` and `take`.
        self.0.iter().fold(0, |sum, page| sum.wrapping_add(column(page).load(SeqCst)))
    }

    /// Returns the answer of `ask`, and the range that an exact answer must be in.
    pub(crate) fn around<R>(&self, ask: impl FnOnce() -> R) -> (Range, R) {
        let plus = self.total(|page| &page.plus.done);
        let minus = self.total(|page| &page.minus.done);
        // Both fences pair with those in `add` and `take`.
        fence(SeqCst);
        let answer = ask();
        fence(SeqCst);
        let low = plus.wrapping_sub(self.total(|page| &page.minus.begun));
        let high = self.total(|page| &page.plus.begun).wrapping_sub(minus);
        ((low, high), answer)
    }

    /// Returns the sum of all amounts, after all workers have ended.
    pub(crate) fn settled(&self) -> i64 {
        let ((low, high), ()) = self.around(|| ());
        debug_assert_eq!(low, high);
        low
    }
}

/// What each worker has counted, read after all workers have ended.
#[derive(Debug)]
pub(crate) struct Tally(Box<[AtomicU64]>);

impl Tally {
    pub(crate) fn new(slots: usize) -> Tally {
        Tally((0..slots).map(|_| AtomicU64::new(0)).collect())
    }

    /// Adds `n`, on the worker in `slot` or in a handler on it.
    pub(crate) fn add(&self, slot: usize, n: u64) {
        // Relaxed: the workers have ended, and have been joined, when `total` reads it.
        self.0[slot].fetch_add(n, Relaxed);
    }

    /// Returns the sum of all workers' counts, which may wrap around.
    pub(crate) fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, count| sum.wrapping_add(count.load(Relaxed)))
    }
}

/// Calls during which another question has no single answer.
#[derive(Debug, Default)]
pub(crate) struct Spans {
    begun: AtomicU64,
    done: AtomicU64,
}

impl Spans {
    /// Records that `call` runs.
    pub(crate) fn during<R>(&self, call: impl FnOnce() -> R) -> R {
        // SeqCst, here and in `none_during`, with the fences: begun before the call and done after
        // it, for each reader.
        self.begun.fetch_add(1, SeqCst);
        fence(SeqCst);
        let answer = call();
        self.done.fetch_add(1, SeqCst);
        answer
    }

    /// Returns the answer of `ask`, and whether no such call ran at any time meanwhile.
    pub(crate) fn none_during<R>(&self, ask: impl FnOnce() -> R) -> (bool, R) {
        let done = self.done.load(SeqCst);
        let is_still = || self.begun.load(SeqCst) == done;
        let was_still = is_still();
        fence(SeqCst);
        let answer = ask();
        fence(SeqCst);
        (was_still && is_still(), answer)
    }
}

/// Amounts that `take` has removed from a value. Each leaves all sums at one instant.
#[derive(Debug, Default)]
pub(crate) struct Takes {
    begun: AtomicU64,
    done: AtomicU64,
    amount: AtomicI64,
}

/// A moment at which no take ran.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Steady {
    number: u64,
    pub(crate) amount: i64,
}

impl Takes {
    /// Records a take, and returns its amount and the moment before it.
    ///
    /// Returns `None` if another take ran at any time meanwhile, so the amount cannot be compared
    /// with the oracle.
    pub(crate) fn take(&self, take: impl FnOnce() -> i64) -> Option<(Steady, i64)> {
        // SeqCst, here and in `steady`: these three words are written in one order and read in the
        // other.
        let before = self.steady();
        let number = self.begun.fetch_add(1, SeqCst);
        let amount = take();
        self.amount.fetch_add(amount, SeqCst);
        let alone = before
            .filter(|before| before.number == number && self.begun.load(SeqCst) == number + 1);
        self.done.fetch_add(1, SeqCst);
        alone.map(|before| (before, amount))
    }

    /// Returns how much was taken so far, unless a take is running.
    pub(crate) fn steady(&self) -> Option<Steady> {
        let number = self.done.load(SeqCst);
        let amount = self.amount.load(SeqCst);
        (self.begun.load(SeqCst) == number).then_some(Steady { number, amount })
    }

    /// Returns whether no take has begun since `steady`.
    pub(crate) fn is_still(&self, steady: Steady) -> bool {
        self.begun.load(SeqCst) == steady.number
    }
}

pub(crate) fn minus((low, high): Range, amount: i64) -> Range {
    (low.wrapping_sub(amount), high.wrapping_sub(amount))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_in_flight_widen_the_range() {
        let oracle = Oracle::new(2);
        oracle.add(0, Amounts::of([5, -2]), || {});
        assert_eq!(oracle.around(|| ()).0, (3, 3));
        oracle.add(1, Amounts::of([10, -4, -1]), || assert_eq!(oracle.around(|| ()).0, (-2, 13)));
        assert_eq!(oracle.settled(), 8);
    }

    #[test]
    fn amounts_begun_during_a_question_may_be_in_its_answer() {
        let oracle = Oracle::new(1);
        let ask = || oracle.add(0, Amounts::of([7]), || {});
        assert_eq!(oracle.around(ask).0, (0, 7));
        assert_eq!(oracle.around(|| ()).0, (7, 7));
    }

    #[test]
    fn amounts_not_taken_count_only_during_the_call() {
        let oracle = Oracle::new(2);
        let meanwhile = || assert_eq!(oracle.around(|| ()).0, (0, 5));
        let take = || {
            meanwhile();
            2
        };
        assert_eq!(oracle.take(1, 5, take), 2);
        assert_eq!(oracle.settled(), 2);
    }

    #[test]
    fn spans_notice_overlapping_calls() {
        let spans = Spans::default();
        assert!(spans.none_during(|| ()).0);
        assert!(!spans.none_during(|| spans.during(|| ())).0);
        spans.during(|| assert!(!spans.none_during(|| ()).0));
        assert!(spans.none_during(|| ()).0);
    }

    #[test]
    fn amounts_wrap_around() {
        let oracle = Oracle::new(1);
        oracle.add(0, Amounts::of([i64::MAX, i64::MIN, i64::MAX, 1]), || {});
        assert_eq!(oracle.settled(), i64::MAX.wrapping_add(i64::MIN).wrapping_add(i64::MIN));
    }

    #[test]
    fn overlapping_takes_have_no_known_amount() {
        let takes = Takes::default();
        let (before, amount) = takes.take(|| 4).unwrap();
        assert_eq!((before.amount, amount), (0, 4));
        let steady = takes.steady().unwrap();
        assert_eq!(steady.amount, 4);
        let outer = takes.take(|| {
            assert!(takes.steady().is_none());
            assert!(takes.take(|| 2).is_none());
            1
        });
        assert!(outer.is_none());
        assert!(!takes.is_still(steady));
        assert_eq!(takes.steady().unwrap().amount, 7);
        assert_eq!(minus((1, 2), 3), (-2, -1));
    }
}
