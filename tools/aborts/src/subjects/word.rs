//! Per-CPU words of each width.

use std::fmt::Debug;

use thiscpu::{PerCpu, PerCpuInt};
use thiscpu_test_support::bits::Bits;

use crate::lane::{LaneOracle, current, on_lane};
use crate::ops;
use crate::run_case::Case;
use crate::subject::{Mismatch, Subject, WITHOUT_GATE, expect};

/// The initial value on the lane of the operation.
const INITIAL: u8 = 5;
/// The value that the operation adds or stores.
const AMOUNT: u8 = 3;
/// The value that a conflict stores, unless the word has it already.
const CONFLICT_VALUE: u8 = 7;

pub(super) fn cases() -> Vec<Case> {
    [of_width::<u8>("u8"), of_width::<u16>("u16"), of_width::<u32>("u32"), of_width::<u64>("u64")]
        .into_iter()
        .flatten()
        .collect()
}

fn of_width<T: Int>(width: &'static str) -> [Case; 4] {
    fn case<T: Int, A: PartialEq + Debug + 'static>(
        name: [&'static str; 2],
        op: fn(&PerCpu<T>) -> A,
        model: fn(T) -> (T, A),
    ) -> Case {
        Case::new(name, WITHOUT_GATE, move || Word::new(op, model))
    }
    [
        case::<T, _>(
            [width, "add"],
            |word| ops::add(word, AMOUNT.into()),
            |old| (old.plus(AMOUNT.into()), ()),
        ),
        case::<T, _>(
            [width, "add_return"],
            |word| ops::add_return(word, AMOUNT.into()),
            |old| (old.plus(AMOUNT.into()), old.plus(AMOUNT.into())),
        ),
        case::<T, _>(
            [width, "xchg"],
            |word| ops::xchg(word, AMOUNT.into()),
            |old| (AMOUNT.into(), old),
        ),
        // Succeeds if the word has its initial value.
        case::<T, _>(
            [width, "cmpxchg"],
            |word| ops::cmpxchg(word, INITIAL.into(), AMOUNT.into()),
            |old| match old == INITIAL.into() {
                true => (AMOUNT.into(), Ok(())),
                false => (old, Err(old)),
            },
        ),
    ]
}

trait Int: Bits + PerCpuInt + From<u8> + Into<u64> + Default + 'static {
    fn plus(self, n: Self) -> Self {
        Self::of(self.bits().wrapping_add(n.bits()))
    }
}

impl<T: Bits + PerCpuInt + From<u8> + Into<u64> + Default + 'static> Int for T {}

struct Word<T: Int, A> {
    word: PerCpu<T>,
    oracle: LaneOracle<T>,
    op: fn(&PerCpu<T>) -> A,
    /// Returns the value that replaces an old one, and the expected answer.
    model: fn(T) -> (T, A),
}

impl<T: Int, A> Word<T, A> {
    fn new(op: fn(&PerCpu<T>) -> A, model: fn(T) -> (T, A)) -> Self {
        let (word, oracle) = (PerCpu::new(), LaneOracle::new());
        ops::add(&word, INITIAL.into());
        oracle.at(current(), |value: &mut T| *value = INITIAL.into());
        Word { word, oracle, op, model }
    }
}

impl<T: Int, A: PartialEq + Debug> Subject for Word<T, A> {
    type Answer = A;

    fn op(&self) -> A {
        (self.op)(&self.word)
    }

    fn apply(&self, lane: usize, _: bool) -> A {
        self.oracle.at(lane, |value| {
            let (new, answer) = (self.model)(*value);
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
            let answer = ops::add_return(&self.word, T::of(new.bits().wrapping_sub(found.bits())));
            self.oracle.at(lane, |value: &mut T| *value = new);
            expect("the conflicting add", &answer, &new)
        })
    }

    fn check(&mut self) -> Result<(), Mismatch> {
        self.oracle.check(self.word.lanes())
    }
}
