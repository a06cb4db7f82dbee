//! Caches of objects that stay constructed: each is made once, is as it was left, and is dropped once.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};

use thiscpu::{Constructed, ConstructedCache, probe};

use crate::common::random::Random;
use crate::common::steps::{at_each_step, single_steps};
use crate::common::threads::together;
use crate::common::{ALL, BOTH_WAYS, Scenario, fork, pin, slow};

pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario::new("slab::constructed_once", &ALL, constructed_once),
    Scenario::new("slab::constructed_are_as_left", &ALL, constructed_are_as_left),
    Scenario::new("slab::constructed_come_and_go", &ALL, constructed_come_and_go),
    Scenario::new("slab::constructed_of_any_layout", &ALL, constructed_of_any_layout),
    Scenario::new("slab::constructors_that_panic", &ALL, constructors_that_panic),
    Scenario::new("slab::destructors_that_panic", &ALL, destructors_that_panic),
    Scenario::new("slab::destructors_that_allocate", &ALL, destructors_that_allocate),
    Scenario::new("slab::constructed_and_left_out", &ALL, constructed_and_left_out),
    Scenario::new("slab::constructed_in_children", &ALL, constructed_in_children),
    Scenario::new("slab::fork_amid_constructed", &BOTH_WAYS, fork_amid_constructed)
        .needs(single_steps),
];

static MADE: AtomicUsize = AtomicUsize::new(0);
static DROPPED: AtomicUsize = AtomicUsize::new(0);

fn there_are() -> usize {
    let dropped = DROPPED.load(SeqCst);
    MADE.load(SeqCst) - dropped
}

/// What says its number in several ways, one of which is memory of its own.
struct Value {
    number: usize,
    uses: u64,
    text: String,
}

impl Value {
    fn new() -> Value {
        let number = MADE.fetch_add(1, SeqCst);
        Value { number, uses: 0, text: number.to_string() }
    }

    fn check(&self) {
        assert_eq!(self.text, self.number.to_string());
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.check();
        self.number = usize::MAX;
        DROPPED.fetch_add(1, SeqCst);
    }
}

fn close<T>(cache: ConstructedCache<T>) {
    cache.close().unwrap_or_else(|error| panic!("{error}"));
}

/// While no slab goes back, as many are made as were ever out together, or in the lanes; and none is dropped.
fn constructed_once() {
    let cache = ConstructedCache::new(Value::new);
    let addresses = Mutex::new(BTreeSet::new());
    together(
        4,
        |thread| {
            if thread == 3 {
                probe::leave_lanes();
            }
            for _ in 0..slow::rounds(2_000) {
                let values = [(); 5].map(|()| cache.alloc());
                values.iter().for_each(|value| value.check());
                let mut addresses = addresses.lock().expect("no panic");
                addresses.extend(values.iter().map(|value| std::ptr::from_ref(&**value).addr()));
            }
        },
        || (),
    );
    let addresses = addresses.into_inner().expect("no panic");
    assert_eq!((MADE.load(SeqCst), DROPPED.load(SeqCst)), (addresses.len(), 0));
    cache.shrink();
    assert_eq!((there_are(), cache.stats().slabs), (0, 0));
    drop(cache.alloc());
    assert_eq!(there_are(), 1);
    close(cache);
    assert_eq!(there_are(), 0);
}

/// Whoever was it that left it.
fn constructed_are_as_left() {
    let cache = ConstructedCache::new(Value::new);
    let uses = Mutex::new(vec![0; 1 << 16]);
    let handed_on = Mutex::new(Vec::new());
    let work = |thread: usize| {
        let mut random = Random::new(thread as u64);
        for _ in 0..slow::rounds(10_000) {
            let mut value: Constructed<Value> = cache.alloc();
            value.check();
            {
                let mut uses = uses.lock().expect("no panic");
                assert_eq!(value.uses, uses[value.number]);
                value.uses += 1;
                uses[value.number] += 1;
            }
            // Another thread frees it.
            let mut handed_on = handed_on.lock().expect("no panic");
            handed_on.push(value);
            if handed_on.len() > 100 {
                let which = random.below(handed_on.len() as u64) as usize;
                drop(handed_on.swap_remove(which));
            }
        }
    };
    together(4, work, || ());
    assert_eq!(cache.close().map_err(|error| (error.objects, drop(handed_on))), Err((100, ())));
    assert_eq!(there_are(), 0);
}

