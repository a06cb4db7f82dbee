//! Caches of values that stay constructed: each is constructed once, keeps its state, is dropped
//! once.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use thiscpu::{Constructed, ConstructedCache};

use crate::common::{
    Random, Scenario, TIERS, fork, leave_lanes_if, pin, scale, scenario, together, together_while,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(slab::constructor_runs_once_per_object, TIERS),
    scenario!(slab::constructed_values_keep_their_state, TIERS),
    scenario!(slab::constructed_slabs_come_and_go, TIERS),
    scenario!(slab::values_of_any_layout_can_be_constructed, TIERS),
    scenario!(slab::panicking_constructor_loses_nothing, TIERS),
    scenario!(slab::panicking_destructor_runs_once, TIERS),
    scenario!(slab::destructor_may_allocate_from_its_cache, TIERS).not_quick(),
    scenario!(slab::free_destroys_at_most_two_slabs, TIERS),
    scenario!(slab::free_destroys_at_most_two_slabs_after_shrink, TIERS),
    scenario!(slab::shrink_destroys_all_retired_slabs, TIERS),
    scenario!(slab::double_free_of_constructed_aborts, TIERS),
    scenario!(slab::dropped_constructed_cache_leaves_values_valid, TIERS),
];

static MADE: AtomicUsize = AtomicUsize::new(0);
static DROPPED: AtomicUsize = AtomicUsize::new(0);

/// Returns the number of values that are constructed and not dropped.
pub(crate) fn alive() -> usize {
    let dropped = DROPPED.load(SeqCst);
    MADE.load(SeqCst) - dropped
}

/// A value that has its number twice, once in memory of its own.
pub(crate) struct Value {
    number: usize,
    pub(crate) uses: u64,
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

// The constructor runs once per address, and again only after the value there was dropped.
fn constructor_runs_once_per_object() {
    let cache = ConstructedCache::new(Value::new);
    let addresses = Mutex::new(BTreeSet::new());
    together(4, |thread| {
        leave_lanes_if(thread == 3);
        for _ in 0..scale::rounds(2_000) {
            let values = [(); 5].map(|()| cache.alloc());
            values.iter().for_each(|value| value.check());
            let mut addresses = addresses.lock().expect("no panic");
            addresses.extend(values.iter().map(|value| std::ptr::from_ref(&**value).addr()));
        }
    });
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

// Any thread may have left the state.
fn constructed_values_keep_their_state() {
    let cache = ConstructedCache::new(Value::new);
    let uses = Mutex::new(vec![0; 1 << 16]);
    let shared = Mutex::new(Vec::new());
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
            // Another thread may free it.
            let mut shared = shared.lock().expect("no panic");
            shared.push(value);
            if shared.len() > 100 {
                let which = random.below(shared.len() as u64) as usize;
                drop(shared.swap_remove(which));
            }
        }
    };
    together(4, work);
    assert_eq!(cache.close().map_err(|error| (error.objects, drop(shared))), Err((100, ())));
    assert_eq!(alive(), 0);
}

// There are more values than barns keep, so slabs return; another thread shrinks.
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
    together_while(2, work, || (0..scale::rounds(20)).for_each(|_| _ = cache.shrink()));
    assert!(DROPPED.load(SeqCst) > 1_000, "only {} values were dropped", DROPPED.load(SeqCst));
    assert!(alive() > 100, "only {} values stay constructed", alive());
    close(cache);
    assert_eq!(alive(), 0);
}

// Values may be empty, smaller than a word, aligned to more than their size, or alone in a slab.
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

/// Sets whether calls of `panic_now_and_then` panic.
pub(crate) fn set_panics(panics: bool) {
    PANICS.store(panics, SeqCst);
}

/// Panics in each third call.
pub(crate) fn panic_now_and_then() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    if PANICS.load(SeqCst) && CALLS.fetch_add(1, SeqCst).is_multiple_of(3) {
        resume_unwind(Box::new("now and then"));
    }
}

