//! Every contender admits its burst, and then refuses.

use super::Contender;
use crate::contenders::Name;

fn burst_is_admitted<C: Contender>() {
    let limit = C::new(1, 1);
    assert!(limit.try_acquire());
    assert!(!limit.try_acquire());
    let limit = C::new(1 << 30, 1 << 20);
    assert!((0..1_000).all(|_| limit.try_acquire()));
}

test_all!(burst_is_admitted);

#[test]
fn strict_window_admits_its_limit_and_buckets_more() {
    assert_eq!(super::worst_second(Name::ThisCpuWindow).unwrap(), 100);
    assert!(super::worst_second(Name::ThisCpu).unwrap() > 150);
}