/// More than stocks keep, so that slabs go back by themselves, and others shrink.
fn constructed_come_and_go() {
    struct Large(Value, [u64; 500]);
    let cache = ConstructedCache::new(|| Large(Value::new(), [5; 500]));
    let work = |thread: usize| {
        let mut random = Random::new(thread as u64);
        for _ in 0..slow::rounds(6) {
            let mut values: Vec<_> = (0..6_000).map(|_| cache.alloc()).collect();
            assert!(values.iter().all(|value| value.1 == [5; 500]));
            while !values.is_empty() {
                values.swap_remove(random.below(values.len().min(50) as u64) as usize).0.check();
            }
        }
    };
    together(2, work, || (0..slow::rounds(20)).for_each(|_| _ = cache.shrink()));
    assert!(DROPPED.load(SeqCst) > 1_000, "only {} were dropped", DROPPED.load(SeqCst));
    assert!(there_are() > 100, "only {} stay constructed", there_are());
    close(cache);
    assert_eq!(there_are(), 0);
}

/// With nothing in it, smaller than a word, aligned to more than it has bytes, and such that a slab has one.
fn constructed_of_any_layout() {
    struct Nothing;
    struct Byte(u8);
    #[repr(align(4096))]
    struct Aligned(u8);
    #[repr(align(65536))]
    struct VeryAligned;
    struct Alone([u64; 100_000]);

    fn check<T>(make: fn() -> T, is_right: fn(&T) -> bool) {
        let cache = ConstructedCache::new(make);
        let values: Vec<_> = (0..40).map(|_| cache.alloc()).collect();
        let addresses: BTreeSet<_> =
            values.iter().map(|value| std::ptr::from_ref(&**value).addr()).collect();
        assert!(addresses.iter().all(|address| address.is_multiple_of(align_of::<T>())));
        assert_eq!(addresses.len(), 40);
        drop(values);
        assert!((0..100).all(|_| is_right(&cache.alloc())));
        close(cache);
    }
    impl Drop for Nothing {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, SeqCst);
        }
    }
    check(
        || {
            MADE.fetch_add(1, SeqCst);
            Nothing
        },
        |_| true,
    );
    assert!(MADE.load(SeqCst) >= 40);
    assert_eq!(there_are(), 0);
    check(|| Byte(7), |value| value.0 == 7);
    check(|| Aligned(8), |value| value.0 == 8);
    check(|| VeryAligned, |_| true);
    check(|| Alone([9; 100_000]), |value| value.0 == [9; 100_000]);
}

static PANICS: AtomicBool = AtomicBool::new(false);

fn panic_now_and_then(count: &AtomicUsize) {
    if PANICS.load(SeqCst) && count.load(SeqCst).is_multiple_of(3) {
        resume_unwind(Box::new("now and then"));
    }
}

/// What was not made can be made later, and nothing is lost.
fn constructors_that_panic() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let cache = ConstructedCache::new(|| {
        CALLS.fetch_add(1, SeqCst);
        panic_now_and_then(&CALLS);
        Value::new()
    });
    PANICS.store(true, SeqCst);
    let (mut values, mut panics) = (Vec::new(), 0);
    for _ in 0..1_000 {
        match catch_unwind(AssertUnwindSafe(|| cache.alloc())) {
            Ok(value) => values.push(value),
            Err(panic) => {
                assert_eq!(panic.downcast_ref(), Some(&"now and then"));
                panics += 1;
            }
        }
    }
    assert!(panics > 300 && values.len() == 1_000 - panics);
    assert_eq!(there_are(), values.len());
    PANICS.store(false, SeqCst);
    values.extend((0..1_000).map(|_| cache.alloc()));
    values.iter().for_each(|value| value.check());
    let error = cache.close().expect_err("values are out");
    assert_eq!(error.objects, values.len());
    drop(values);
    close(error.cache);
    assert_eq!(there_are(), 0);
}

/// Each is dropped once, and the panic comes out of the call that dropped it.
fn destructors_that_panic() {
    struct Panics(Value);
    impl Drop for Panics {
        fn drop(&mut self) {
            self.0.check();
            panic_now_and_then(&DROPPED);
        }
    }
    let cache = ConstructedCache::new(|| Panics(Value::new()));
    PANICS.store(true, SeqCst);
    drop((0..1_000).map(|_| cache.alloc()).collect::<Vec<_>>());
    assert_eq!(there_are(), 1_000);
    let panics = std::iter::from_fn(|| catch_unwind(AssertUnwindSafe(|| cache.shrink())).err());
    let panics = panics.take(2_000).count();
    assert!((300..400).contains(&panics), "{panics} panics");
    assert_eq!((there_are(), cache.stats().slabs), (0, 0));
    // The end of the cache drops all, and then panics once.
    let ends: [fn(ConstructedCache<Panics>); 2] = [drop, close];
    for end in ends {
        let cache = ConstructedCache::new(|| Panics(Value::new()));
        drop((0..1_000).map(|_| cache.alloc()).collect::<Vec<_>>());
        let panic = catch_unwind(AssertUnwindSafe(|| end(cache))).expect_err("many drops panic");
        assert_eq!(panic.downcast_ref(), Some(&"now and then"));
        assert_eq!(there_are(), 0);
    }
    PANICS.store(false, SeqCst);
    close(cache);
}

