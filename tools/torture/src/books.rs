//! The books: what workers added by their own account, which is what a counter must come to.
//!
//! Each worker writes an amount down as *begun*, adds it, and writes it down as *done*. An exact answer
//! is then between what was done before it was asked for and what had begun when it came, with
//! handlers, forks and threads that are stopped anywhere. When nobody adds both are the same.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst, fence};

/// Least and most.
pub(crate) type Range = (i64, i64);

/// Increases and decreases apart: of each it is known how much is in flight.
#[derive(Debug, Default)]
struct Column {
    begun: AtomicI64,
    done: AtomicI64,
}

/// One worker's page, and one cache line, so that workers do not wait for each other here.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Page {
    plus: Column,
    minus: Column,
}

/// What will be added: increases and decreases, both as positive amounts.
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

/// The books on one value.
#[derive(Debug)]
pub(crate) struct Books(Box<[Page]>);

impl Books {
    pub(crate) fn new(slots: usize) -> Books {
        Books((0..slots).map(|_| Page::default()).collect())
    }

    /// Has `amounts` added by `add`, by the worker in `slot` or a handler on it.
    pub(crate) fn add(&self, slot: usize, amounts: Amounts, add: impl FnOnce()) {
        let Page { plus, minus } = &self.0[slot];
        // SeqCst, and the fence: what `add` stores is relaxed, and must come after what is begun
        // and before what is done, for whoever reads these books.
        plus.begun.fetch_add(amounts.plus, SeqCst);
        minus.begun.fetch_add(amounts.minus, SeqCst);
        fence(SeqCst);
        add();
        plus.done.fetch_add(amounts.plus, SeqCst);
        minus.done.fetch_add(amounts.minus, SeqCst);
    }

    /// Has `take` take up to `n`, by the worker in `slot`, and returns what it took. The rest it must not
    /// have had for a moment: that is only begun while it tries.
    pub(crate) fn take(&self, slot: usize, n: i64, take: impl FnOnce() -> i64) -> i64 {
        let plus = &self.0[slot].plus;
        // SeqCst, and the fence: as in `add`.
        plus.begun.fetch_add(n, SeqCst);
        fence(SeqCst);
        let taken = take();
        plus.done.fetch_add(taken, SeqCst);
        plus.begun.fetch_sub(n - taken, SeqCst);
        taken
    }

    fn total(&self, column: impl Fn(&Page) -> &AtomicI64) -> i64 {
        // SeqCst: pairs with the additions above.
        self.0.iter().fold(0, |sum, page| sum.wrapping_add(column(page).load(SeqCst)))
    }

    /// What `ask` answers, and what an exact answer had to be within.
    pub(crate) fn around<R>(&self, ask: impl FnOnce() -> R) -> (Range, R) {
        let plus = self.total(|page| &page.plus.done);
        let minus = self.total(|page| &page.minus.done);
        fence(SeqCst);
        let answer = ask();
        fence(SeqCst);
        let low = plus.wrapping_sub(self.total(|page| &page.minus.begun));
        let high = self.total(|page| &page.plus.begun).wrapping_sub(minus);
        ((low, high), answer)
    }

    /// What was added in all, when nobody adds any more.
    pub(crate) fn settled(&self) -> i64 {
        let ((low, high), ()) = self.around(|| ());
        debug_assert_eq!(low, high);
        low
    }
}

/// Calls during which something else has no one answer.
#[derive(Debug, Default)]
pub(crate) struct Spans {
    begun: AtomicU64,
    done: AtomicU64,
}

impl Spans {
    pub(crate) fn during<R>(&self, call: impl FnOnce() -> R) -> R {
        // SeqCst here and below: begun before the call, and done after it, for whoever looks.
        self.begun.fetch_add(1, SeqCst);
        fence(SeqCst);
        let answer = call();
        self.done.fetch_add(1, SeqCst);
        answer
    }

    /// What `ask` answers, and whether no such call was under way at any time.
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

/// What was taken out of a value by `take`, which all at once becomes part of no sum.
#[derive(Debug, Default)]
pub(crate) struct Takes {
    begun: AtomicU64,
    done: AtomicU64,
    amount: AtomicI64,
}

/// A moment at which no take was under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Steady {
    number: u64,
    pub(crate) amount: i64,
}

impl Takes {
    /// Has `take` take something. Also how much, if that can be held against the books: no other take
    /// was under way at any time.
    pub(crate) fn take(&self, take: impl FnOnce() -> i64) -> Option<(Steady, i64)> {
        // SeqCst throughout: these three words are read in one order and written in the other.
        let before = self.steady();
        let number = self.begun.fetch_add(1, SeqCst);
        let amount = take();
        self.amount.fetch_add(amount, SeqCst);
        let alone = before
            .filter(|before| before.number == number && self.begun.load(SeqCst) == number + 1);
        self.done.fetch_add(1, SeqCst);
        alone.map(|before| (before, amount))
    }

    /// How much was taken so far, unless something is being taken.
    pub(crate) fn steady(&self) -> Option<Steady> {
        let number = self.done.load(SeqCst);
        let amount = self.amount.load(SeqCst);
        (self.begun.load(SeqCst) == number).then_some(Steady { number, amount })
    }

    /// Whether nothing began to be taken since.
    pub(crate) fn is_still(&self, steady: Steady) -> bool {
        self.begun.load(SeqCst) == steady.number
    }
}

/// The range of what is left when `amount` was taken out.
pub(crate) fn less((low, high): Range, amount: i64) -> Range {
    (low.wrapping_sub(amount), high.wrapping_sub(amount))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_flight_widens_the_range_and_nothing_else_does() {
        let books = Books::new(2);
        books.add(0, Amounts::of([5, -2]), || {});
        assert_eq!(books.around(|| ()).0, (3, 3));
        books.add(1, Amounts::of([10, -4, -1]), || assert_eq!(books.around(|| ()).0, (-2, 13)));
        assert_eq!(books.settled(), 8);
    }

    #[test]
    fn what_begins_during_a_question_may_be_in_its_answer() {
        let books = Books::new(1);
        let ask = || books.add(0, Amounts::of([7]), || {});
        assert_eq!(books.around(ask).0, (0, 7));
        assert_eq!(books.around(|| ()).0, (7, 7));
    }

    #[test]
    fn what_was_not_taken_was_held_only_meanwhile() {
        let books = Books::new(2);
        let meanwhile = || assert_eq!(books.around(|| ()).0, (0, 5));
        let take = || {
            meanwhile();
            2
        };
        assert_eq!(books.take(1, 5, take), 2);
        assert_eq!(books.settled(), 2);
    }

    #[test]
    fn spans_that_touch_a_call_are_noticed() {
        let spans = Spans::default();
        assert!(spans.none_during(|| ()).0);
        assert!(!spans.none_during(|| spans.during(|| ())).0);
        spans.during(|| assert!(!spans.none_during(|| ()).0));
        assert!(spans.none_during(|| ()).0);
    }

    #[test]
    fn amounts_wrap() {
        let books = Books::new(1);
        books.add(0, Amounts::of([i64::MAX, i64::MIN, i64::MAX, 1]), || {});
        assert_eq!(books.settled(), i64::MAX.wrapping_add(i64::MIN).wrapping_add(i64::MIN));
    }

    #[test]
    fn takes_that_meet_cannot_be_held_against_the_books() {
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
        assert_eq!(less((1, 2), 3), (-2, -1));
    }
}
