//! Words of each width.

use std::fmt::Debug;

use thiscpu::{PerCpu, PerCpuInt};

use crate::drive::Case;
use crate::lane::{Books, here, on_lane};
use crate::ops;
use crate::subject::{Conflict, Subject, WITHOUT_GATE, Wrong, expect};

/// What a word begins with, on the lane that the op begins on.
const BEGIN: u8 = 5;
/// What the op adds or puts there.
const AMOUNT: u8 = 3;
/// What a conflicting op adds or takes away, between this and what a word begins with.
const MEDDLED: u8 = 7;

pub(super) fn cases() -> Vec<Case> {
    macro_rules! of_width {
        ($($integer:ident),*) => {
            [$(
                Case::of::<Word<$integer, Add>>(stringify!($integer), "add"),
                Case::of::<Word<$integer, AddReturn>>(stringify!($integer), "add_return"),
                Case::of::<Word<$integer, Xchg>>(stringify!($integer), "xchg"),
                Case::of::<Word<$integer, Cmpxchg>>(stringify!($integer), "cmpxchg"),
            )*]
        };
    }
    of_width!(u8, u16, u32, u64).into()
}

trait Whole: PerCpuInt + From<u8> + TryFrom<u64> + Into<u64> + Debug + Default + PartialEq {
    fn plus(self, n: u8) -> Self;
    fn minus(self, n: Self) -> Self;
}

macro_rules! whole {
    ($($integer:ty),*) => {$(
        impl Whole for $integer {
            fn plus(self, n: u8) -> Self {
                self.wrapping_add(n.into())
            }

            fn minus(self, n: Self) -> Self {
                self.wrapping_sub(n)
            }
        }
    )*};
}

whole!(u8, u16, u32, u64);

/// One of the ops on a word.
trait Op<T: Whole> {
    /// What it returns; for those that return nothing, nothing.
    type Answer: PartialEq + Debug;

    fn run(word: &PerCpu<T>) -> Self::Answer;

    /// What it leaves where `there` was, and what it answers then.
    fn model(there: T) -> (T, Self::Answer);
}

enum Add {}
enum AddReturn {}
enum Xchg {}
enum Cmpxchg {}

impl<T: Whole> Op<T> for Add {
    type Answer = ();

    fn run(word: &PerCpu<T>) {
        ops::add(word, AMOUNT.into());
    }

    fn model(there: T) -> (T, ()) {
        (there.plus(AMOUNT), ())
    }
}

impl<T: Whole> Op<T> for AddReturn {
    type Answer = T;

    fn run(word: &PerCpu<T>) -> T {
        ops::add_return(word, AMOUNT.into())
    }

    fn model(there: T) -> (T, T) {
        (there.plus(AMOUNT), there.plus(AMOUNT))
    }
}

impl<T: Whole> Op<T> for Xchg {
    type Answer = T;

    fn run(word: &PerCpu<T>) -> T {
        ops::xchg(word, AMOUNT.into())
    }

    fn model(there: T) -> (T, T) {
        (AMOUNT.into(), there)
    }
}

/// Succeeds where the word is what it began as.
impl<T: Whole> Op<T> for Cmpxchg {
    type Answer = Result<(), T>;

    fn run(word: &PerCpu<T>) -> Result<(), T> {
        ops::cmpxchg(word, BEGIN.into(), AMOUNT.into())
    }

    fn model(there: T) -> (T, Result<(), T>) {
        match there == BEGIN.into() {
            true => (AMOUNT.into(), Ok(())),
            false => (there, Err(there)),
        }
    }
}

struct Word<T: Whole, O: Op<T>> {
    word: PerCpu<T>,
    books: Books<T>,
    op: std::marker::PhantomData<O>,
}

impl<T: Whole, O: Op<T>> Subject for Word<T, O> {
    type Answer = O::Answer;

    const CONFLICTS: &'static [Conflict] = WITHOUT_GATE;

    fn new() -> Self {
        let (word, books) = (PerCpu::new(), Books::new());
        ops::add(&word, BEGIN.into());
        books.at(here(), |there: &mut T| *there = BEGIN.into());
        Word { word, books, op: std::marker::PhantomData }
    }

    fn op(&self) -> O::Answer {
        O::run(&self.word)
    }

    fn book(&self, lane: usize, _: bool) -> O::Answer {
        self.books.at(lane, |there| {
            let (new, answer) = O::model(*there);
            *there = new;
            answer
        })
    }

    /// Makes a word that is what it began as another, and one that is not what it began as. So a
    /// comparison fails after one of these, and succeeds on a lane of which the op knew nothing.
    fn meddle(&self) -> Result<(), Wrong> {
        on_lane(|lane| {
            let there = self.books.at(lane, |there: &mut T| *there);
            let new: T = if there == BEGIN.into() { MEDDLED.into() } else { BEGIN.into() };
            let answer = ops::add_return(&self.word, new.minus(there));
            self.books.at(lane, |there: &mut T| *there = new);
            expect("the conflicting add", &answer, &new)
        })
    }

    fn check(&mut self) -> Result<(), Wrong> {
        self.books.check(self.word.lanes())
    }
}