/// From the cache that they are dropped by: no lock is held.
fn destructors_that_allocate() {
    static CACHE: ConstructedCache<Nested> = ConstructedCache::new(|| Nested(Value::new()));
    static LEFT: AtomicUsize = AtomicUsize::new(3_000);
    struct Nested(Value);
    impl Drop for Nested {
        fn drop(&mut self) {
            self.0.check();
            if LEFT.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
                [(); 3].map(|()| CACHE.alloc()).iter().for_each(|other| other.0.check());
                CACHE.shrink();
            }
        }
    }
    let work = |_| {
        for _ in 0..slow::rounds(20) {
            drop((0..300).map(|_| CACHE.alloc()).collect::<Vec<_>>());
            CACHE.shrink();
        }
    };
    together(3, work, || ());
    while there_are() > 0 {
        CACHE.shrink();
    }
    assert_eq!((CACHE.stats().slabs, CACHE.stats().objects_out), (0, 0));
}

/// What is out stays valid when the cache is dropped.
fn constructed_and_left_out() {
    let (status, words) = fork::overhear(|| {
        let cache = ConstructedCache::new(Value::new);
        let mut values: Vec<_> = (0..500).map(|_| cache.alloc()).collect();
        values.truncate(300);
        drop(cache);
        values.iter().for_each(|value| value.check());
        drop(values);
    });
    assert_eq!(status, 0, "{words}");
    assert_eq!(words.contains("while 300 were out"), cfg!(debug_assertions), "{words}");
}

/// A child has what its parent had, whatever others were doing.
fn constructed_in_children() {
    let cache = ConstructedCache::new(Value::new);
    let over = AtomicBool::new(false);
    let work = |thread: usize| {
        let mut random = Random::new(thread as u64);
        while !over.load(SeqCst) {
            let values: Vec<_> = (0..random.below(300)).map(|_| cache.alloc()).collect();
            values.iter().for_each(|value| value.check());
            drop(values);
            if random.below(4) == 0 {
                cache.shrink();
            }
        }
    };
    let mine: Vec<_> = (0..100).map(|_| cache.alloc()).collect();
    together(3, work, || {
        let _over = crate::common::token::Over(&over);
        for _ in 0..slow::rounds(40) {
            let child = || {
                let use_it = |_| {
                    let values: Vec<_> = (0..200).map(|_| cache.alloc()).collect();
                    values.iter().for_each(|value| value.check());
                };
                mine.iter().for_each(|value| value.check());
                together(2, use_it, || _ = cache.shrink());
                cache.shrink();
            };
            fork::run(child).expect("a child that is right");
        }
    });
    drop(mine);
    close(cache);
    assert_eq!(there_are(), 0);
}

/// Of which values are made, dropped, and handed out.
fn fork_amid_constructed() {
    struct Large(Value, #[expect(dead_code, reason = "it takes room")] [u64; 5_000]);
    let cache = &ConstructedCache::new(|| Large(Value::new(), [5; 5_000]));
    pin::pin(0);
    let mine: Vec<_> = (0..5).map(|_| cache.alloc()).collect();
    let wrong = AtomicU64::new(0);
    let use_some = || {
        let values: Vec<_> = (0..10).map(|_| cache.alloc()).collect();
        values.iter().chain(&mine).for_each(|value| value.0.check());
    };
    let conflict = |_| {
        let child = fork::run(|| {
            use_some();
            cache.shrink();
            use_some();
        });
        wrong.fetch_add(u64::from(child.is_err()), SeqCst);
    };
    let op = || {
        drop(cache.alloc());
        cache.shrink();
    };
    let check = |steps, _, ()| {
        assert_eq!(wrong.load(SeqCst), 0, "a child is wrong after {steps}");
        assert_eq!(cache.stats().objects_out, 5, "stopped after {steps}");
    };
    at_each_step(|| (), op, conflict, check);
}
