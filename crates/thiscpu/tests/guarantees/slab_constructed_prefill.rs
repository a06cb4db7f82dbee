//! Prefilled objects of caches of constructed values.

use std::panic::{AssertUnwindSafe, catch_unwind};

use thiscpu::{ConstructedCache, Error};

use crate::common::{CID_AND_ATOMIC, Scenario, TIERS, pin, resources, scenario};
use crate::slab_constructed::{Value, alive, close, panic_now_and_then, set_panics};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(slab::prefilled_values_are_constructed_and_kept, TIERS),
    scenario!(slab::prefilled_values_survive_exhaustion, TIERS),
    scenario!(slab::prefill_keeps_no_object_when_constructor_panics, CID_AND_ATOMIC),
    scenario!(slab::dropped_prefill_frees_all_when_values_panic, CID_AND_ATOMIC),
];

// Prefilled values are new, or as their last users left them. A drop frees the objects left.
fn prefilled_values_are_constructed_and_kept() {
    let cache = ConstructedCache::new(Value::new);
    let mut first = cache.prefill(300).expect("memory");
    let made = alive();
    assert!(made >= 300);
    let mut values: Vec<_> = (0..200).map(|_| first.alloc().expect("an object")).collect();
    for (number, value) in (1..).zip(&mut values) {
        value.check();
        value.uses = number;
    }
    assert_eq!((alive(), first.len(), first.is_empty()), (made, 100, false));
    assert_eq!(format!("{first:?}"), "ConstructedPrefilled { len: 100, .. }");
    let error = cache.close().expect_err("values are in use");
    assert_eq!(error.objects, 300);
    let cache = error.cache;
    // Another thread frees the rest.
    std::thread::scope(|threads| _ = threads.spawn(move || drop(first)));
    assert!((1..).zip(&values).all(|(number, value)| value.uses == number));
    drop(values);
    let mut again = cache.prefill(300).expect("memory");
    let values: Vec<_> = std::iter::from_fn(|| again.alloc()).collect();
    assert_eq!((values.len(), again.is_empty()), (300, true));
    values.iter().for_each(|value| value.check());
    let mut uses: Vec<_> =
        values.iter().map(|value| value.uses).filter(|&uses| uses != 0).collect();
    uses.sort_unstable();
    uses.dedup();
    assert!(uses.len() > 100, "only {} values are those that were freed", uses.len());
    drop(values);
    // An empty prefilled set does not keep the cache open.
    close(cache);
    assert_eq!((alive(), again.len()), (0, 0));
    let none = ConstructedCache::new(Value::new).prefill(0).expect("no memory is needed");
    assert!(none.is_empty());
}

// Prefilled values are available when memory has run out; a prefill then fails.
fn prefilled_values_survive_exhaustion() {
    type Large = [u64; 5_000];
    let cache: ConstructedCache<Large> = ConstructedCache::new(|| [7; 5_000]);
    let mut prefilled = cache.prefill(300).expect("memory");
    let mut values = Vec::with_capacity(300);
    let limits = (resources::limit_data(0), resources::limit_address_space());
    // More than the free memory of the process.
    let error = cache.prefill(100_000).map(drop);
    assert_eq!(error, Err(Error::NoMemory { objects: 100_000, bytes: size_of::<Large>() }));
    values.extend(std::iter::from_fn(|| prefilled.alloc()));
    drop(limits);
    assert!(values.len() == 300 && values.iter().all(|value| **value == [7; 5_000]));
    drop(values);
    close(cache);
}

fn prefill_keeps_no_object_when_constructor_panics() {
    let cache = ConstructedCache::new(|| {
        let value = Value::new();
        panic_now_and_then();
        value
    });
    set_panics(true);
    for _ in 0..100 {
        let panic = catch_unwind(AssertUnwindSafe(|| cache.prefill(300).map(drop)));
        assert_eq!(panic.expect_err("each third panics").downcast_ref(), Some(&"now and then"));
    }
    set_panics(false);
    let prefilled = cache.prefill(9).expect("memory");
    let error = cache.close().expect_err("values are in use");
    assert_eq!(error.objects, 9);
    drop(prefilled);
    close(error.cache);
    assert_eq!(alive(), 0);
}

/// A value that has a slab of its own, and whose drop may panic.
struct Panics(Value, #[expect(dead_code, reason = "it takes space")] [u64; 12_500]);

impl Drop for Panics {
    fn drop(&mut self) {
        self.0.check();
        panic_now_and_then();
    }
}

// A free that drops values may panic. The other objects are freed, then the first panic resumes.
fn dropped_prefill_frees_all_when_values_panic() {
    pin::pin(0);
    let cache = ConstructedCache::new(|| Panics(Value::new(), [5; 12_500]));
    let prefilled = cache.prefill(600).expect("memory");
    set_panics(true);
    let panic = catch_unwind(AssertUnwindSafe(|| drop(prefilled)));
    assert_eq!(panic.expect_err("each third panics").downcast_ref(), Some(&"now and then"));
    // Another panic is unwinding already.
    let prefilled = cache.prefill(600).expect("memory");
    let panic = catch_unwind(AssertUnwindSafe(|| {
        let _prefilled = prefilled;
        std::panic::resume_unwind(Box::new("the first"));
    }));
    assert_eq!(panic.expect_err("it panics").downcast_ref(), Some(&"the first"));
    set_panics(false);
    close(cache);
    assert_eq!(alive(), 0);
}