// A value whose constructor panicked can be constructed later, and no memory is lost.
fn panicking_constructor_loses_nothing() {
    let cache = ConstructedCache::new(|| {
        panic_now_and_then();
        Value::new()
    });
    set_panics(true);
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
    set_panics(false);
    values.extend((0..1_000).map(|_| cache.alloc()));
    values.iter().for_each(|value| value.check());
    let error = cache.close().expect_err("values are in use");
    assert_eq!(error.objects, values.len());
    drop(values);
    close(error.cache);
    assert_eq!(alive(), 0);
}

// Each value is dropped once, and the call that dropped it panics.
fn panicking_destructor_runs_once() {
    struct Panics(Value);
    impl Drop for Panics {
        fn drop(&mut self) {
            self.0.check();
            panic_now_and_then();
        }
    }
    let cache = ConstructedCache::new(|| Panics(Value::new()));
    set_panics(true);
    drop((0..1_000).map(|_| cache.alloc()).collect::<Vec<_>>());
    assert_eq!(alive(), 1_000);
    let panics = std::iter::from_fn(|| catch_unwind(AssertUnwindSafe(|| cache.shrink())).err());
    let panics = panics.take(2_000).count();
    assert!((300..400).contains(&panics), "{panics} panics");
    assert_eq!((alive(), cache.stats().slabs), (0, 0));
    // Closing or dropping the cache drops all values, and then panics once.
    let ends: [fn(ConstructedCache<Panics>); 2] = [drop, close];
    for end in ends {
        let cache = ConstructedCache::new(|| Panics(Value::new()));
        drop((0..1_000).map(|_| cache.alloc()).collect::<Vec<_>>());
        let panic = catch_unwind(AssertUnwindSafe(|| end(cache))).expect_err("many drops panic");
        assert_eq!(panic.downcast_ref(), Some(&"now and then"));
        assert_eq!(alive(), 0);
    }
    set_panics(false);
    close(cache);
}

// Destructors run without a lock, so they may use their own cache.
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
    together(3, work);
    while alive() > 0 {
        CACHE.shrink();
    }
    assert_eq!((CACHE.stats().slabs, CACHE.stats().objects_outside_slabs), (0, 0));
}

thread_local! {
    static THREAD_DROPS: Cell<usize> = const { Cell::new(0) };
}

/// The stage of a destructor that waits for a test.
pub(crate) static STAGE: AtomicUsize = AtomicUsize::new(0);
/// The stage in which the next destructor will wait.
pub(crate) const TO_WAIT: usize = 1;
/// The stage in which a destructor waits.
pub(crate) const WAITS: usize = 2;
/// The stage in which the destructor goes on.
pub(crate) const GOES_ON: usize = 3;

/// A value of about a sixteenth of a slab, whose destructor waits if `STAGE` asks for it.
struct Slow(
    #[expect(dead_code, reason = "it is dropped")] Value,
    #[expect(dead_code, reason = "it takes space")] [u64; 495],
);

impl Slow {
    fn new() -> Slow {
        Slow(Value::new(), [5; 495])
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        THREAD_DROPS.set(THREAD_DROPS.get() + 1);
        if STAGE.compare_exchange(TO_WAIT, WAITS, SeqCst, SeqCst).is_ok() {
            await_stage(GOES_ON);
        }
    }
}

/// Waits until `STAGE` is `stage`.
pub(crate) fn await_stage(stage: usize) {
    while STAGE.load(SeqCst) != stage {
        std::thread::yield_now();
    }
}

/// More values than barns and lanes keep.
const MANY: usize = 16_000;

