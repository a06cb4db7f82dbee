//! Every contender's guarantee: once all threads are done, no unit is lost and none is duplicated.
//! Also tests which contenders claim to be right.

use std::thread;

use super::Contender;
use crate::contenders::Name;

fn units_are_conserved<C: Contender>() {
    for limit in [100, 1 << 40] {
        let budget = C::new(limit);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for n in (1..=64).cycle().take(10_000) {
                        if budget.try_acquire(n) {
                            budget.release(n);
                        }
                    }
                });
            }
        });
        assert_eq!(budget.available(), limit as i64);
    }
}

fn limit_holds_for_one_thread<C: Contender>() {
    let budget = C::new(1000);
    let granted = (0..100).filter(|_| budget.try_acquire(30)).count();
    assert_eq!((granted, budget.available()), (33, 10));
    assert!(!budget.try_acquire(11));
    assert!(budget.try_acquire(10));
    budget.release(1000);
    assert_eq!(budget.available(), 1000);
}

test_all!(units_are_conserved limit_holds_for_one_thread);

#[test]
fn right_designs_claim_to_be_right() {
    let is_right = |name: &Name| super::dispatch!(*name, C => C::IS_RIGHT);
    let right: Vec<Name> = super::ALL.iter().copied().filter(is_right).collect();
    assert_eq!(right, [Name::AtomicCas, Name::Semaphore, Name::ThisCpu]);
}
