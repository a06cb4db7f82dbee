//! A subject: an operation of the library on a structure, with an oracle of its effect.

/// What happens while a section is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conflict {
    /// Another operation on the same lane.
    SameLane,
    /// A move to another CPU, with operations on both lanes.
    Move,
    /// The thread loses its registration and its lane for good, with operations before and after.
    Leave,
    /// A scope of vfork begins, with operations before and after.
    Vfork,
    /// A sum: the gate points to the other bank.
    Flip,
    /// A comparison that needs the exact value, or a cache that shrinks: the gate is closed.
    Close,
    /// A take: the gate is closed and opened again.
    Take,
    /// Only the abort, but each time that the section is tried again.
    Always,
}

impl Conflict {
    pub(crate) fn description(self) -> &'static str {
        match self {
            Conflict::SameLane => "another operation on its lane",
            Conflict::Move => "a move to another CPU",
            Conflict::Leave => "the loss of its registration",
            Conflict::Vfork => "a scope of vfork",
            Conflict::Flip => "a flip of its gate",
            Conflict::Close => "its gate closed",
            Conflict::Take => "its value taken",
            Conflict::Always => "an abort of each attempt",
        }
    }
}

use Conflict::{Always, Close, Flip, Leave, Move, SameLane, Take, Vfork};

/// The conflicts of an operation without a gate.
pub(crate) const WITHOUT_GATE: &[Conflict] = &[SameLane, Move, Leave, Vfork, Always];
/// The conflicts of an operation whose gate has no second bank.
pub(crate) const WITHOUT_FLIP: &[Conflict] = &[SameLane, Move, Leave, Vfork, Close, Take, Always];
/// The conflicts of an operation on a counter.
pub(crate) const WITH_GATE: &[Conflict] =
    &[SameLane, Move, Leave, Vfork, Flip, Close, Take, Always];

/// The actual and the expected value, in words.
pub(crate) type Mismatch = String;

/// One operation on one structure, which is created for each run.
pub(crate) trait Subject {
    type Answer: PartialEq + std::fmt::Debug;

    /// Runs the operation. The oracle does not contain it yet.
    fn op(&self) -> Self::Answer;

    /// Applies the operation to the oracle, now and on `lane`, and returns the expected answer.
    fn apply(&self, lane: usize, aborted: bool) -> Self::Answer;

    /// Runs another operation on the lane of the calling thread, and applies it to the oracle.
    fn conflict_here(&self) -> Result<(), Mismatch>;

    /// Causes one of the conflicts of a gate.
    fn use_gate(&self, conflict: Conflict) -> Result<(), Mismatch> {
        Err(format!("the structure has no gate for {}", conflict.description()))
    }

    /// Checks the structure between two attempts, without using a section.
    fn check_between(&self) -> Result<(), Mismatch> {
        Ok(())
    }

    /// Checks that the structure holds what the oracle says.
    fn check(&mut self) -> Result<(), Mismatch>;
}

/// Checks that an answer is the expected one.
pub(crate) fn expect<A: PartialEq + std::fmt::Debug>(
    what: &str,
    found: &A,
    expected: &A,
) -> Result<(), Mismatch> {
    match found == expected {
        true => Ok(()),
        false => Err(format!("{what}: found {found:?}, expected {expected:?}")),
    }
}
