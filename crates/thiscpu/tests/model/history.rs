//! A linearizability checker (Herlihy and Wing, 1990).
//!
//! It uses Wing and Gong's search (1993), and remembers the states it has seen, as Lowe does
//! (2017).

use std::collections::HashSet;
use std::hash::Hash;

/// One call: what it did, and when it began and ended, on a clock that never repeats a time.
#[derive(Clone, Debug)]
pub(crate) struct Call<Op> {
    pub(crate) began: u64,
    pub(crate) ended: u64,
    pub(crate) op: Op,
}

/// A sequential specification that must explain a history.
pub(crate) trait Specification: Clone + Eq + Hash {
    type Op;

    /// Returns the state after `op`, or `None` if `op` cannot have its result in this state.
    fn after(&self, op: &Self::Op) -> Option<Self>;
}

/// Returns whether some order of the calls explains their results.
///
/// If one call ended before another began, the order must keep them that way. Takes at most 64
/// calls.
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
        // The next call in the order must have begun before any remaining call ended.
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

    /// A register that holds one number.
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
        // The read overlaps the add, so either may come first.
        assert!(check(&[(1, 4, Add(1)), (2, 3, Read(0))]));
        assert!(check(&[(1, 4, Add(1)), (2, 3, Read(1))]));
        // Two reads may see two adds one after the other.
        let adds = [(1, 10, Add(1)), (2, 11, Add(2))];
        assert!(check(&[adds[0], adds[1], (3, 4, Read(2)), (5, 6, Read(3))]));
        // The first add ended long before the second began.
        assert!(check(&[(1, 2, Add(5)), (3, 8, Add(-5)), (4, 7, Read(0))]));
    }

    #[test]
    fn other_histories_are_rejected() {
        // One read misses an add that ended before it; one sees an add that began after it.
        assert!(!check(&[(1, 2, Add(1)), (3, 4, Read(0))]));
        assert!(!check(&[(1, 2, Read(1)), (3, 4, Add(1))]));
        // The register never held this value.
        assert!(!check(&[(1, 4, Add(2)), (2, 3, Read(1))]));
        // The first read sees the add and the second does not.
        assert!(!check(&[(1, 10, Add(1)), (2, 3, Read(1)), (4, 5, Read(0))]));
        // Two readers see two adds in different orders.
        let adds = [(1, 10, Add(1)), (2, 11, Add(2))];
        let reads = [(3, 4, Read(1)), (5, 6, Read(2))];
        assert!(!check(&[adds[0], adds[1], reads[0], reads[1]]));
        // A sum that reads lanes one after the other while a token moves: it counts the end of the
        // first unit but misses the second unit.
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