/// Frees half of many values on another thread, and passes the rest to `meanwhile`.
///
/// The other thread waits in a destructor while `meanwhile` runs. Returns the largest number of
/// values that one of its calls drops.
fn free_on_two_threads(
    cache: &ConstructedCache<Slow>,
    meanwhile: impl FnOnce(Vec<Constructed<Slow>>),
) -> usize {
    let mut theirs: Vec<_> = (0..MANY).map(|_| cache.alloc()).collect();
    let mine = theirs.split_off(MANY / 2);
    STAGE.store(TO_WAIT, SeqCst);
    std::thread::scope(|threads| {
        let free = |value| {
            let before = THREAD_DROPS.get();
            drop(value);
            THREAD_DROPS.get() - before
        };
        let other = threads.spawn(move || theirs.into_iter().map(free).max());
        await_stage(WAITS);
        meanwhile(mine);
        STAGE.store(GOES_ON, SeqCst);
        other.join().expect("no panic").expect("some values")
    })
}

// A free drops the values of two slabs at most, however many wait.
fn free_destroys_at_most_two_slabs() {
    let cache = ConstructedCache::new(Slow::new);
    let most = free_on_two_threads(&cache, |mine| {
        let before = DROPPED.load(SeqCst);
        drop(mine);
        assert_eq!(DROPPED.load(SeqCst), before, "two threads drop values");
    });
    assert!((16..=32).contains(&most), "one call has dropped {most} values");
    close(cache);
    assert_eq!(alive(), 0);
}

// A shrink concerns values that are retired by then, and none that retire later.
fn free_destroys_at_most_two_slabs_after_shrink() {
    let cache = ConstructedCache::new(Slow::new);
    drop(cache.alloc());
    (0..2).for_each(|_| _ = cache.shrink());
    let most = free_on_two_threads(&cache, drop);
    assert!((16..=32).contains(&most), "one call has dropped {most} values");
    close(cache);
    assert_eq!(alive(), 0);
}

// The thread that is dropping values also drops those for a concurrent shrink.
fn shrink_destroys_all_retired_slabs() {
    let cache = ConstructedCache::new(Slow::new);
    let most = free_on_two_threads(&cache, |mine| {
        drop(mine);
        cache.shrink();
    });
    assert!(most > MANY / 2, "only {most} values were dropped for the shrink");
    close(cache);
    assert_eq!(alive(), 0);
}

// The free mark is overwritten, so the error is found late; the object may be its slab's last.
fn double_free_of_constructed_aborts() {
    struct Large(#[expect(dead_code, reason = "it takes space")] [u64; 5_000]);
    const SIZE: usize = size_of::<Large>();
    pin::pin(0);
    for others in [0, 1, 40] {
        let cache = &ConstructedCache::new(|| Large([5; 5_000]));
        let value = cache.alloc();
        let address = std::ptr::from_ref(&*value).addr();
        let others: Vec<_> = (0..others).map(|_| cache.alloc()).collect();
        let message = format!("thiscpu: {address:#x} ({} bytes): double free\n", SIZE + 8);
        fork::assert_aborts(&message, || {
            drop(others);
            // SAFETY: the value has no destructor, and the test expects the second drop to abort.
            let again = unsafe { std::ptr::read(&value) };
            drop(value);
            let mark = std::ptr::with_exposed_provenance_mut::<usize>(address + SIZE);
            // SAFETY: slabs stay accessible, and this process has no other thread.
            unsafe { mark.write(0) };
            drop(again);
            cache.shrink();
        });
    }
}

// Values in use outlive a dropped cache.
fn dropped_constructed_cache_leaves_values_valid() {
    let (status, text) = fork::capture_stderr(|| {
        let cache = ConstructedCache::new(Value::new);
        let mut values: Vec<_> = (0..500).map(|_| cache.alloc()).collect();
        values.truncate(300);
        drop(cache);
        values.iter().for_each(|value| value.check());
        drop(values);
    });
    assert_eq!(status, 0, "{text}");
    assert_eq!(text.contains("with 300 still allocated"), cfg!(debug_assertions), "{text}");
}
