//! Caches of objects that stay constructed: each is made once, is as it was left, and is dropped once.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use thiscpu::{__test_support, Constructed, ConstructedCache};

use crate::common::random::Random;
use crate::common::threads::together;
use crate::common::{Scenario, TIERS, fork, pin, scale, scenario};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(slab::constructor_runs_once_per_object, TIERS),
    scenario!(slab::constructed_values_keep_their_state, TIERS),
    scenario!(slab::constructed_slabs_come_and_go, TIERS),
    scenario!(slab::values_of_any_layout_can_be_constructed, TIERS),
    scenario!(slab::panicking_constructor_loses_nothing, TIERS),
    scenario!(slab::panicking_destructor_runs_once, TIERS),
    scenario!(slab::destructor_may_allocate_from_its_cache, TIERS),
    scenario!(slab::free_destroys_at_most_two_slabs, TIERS),
    scenario!(slab::free_destroys_at_most_two_slabs_after_shrink, TIERS),
    scenario!(slab::shrink_destroys_all_retired_slabs, TIERS),
    scenario!(slab::double_free_of_constructed_aborts, TIERS),
    scenario!(slab::dropped_constructed_cache_leaves_values_valid, TIERS),
];

static MADE: AtomicUsize = AtomicUsize::new(0);
static DROPPED: AtomicUsize = AtomicUsize::new(0);

pub(crate) fn alive() -> usize {
    let dropped = DROPPED.load(SeqCst);
    MADE.load(SeqCst) - dropped
}

/// What says its number in several ways, one of which is memory of its own.
pub(crate) struct Value {
    number: usize,
    uses: u64,
    text: String,
}

impl Value {
    pub(crate) fn new() -> Value {
        let number = MADE.fetch_add(1, SeqCst);
        Value { number, uses: 0, text: number.to_string() }
    }

