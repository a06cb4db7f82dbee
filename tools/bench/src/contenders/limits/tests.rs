//! Every contender's guarantee: at most the limit is acquired, and everything comes back.

use thiscpu_test_support::child;

use super::{Attempt, Contender};
use crate::contenders::processes::Repeated as _;

fn keeps_the_limit<C: Contender>() {
    let limit = C::try_new(3).unwrap();
    assert_eq!([0; 5].map(|_| limit.try_acquire()), [true, true, true, false, false]);
    limit.release();
    assert!(limit.try_acquire() && !limit.try_acquire());
    (0..3).for_each(|_| limit.release());
    assert_eq!(limit.available(), 3);
}

fn loses_no_unit<C: Contender>() {
    let attempt = Attempt::<C>::at(1).unwrap();
    let children: Vec<i32> =
        (0..3).map(|_| child::start(|| (0..2_000).for_each(|_| attempt.once(0)))).collect();
    for child in children {
        assert_eq!(child::wait(child), 0);
    }
    attempt.check(6_000, 0).unwrap();
}

test_all!(keeps_the_limit loses_no_unit);
