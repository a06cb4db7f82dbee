//! Is a history linearizable? (Herlihy and Wing, 1990; the search is Wing and Gong's, 1993, with the
//! states that were seen remembered, as Lowe does, 2017.)

use std::collections::HashSet;
use std::hash::Hash;

/// One call: when it began and ended, by a clock that never shows a time twice, and what it did.
#[derive(Clone, Debug)]
pub(crate) struct Call<Op> {
    pub(crate) began: u64,
    pub(crate) ended: u64,
    pub(crate) op: Op,
}

/// What a history must be explained by.
pub(crate) trait Specification: Clone + Eq + Hash {
    type Op;

    /// The state after `op`, if `op` may have happened, with its result, in this one.
    fn after(&self, op: &Self::Op) -> Option<Self>;
}

/// Whether there is an order of the calls, in which each that ended before another began comes
/// before it, such that each is as the specification says. Up to 64 calls.
pub(crate) fn is_linearizable<S: Specification>(start: S, calls: &[Call<S::Op>]) -> bool {
    assert!(calls.len() <= 64, "longer histories take too long to check");
    let all = (1u128 << calls.len()).wrapping_sub(1) as u64;
    let mut seen = HashSet::new();
    let mut open = vec![(0u64, start)];
    while let Some((done, state)) = open.pop() {
        if done == all {
            return true;
        }
        if !seen.insert((done, state.clone())) {
            continue;
        }
        let left = || calls.iter().enumerate().filter(|(i, _)| done >> i & 1 == 0);
        // The next call in the order began before any that is left had ended.
        let first_end = left().map(|(_, call)| call.ended).min().unwrap_or(0);
        for (i, call) in left().filter(|(_, call)| call.began < first_end) {
            if let Some(next) = state.after(&call.op) {
                open.push((done | 1 << i, next));
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A register of one number.
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Register(i64);

    #[derive(Clone, Copy)]
    enum Op {
        Add(i64),
        Read(i64),
    }
    use Op::{Add, Read};

    impl Specification for Register {
        type Op = Op;

        fn after(&self, op: &Op) -> Option<Register> {
            match *op {
                Add(n) => Some(Register(self.0 + n)),
                Read(value) => (value == self.0).then(|| self.clone()),
            }
        }
    }

    fn check(calls: &[(u64, u64, Op)]) -> bool {
        let call = |&(began, ended, op)| Call { began, ended, op };
        is_linearizable(Register(0), &calls.iter().map(call).collect::<Vec<_>>())
    }

    #[test]
    fn linearizable_histories_are_accepted() {
        assert!(check(&[]));
        assert!(check(&[(1, 2, Add(1)), (3, 4, Read(1))]));
        // The read overlaps the add, so it may come first or last.
        assert!(check(&[(1, 4, Add(1)), (2, 3, Read(0))]));
        assert!(check(&[(1, 4, Add(1)), (2, 3, Read(1))]));
        // Two reads may split two adds.
        let adds = [(1, 10, Add(1)), (2, 11, Add(2))];
        assert!(check(&[adds[0], adds[1], (3, 4, Read(2)), (5, 6, Read(3))]));
        // A call that ended long ago and one that has just begun.
        assert!(check(&[(1, 2, Add(5)), (3, 8, Add(-5)), (4, 7, Read(0))]));
    }

    #[test]
    fn other_histories_are_rejected() {
        // A read that misses what ended before it, and one that sees what comes after it.
        assert!(!check(&[(1, 2, Add(1)), (3, 4, Read(0))]));
        assert!(!check(&[(1, 2, Read(1)), (3, 4, Add(1))]));
        // A value that never was.
        assert!(!check(&[(1, 4, Add(2)), (2, 3, Read(1))]));
        // Back in time: the add was seen, and then not.
        assert!(!check(&[(1, 10, Add(1)), (2, 3, Read(1)), (4, 5, Read(0))]));
        // Two readers that see two adds in different orders.
        let adds = [(1, 10, Add(1)), (2, 11, Add(2))];
        let reads = [(3, 4, Read(1)), (5, 6, Read(2))];
        assert!(!check(&[adds[0], adds[1], reads[0], reads[1]]));
        // Lanes added up one after the other while a token passes: the new unit without the old
        // one's end, in time that does not allow it.
        let passed = [(1, 2, Add(1)), (4, 5, Add(1)), (6, 7, Add(-1))];
        assert!(!check(&[passed[0], passed[1], passed[2], (3, 8, Read(0))]));
    }

    #[test]
    fn long_history_is_checked_quickly() {
        let adds = (0..14).map(|i| (i, 100 + i, Add(1)));
        let reads = (0..30).map(|i| (200 + 2 * i, 201 + 2 * i, Read(14)));
        assert!(check(&adds.clone().chain(reads).collect::<Vec<_>>()));
        assert!(!check(&adds.chain([(200, 201, Read(13))]).collect::<Vec<_>>()));
    }
}
