//! Per-CPU words of each width.

use std::fmt::Debug;

use thiscpu::{PerCpu, PerCpuInt};

use crate::lane::{LaneOracle, current, on_lane};
use crate::ops;
use crate::run_case::Case;
use crate::subject::{Conflict, Mismatch, Subject, WITHOUT_GATE, expect};

/// The initial value on the lane of the operation.
const INITIAL: u8 = 5;
/// The value that the operation adds or stores.
const AMOUNT: u8 = 3;
/// The value that a conflict stores, unless the word has it already.
const CONFLICT_VALUE: u8 = 7;

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

trait Int: PerCpuInt + From<u8> + TryFrom<u64> + Into<u64> + Debug + Default + PartialEq {
    fn plus(self, n: u8) -> Self;
    fn minus(self, n: Self) -> Self;
}

macro_rules! int {
    ($($integer:ty),*) => {$(
        impl Int for $integer {
            fn plus(self, n: u8) -> Self {
                self.wrapping_add(n.into())
            }

            fn minus(self, n: Self) -> Self {
                self.wrapping_sub(n)
            }
        }
    )*};
}

int!(u8, u16, u32, u64);

/// An operation on a word.
trait Op<T: Int> {
    type Answer: PartialEq + Debug;

    fn run(word: &PerCpu<T>) -> Self::Answer;

    /// Returns the value that replaces `old`, and the expected answer.
    fn model(old: T) -> (T, Self::Answer);
}

enum Add {}
enum AddReturn {}
enum Xchg {}
enum Cmpxchg {}

impl<T: Int> Op<T> for Add {
    type Answer = ();

    fn run(word: &PerCpu<T>) {
        ops::add(word, AMOUNT.into());
    }

    fn model(old: T) -> (T, ()) {
        (old.plus(AMOUNT), ())
    }
}

impl<T: Int> Op<T> for AddReturn {
    type Answer = T;

    fn run(word: &PerCpu<T>) -> T {
        ops::add_return(word, AMOUNT.into())
    }

    fn model(old: T) -> (T, T) {
        (old.plus(AMOUNT), old.plus(AMOUNT))
    }
}

impl<T: Int> Op<T> for Xchg {
    type Answer = T;

    fn run(word: &PerCpu<T>) -> T {
        ops::xchg(word, AMOUNT.into())
    }

    fn model(old: T) -> (T, T) {
        (AMOUNT.into(), old)
    }
}

/// Succeeds if the word has its initial value.
impl<T: Int> Op<T> for Cmpxchg {
    type Answer = Result<(), T>;

    fn run(word: &PerCpu<T>) -> Result<(), T> {
        ops::cmpxchg(word, INITIAL.into(), AMOUNT.into())
    }

    fn model(old: T) -> (T, Result<(), T>) {
        match old == INITIAL.into() {
            true => (AMOUNT.into(), Ok(())),
            false => (old, Err(old)),
        }
    }
}

struct Word<T: Int, O: Op<T>> {
    word: PerCpu<T>,
    oracle: LaneOracle<T>,
    op: std::marker::PhantomData<O>,
}

impl<T: Int, O: Op<T>> Subject for Word<T, O> {
    type Answer = O::Answer;

    const CONFLICTS: &'static [Conflict] = WITHOUT_GATE;

    fn new() -> Self {
        let (word, oracle) = (PerCpu::new(), LaneOracle::new());
        ops::add(&word, INITIAL.into());
        oracle.at(current(), |value: &mut T| *value = INITIAL.into());
        Word { word, oracle, op: std::marker::PhantomData }
    }

    fn op(&self) -> O::Answer {
        O::run(&self.word)
    }

    fn apply(&self, lane: usize, _: bool) -> O::Answer {
        self.oracle.at(lane, |value| {
            let (new, answer) = O::model(*value);
            *value = new;
            answer
        })
    }

    /// Replaces the initial value by another one, and any other value by the initial one.
    ///
    /// So a comparison fails after one conflict, and succeeds on a lane that the operation has not
    /// seen.
    fn conflict_here(&self) -> Result<(), Mismatch> {
        on_lane(|lane| {
            let found = self.oracle.at(lane, |value: &mut T| *value);
            let new: T =
                if found == INITIAL.into() { CONFLICT_VALUE.into() } else { INITIAL.into() };
            let answer = ops::add_return(&self.word, new.minus(found));
            self.oracle.at(lane, |value: &mut T| *value = new);
            expect("the conflicting add", &answer, &new)
        })
    }

    fn check(&mut self) -> Result<(), Mismatch> {
        self.oracle.check(self.word.lanes())
    }
}