    pub(crate) fn check(&self) {
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

pub(crate) fn close<T>(cache: ConstructedCache<T>) {
    cache.close().unwrap_or_else(|error| panic!("{error}"));
}

/// As many are made as were ever out together, or in the lanes, and as many more as were dropped because their slab went back.
fn constructor_runs_once_per_object() {
    let cache = ConstructedCache::new(Value::new);
    let addresses = Mutex::new(BTreeSet::new());
    together(
        4,
        |thread| {
            if thread == 3 {
                __test_support::leave_lanes();
            }
            for _ in 0..scale::rounds(2_000) {
                let values = [(); 5].map(|()| cache.alloc());
                values.iter().for_each(|value| value.check());
                let mut addresses = addresses.lock().expect("no panic");
                addresses.extend(values.iter().map(|value| std::ptr::from_ref(&**value).addr()));
            }
        },
        || (),
    );
    let addresses = addresses.into_inner().expect("no panic");
    let (made, dropped) = (MADE.load(SeqCst), DROPPED.load(SeqCst));
    assert!((addresses.len()..=addresses.len() + dropped).contains(&made), "{made}, {dropped}");
    cache.shrink();
    assert_eq!((alive(), cache.stats().slabs), (0, 0));
    drop(cache.alloc());
    assert_eq!(alive(), 1);
    close(cache);
    assert_eq!(alive(), 0);
}

/// Whoever was it that left it.
fn constructed_values_keep_their_state() {
    let cache = ConstructedCache::new(Value::new);
    let uses = Mutex::new(vec![0; 1 << 16]);
    let handed_on = Mutex::new(Vec::new());
    let work = |thread: usize| {
        let mut random = Random::new(thread as u64);
        for _ in 0..scale::rounds(10_000) {
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
    assert_eq!(alive(), 0);
}

/// More than stocks keep, so that slabs go back by themselves, and others shrink.
fn constructed_slabs_come_and_go() {
    struct Large(Value, [u64; 500]);
    let cache = ConstructedCache::new(|| Large(Value::new(), [5; 500]));
    let work = |thread: usize| {
        let mut random = Random::new(thread as u64);
        for _ in 0..scale::rounds(6) {
            let mut values: Vec<_> = (0..6_000).map(|_| cache.alloc()).collect();
            assert!(values.iter().all(|value| value.1 == [5; 500]));
            while !values.is_empty() {
                values.swap_remove(random.below(values.len().min(50) as u64) as usize).0.check();
            }
        }
    };
    together(2, work, || (0..scale::rounds(20)).for_each(|_| _ = cache.shrink()));
    assert!(DROPPED.load(SeqCst) > 1_000, "only {} were dropped", DROPPED.load(SeqCst));
    assert!(alive() > 100, "only {} stay constructed", alive());
    close(cache);
    assert_eq!(alive(), 0);
}

/// With nothing in it, smaller than a word, aligned to more than it has bytes, and such that a slab has one.
fn values_of_any_layout_can_be_constructed() {
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
    assert_eq!(alive(), 0);
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
fn panicking_constructor_loses_nothing() {
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
    assert_eq!(alive(), values.len());
    PANICS.store(false, SeqCst);
    values.extend((0..1_000).map(|_| cache.alloc()));
    values.iter().for_each(|value| value.check());
    let error = cache.close().expect_err("values are out");
    assert_eq!(error.objects, values.len());
    drop(values);
    close(error.cache);
    assert_eq!(alive(), 0);
}

/// Each is dropped once, and the panic comes out of the call that dropped it.
fn panicking_destructor_runs_once() {
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
    assert_eq!(alive(), 1_000);
    let panics = std::iter::from_fn(|| catch_unwind(AssertUnwindSafe(|| cache.shrink())).err());
    let panics = panics.take(2_000).count();
    assert!((300..400).contains(&panics), "{panics} panics");
    assert_eq!((alive(), cache.stats().slabs), (0, 0));
    // The end of the cache drops all, and then panics once.
    let ends: [fn(ConstructedCache<Panics>); 2] = [drop, close];
    for end in ends {
        let cache = ConstructedCache::new(|| Panics(Value::new()));
        drop((0..1_000).map(|_| cache.alloc()).collect::<Vec<_>>());
        let panic = catch_unwind(AssertUnwindSafe(|| end(cache))).expect_err("many drops panic");
        assert_eq!(panic.downcast_ref(), Some(&"now and then"));
        assert_eq!(alive(), 0);
    }
    PANICS.store(false, SeqCst);
    close(cache);
}

/// From the cache that they are dropped by: no lock is held.
fn destructor_may_allocate_from_its_cache() {
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
        for _ in 0..scale::rounds(20) {
            drop((0..300).map(|_| CACHE.alloc()).collect::<Vec<_>>());
            CACHE.shrink();
        }
    };
    together(3, work, || ());
    while alive() > 0 {
        CACHE.shrink();
    }
    assert_eq!((CACHE.stats().slabs, CACHE.stats().objects_outside_slabs), (0, 0));
}

thread_local! {
    static DROPS_HERE: Cell<usize> = const { Cell::new(0) };
}

/// Whether a drop has to wait ...
pub(crate) const TO_WAIT: usize = 1;
/// ... one does ...
pub(crate) const WAITS: usize = 2;
/// ... and may go on.
pub(crate) const GOES_ON: usize = 3;
pub(crate) static STAGE: AtomicUsize = AtomicUsize::new(0);

/// About sixteen in a slab. The drop of one waits, if it has to.
struct Slow(
    #[expect(dead_code, reason = "it is dropped")] Value,
    #[expect(dead_code, reason = "it takes room")] [u64; 495],
);

impl Slow {
    fn new() -> Slow {
        Slow(Value::new(), [5; 495])
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        DROPS_HERE.set(DROPS_HERE.get() + 1);
        if STAGE.compare_exchange(TO_WAIT, WAITS, SeqCst, SeqCst).is_ok() {
            await_stage(GOES_ON);
        }
    }
}

pub(crate) fn await_stage(stage: usize) {
    while STAGE.load(SeqCst) != stage {
        std::thread::yield_now();
    }
}

/// So many that stocks and lanes keep a part of them.
const MANY: usize = 16_000;

/// Many values of which the first half is freed by another thread, that waits in a drop while `meanwhile` has the other half.
/// The most that one call for that thread drops.
fn freed_meanwhile(
    cache: &ConstructedCache<Slow>,
    meanwhile: impl FnOnce(Vec<Constructed<Slow>>),
) -> usize {
    let mut theirs: Vec<_> = (0..MANY).map(|_| cache.alloc()).collect();
    let mine = theirs.split_off(MANY / 2);
    STAGE.store(TO_WAIT, SeqCst);
    std::thread::scope(|threads| {
        let free = |value| {
            let before = DROPS_HERE.get();
            drop(value);
            DROPS_HERE.get() - before
        };
        let other = threads.spawn(move || theirs.into_iter().map(free).max());
        await_stage(WAITS);
        meanwhile(mine);
        STAGE.store(GOES_ON, SeqCst);
        other.join().expect("no panic").expect("some are freed")
    })
}

/// However many wait for it, a call that frees drops what is in two slabs at most.
fn free_destroys_at_most_two_slabs() {
    let cache = ConstructedCache::new(Slow::new);
    let most = freed_meanwhile(&cache, |mine| {
        let before = DROPPED.load(SeqCst);
        drop(mine);
        assert_eq!(DROPPED.load(SeqCst), before, "two threads are at it");
    });
    assert!((16..=32).contains(&most), "{most} dropped by one call");
    close(cache);
    assert_eq!(alive(), 0);
}

/// Who shrinks wants all of what there is, and nothing of what will be.
fn free_destroys_at_most_two_slabs_after_shrink() {
    let cache = ConstructedCache::new(Slow::new);
    drop(cache.alloc());
    (0..2).for_each(|_| _ = cache.shrink());
    let most = freed_meanwhile(&cache, drop);
    assert!((16..=32).contains(&most), "{most} dropped by one call");
    close(cache);
    assert_eq!(alive(), 0);
}

/// By another, who is just dropping some.
fn shrink_destroys_all_retired_slabs() {
    let cache = ConstructedCache::new(Slow::new);
    let most = freed_meanwhile(&cache, |mine| {
        drop(mine);
        cache.shrink();
    });
    assert!(most > MANY / 2, "only {most} dropped for who shrinks");
    close(cache);
    assert_eq!(alive(), 0);
}

/// Unnoticed at first, because what says that it is free has been written over, and then as the last of its slab.
fn double_free_of_constructed_aborts() {
    struct Large(#[expect(dead_code, reason = "it takes room")] [u64; 5_000]);
    const SIZE: usize = size_of::<Large>();
    pin::pin(0);
    for others in [0, 1, 40] {
        let cache = &ConstructedCache::new(|| Large([5; 5_000]));
        let value = cache.alloc();
        let address = std::ptr::from_ref(&*value).addr();
        let others: Vec<_> = (0..others).map(|_| cache.alloc()).collect();
        let (status, words) = fork::capture_stderr(|| {
            drop(others);
            // SAFETY: what is tested is that the second of the two is noticed.
            let again = unsafe { std::ptr::read(&value) };
            drop(value);
            let mark = std::ptr::with_exposed_provenance_mut::<usize>(address + SIZE);
            // SAFETY: slabs stay accessible, and nobody else is in this process.
            unsafe { mark.write(0) };
            drop(again);
            cache.shrink();
        });
        let is_aborted = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGABRT;
        let expected = format!("thiscpu: {address:#x} ({} bytes): freed twice\n", SIZE + 8);
        assert!(is_aborted && words == expected, "ended with {status:#x}: {words}");
    }
}

/// What is out stays valid when the cache is dropped.
fn dropped_constructed_cache_leaves_values_valid() {
    let (status, words) = fork::capture_stderr(|| {
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
