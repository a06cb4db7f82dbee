//! What is driven: an op of the library on something, with books of what it must come to.

/// What happens while a section is aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conflict {
    /// Another op on the same lane.
    SameLane,
    /// A move to another CPU, with ops on both lanes.
    Move,
    /// The thread loses its registration, and so its lane, for good.
    Leave,
    /// A sum: the gate points to the other bank.
    Flip,
    /// A comparison that needs the exact value, or a cache that shrinks: the gate is closed.
    Close,
    /// The value is taken: the gate is closed and opened again.
    Take,
    /// Nothing else, but it happens each time that the section is tried again.
    Always,
}

impl Conflict {
    pub(crate) fn words(self) -> &'static str {
        match self {
            Conflict::SameLane => "another op on its lane",
            Conflict::Move => "a move to another CPU",
            Conflict::Leave => "the loss of its registration",
            Conflict::Flip => "a flip of its gate",
            Conflict::Close => "its gate closed",
            Conflict::Take => "its value taken",
            Conflict::Always => "being aborted each time",
        }
    }
}

/// What conflicts with an op that has no gate.
pub(crate) const WITHOUT_GATE: &[Conflict] =
    &[Conflict::SameLane, Conflict::Move, Conflict::Leave, Conflict::Always];

/// What conflicts with a counter's.
pub(crate) const WITH_GATE: &[Conflict] = &[
    Conflict::SameLane,
    Conflict::Move,
    Conflict::Leave,
    Conflict::Flip,
    Conflict::Close,
    Conflict::Take,
    Conflict::Always,
];

/// What was there and what should have been.
pub(crate) type Wrong = String;

/// One op on one object, which is made anew for each run.
pub(crate) trait Subject {
    type Answer: PartialEq + std::fmt::Debug;

    const CONFLICTS: &'static [Conflict];
    /// Whether the op has happened when the section that is stopped has committed.
    const COMMIT_IS_THE_OP: bool = true;

    /// Whether there is something to look at when the op is tried again after the section that is
    /// stopped, and before it has happened.
    const LOOKS_BETWEEN: bool = false;

    /// Whether this subject is there to drive that section, which its op comes through. Not if the op
    /// is refused half way through it.
    fn drives(_section: &str) -> bool {
        true
    }

    fn new() -> Self;

    /// The op. What it does is not in the books yet.
    fn op(&self) -> Self::Answer;

    /// Enters the op into the books, as happening now and on this lane, and says what it must answer.
    fn book(&self, lane: usize, aborted: bool) -> Self::Answer;

    /// Another op on the lane of the calling thread, books included.
    fn meddle(&self) -> Result<(), Wrong>;

    /// One of the conflicts with a gate.
    fn turn_gate(&self, conflict: Conflict) -> Result<(), Wrong> {
        Err(format!("there is no gate for {}", conflict.words()))
    }

    /// Whether what is there between two tries agrees with the books. Uses no section.
    fn look(&self) -> Result<(), Wrong> {
        Ok(())
    }

    /// Whether what is there is what the books say.
    fn check(&mut self) -> Result<(), Wrong>;
}

/// Whether an answer is the expected one.
pub(crate) fn expect<A: PartialEq + std::fmt::Debug>(
    what: &str,
    there: &A,
    expected: &A,
) -> Result<(), Wrong> {
    match there == expected {
        true => Ok(()),
        false => Err(format!("{what}: {there:?}, but it must be {expected:?}")),
    }
}
