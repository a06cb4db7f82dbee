//! All public calls, one by one, for guarantees that each of them gives.

use std::alloc::Layout;
use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Waker};
use std::time::Duration;

use thiscpu::{
    Account, Budget, Cache, ConstructedCache, Counter, Counters, Existing, Ledger, Link, PerCpu,
    PerCpuPair, PerCpuStack, RawCache, Segment, SharedCounter, SharedCounters, Summable,
};

use super::segment::Place;

/// A call, or several of one kind: the first of them may be the first use of the library.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    pub(crate) name: &'static str,
    /// Makes what the call needs; if it does nothing, the call is the first use.
    pub(crate) prepare: fn(),
    pub(crate) run: fn(),
    /// The size of the array or structure that it returns by value, in bytes.
    pub(crate) returned_bytes: usize,
}

const fn call(name: &'static str, run: fn()) -> Call {
    Call { name, prepare: || (), run, returned_bytes: 0 }
}

impl Call {
    const fn after(self, prepare: fn()) -> Call {
        Call { prepare, ..self }
    }

    const fn returns<T>(self) -> Call {
        Call { returned_bytes: size_of::<T>(), ..self }
    }
}

/// Enough calls to take memory in the lanes, to publish, and to change modes.
const MANY: usize = 3000;
/// An amount by which a window moves.
const LARGE: i64 = 1 << 20;

static COUNTER: Counter = Counter::new();
static NARROW: Counter = Counter::with_batch(2);
const WIDE_LEN: usize = 4096;
static WIDE: Counters<WIDE_LEN> = Counters::new();
static VALUES: Mutex<[i64; WIDE_LEN]> = Mutex::new([0; WIDE_LEN]);
static PAIR: Counters<2> = Counters::new();

fn many(call: impl Fn()) {
    (0..MANY).for_each(|_| call());
}

/// Adds enough to the counters that sums have lanes to read.
fn add() {
    many(|| COUNTER.add(LARGE));
    many(|| NARROW.add(LARGE));
    many(|| WIDE.add(WIDE_LEN - 1, LARGE));
    many(|| PAIR.add(1, 1));
}

/// Structures without a constant constructor, as [`made`] makes them.
struct Made {
    bytes: PerCpu<u8>,
    halves: PerCpu<u16>,
    words: PerCpu<u32>,
    longs: PerCpu<u64>,
    pointers: PerCpu<*mut u8>,
    small_pairs: PerCpuPair<u32>,
    pairs: PerCpuPair<u64>,
    stack: PerCpuStack,
    ledger: Ledger<64>,
    accounts: [Account<64>; 2],
}

fn made() -> &'static Made {
    static MADE: OnceLock<Made> = OnceLock::new();
    MADE.get_or_init(|| {
        let ledger = Ledger::new_signed();
        Made {
            bytes: PerCpu::new(),
            halves: PerCpu::new(),
            words: PerCpu::new(),
            longs: PerCpu::new(),
            pointers: PerCpu::new(),
            small_pairs: PerCpuPair::new(),
            pairs: PerCpuPair::new(),
            stack: PerCpuStack::new(),
            accounts: [ledger.open(), ledger.open()],
            ledger,
        }
    })
}

fn make() {
    made();
}

/// Counters in a segment.
struct Shared {
    segment: Segment,
    counter: SharedCounter,
    wide: SharedCounters<WIDE_LEN>,
}

fn shared() -> &'static Shared {
    static SHARED: OnceLock<Shared> = OnceLock::new();
    SHARED.get_or_init(|| {
        let segment = Segment::anonymous().expect("memory");
        let counter = segment.counter("counter").expect("room");
        Shared { counter, wide: segment.counters("wide").expect("room"), segment }
    })
}

fn make_shared() {
    shared();
}

fn make_and_charge() {
    many(|| made().accounts[0].charge(63, 1));
}

fn push_node() {
    let node = NonNull::from(Box::leak(Box::new(Link::new())));
    // SAFETY: the node is new and leaked.
    unsafe { made().stack.push(node) };
}

fn push_again() {
    if let Some(node) = made().stack.pop() {
        // SAFETY: the node was popped just now, so it is in no stack; it is leaked.
        unsafe { made().stack.push(node) };
    }
}

static PLENTY: Budget = Budget::new(1 << 30);
static SCARCE: Budget = Budget::new(4);
/// All of its units are available.
static OVERFULL: Budget = Budget::new(4);

fn hold_units() {
    PLENTY.try_acquire(1 << 20).expect("plenty of units");
    SCARCE.try_acquire(3).expect("three of four units");
}

/// Holds units while another thread waits for some.
fn hold_and_wait() {
    hold_units();
    std::thread::spawn(|| SCARCE.acquire(2));
    await_waiter();
}

/// Holds units, and releases them once somebody waits.
fn hold_until_waited_for() {
    hold_units();
    std::thread::spawn(|| {
        await_waiter();
        SCARCE.release(3);
    });
}

/// Waits until some thread waits for units.
fn await_waiter() {
    while SCARCE.waiters() == 0 {
        std::thread::yield_now();
    }
}

type Object = [u64; 8];
static CACHE: Cache<Object> = Cache::new();
static RAW: RawCache = RawCache::new(Layout::new::<Object>());
static LARGE_OBJECTS: RawCache = RawCache::new(Layout::new::<[u8; 100_000]>());
static CONSTRUCTED: ConstructedCache<Object> = ConstructedCache::new(|| [1; 8]);

fn alloc_and_free(cache: &RawCache, count: usize) {
    let objects: Vec<_> = (0..count).map_while(|_| cache.alloc()).collect();
    // SAFETY: each object was allocated from this cache just now, and is freed once.
    objects.into_iter().for_each(|object| unsafe { cache.free(object) });
}

fn use_caches() {
    drop((0..MANY).map(|_| CACHE.alloc([0; 8])).collect::<Vec<_>>());
    drop((0..MANY).map(|_| CONSTRUCTED.alloc()).collect::<Vec<_>>());
    alloc_and_free(&RAW, MANY);
    alloc_and_free(&LARGE_OBJECTS, 20);
}

/// The calls that signal handlers may make.
pub(crate) const IN_HANDLERS: &[Call] = &[
    call("Counter::add, once", || COUNTER.add(1)),
    call("Counter::add", || many(|| COUNTER.add(LARGE))),
    call("Counter::add with a small batch", || many(|| NARROW.add(7))),
    call("Counter::inc, dec", || {
        many(|| COUNTER.inc());
        many(|| COUNTER.dec());
    }),
    call("Counter::read", || _ = black_box(COUNTER.read())),
    call("Counter::bounds", || _ = black_box(COUNTER.bounds())),
    call("Counter::read, bounds after adds", || _ = (COUNTER.read(), NARROW.bounds())).after(add),
    call("Counters::add, once", || PAIR.add(1, 1)),
    call("Counters::add", || many(|| WIDE.add(WIDE_LEN - 1, LARGE))),
    call("Counters::read", || _ = black_box(WIDE.read(1))),
    call("PerCpu::add", || {
        many(|| made().bytes.add(1));
        many(|| made().halves.add(1));
        many(|| made().words.add(1));
        many(|| made().longs.add(1));
    })
    .after(make),
    call("PerCpu::add_return", || {
        many(|| _ = made().bytes.add_return(1));
        many(|| _ = made().longs.add_return(1));
    })
    .after(make),
    call("PerCpu::xchg", || {
        many(|| _ = made().halves.xchg(1));
        many(|| _ = made().pointers.xchg(std::ptr::null_mut()));
    })
    .after(make),
    call("PerCpu::cmpxchg", || {
        many(|| _ = made().words.cmpxchg(0, 1));
        many(|| _ = made().longs.cmpxchg(1, 0));
    })
    .after(make),
    call("PerCpu::lanes", || _ = black_box(made().longs.lanes().sum::<u64>())).after(make),
    call("PerCpuPair::cmpxchg_double", || {
        many(|| _ = made().small_pairs.cmpxchg_double((0, 0), (1, 1)));
        many(|| _ = made().pairs.cmpxchg_double((0, 0), (1, 1)));
    })
    .after(make),
    call("PerCpuPair::lanes", || _ = black_box(made().pairs.lanes().count())).after(make),
    call("PerCpuStack::push, pop", || many(push_again)).after(push_node),
    call("PerCpuStack::take_all", || _ = black_box(made().stack.take_all())).after(push_node),
    call("Budget::release", || many(|| PLENTY.release(1))).after(hold_units),
    call("Budget::release to a waiter", || SCARCE.release(3)).after(hold_and_wait),
    call("Budget::release of too many units", || OVERFULL.release(3)),
    call("SharedCounter::add", || {
        many(|| shared().counter.add(1));
        many(|| shared().counter.add(LARGE));
        shared().wide.add(1, 1);
    })
    .after(make_shared),
    call("SharedCounter::sum", || {
        black_box(shared().counter.sum());
        shared().counter.add(1);
    })
    .after(make_shared),
    call("tier", || _ = black_box(thiscpu::tier().is_ok())),
    call("degradations, shared_lane_calls", || {
        black_box((thiscpu::degradations().count(), thiscpu::shared_lane_calls()));
    }),
    call("vfork_scope", || drop(thiscpu::vfork_scope())),
];

/// The other calls.
pub(crate) const ELSEWHERE: &[Call] = &[
    call("Counter::drop", || {
        let counter = Counter::new();
        many(|| counter.inc());
    }),
    call("Counter::sum", || _ = black_box(COUNTER.sum())),
    call("Counter::sum after adds", || _ = (COUNTER.sum(), NARROW.sum())).after(add),
    call("Counter::set, take", || {
        COUNTER.set(1);
        COUNTER.take();
    })
    .after(add),
    call("Counter::compare", || _ = black_box(NARROW.compare(MANY as i64 * LARGE))).after(add),
    call("Counters::sum", || _ = black_box(WIDE.sum(1))),
    call("Counters::sum after adds", || _ = black_box(WIDE.sum(1))).after(add),
    call("Counters::snapshot", || _ = black_box(&WIDE.snapshot()))
        .after(add)
        .returns::<[i64; WIDE_LEN]>(),
    call("Counters::snapshot_into", || WIDE.snapshot_into(&mut VALUES.lock().expect("no panic")))
        .after(add),
    call("sum_all", || {
        let all: [&dyn Summable; 3] = [&COUNTER, &WIDE, &PAIR];
        black_box(thiscpu::sum_all(&all));
    })
    .after(add),
    call("PerCpu::new", make),
    call("Budget::try_acquire", || many(|| _ = PLENTY.try_acquire(1))),
    call("Budget::try_acquire, refused", || {
        many(|| _ = PLENTY.try_acquire(1));
        let _ = PLENTY.try_acquire(1 << 30);
    }),
    call("Budget::try_acquire_up_to", || _ = black_box(SCARCE.try_acquire_up_to(9))),
    call("Budget::lease", || {
        let mut lease = PLENTY.lease(10).expect("units");
        let part = lease.split(3).expect("units");
        lease.merge(part);
    }),
    call("Budget::try_reserve", || {
        let reserve = PLENTY.try_reserve(10).expect("units");
        drop(reserve.lease(3));
        black_box(reserve.available());
    }),
    call("Budget::acquire", || PLENTY.acquire(1).unwrap()),
    call("Budget::acquire, blocked", || SCARCE.acquire(2).unwrap()).after(hold_until_waited_for),
    call("Budget::acquire_timeout", || {
        let _ = SCARCE.acquire_timeout(2, Duration::from_millis(1));
    })
    .after(hold_units),
    call("Budget::acquire_async", || {
        let future = pin!(SCARCE.acquire_async(2));
        let _ = black_box(future.poll(&mut Context::from_waker(Waker::noop())));
    })
    .after(hold_units),
    call("Budget::try_acquire_owned", || {
        let budget = Arc::new(Budget::new(1 << 20));
        let mut lease = budget.try_acquire_owned(10).expect("units");
        let part = lease.split(3).expect("units");
        lease.merge(part);
    }),
    call("Budget::acquire_owned", || {
        let budget = Arc::new(Budget::new(1));
        let lease = budget.acquire_owned(1).wait().expect("units");
        let waits = budget.acquire_owned(1).wait_timeout(Duration::from_millis(1));
        drop(black_box((lease, waits)));
    }),
    call("Budget::close, over_released", || {
        let budget = Budget::new(1);
        budget.release(1);
        budget.close();
        black_box((budget.is_closed(), budget.waiters(), budget.over_released()));
    }),
    call("Budget::available, acquired", || _ = (PLENTY.available(), PLENTY.acquired())),
    call("Budget::set_limit", || PLENTY.set_limit(PLENTY.limit() / 2)),
    call("Budget::drop", || {
        let budget = Budget::new(1 << 30);
        many(|| _ = budget.try_acquire(1));
    }),
    call("Ledger::new, open", || drop(Ledger::<64>::new().open())),
    call("Account::charge, uncharge", || {
        many(|| made().accounts[0].charge(63, LARGE));
        many(|| made().accounts[1].uncharge(0, 1));
    })
    .after(make),
    call("Account::charge of many accounts", || {
        let accounts: Vec<_> = (0..MANY).map(|_| made().ledger.open()).collect();
        accounts.iter().for_each(|account| account.charge(0, 1));
        accounts.iter().for_each(|account| account.charge(1, 1));
    })
    .after(make),
    call("Account::charge_uncached", || made().accounts[0].charge_uncached(0, 1)).after(make),
    call("Account::read", || _ = black_box(made().accounts[0].read(0))).after(make_and_charge),
    call("Account::sum", || _ = black_box(made().accounts[0].sum(0))).after(make_and_charge),
    call("Account::snapshot", || _ = black_box(made().accounts[0].snapshot()))
        .after(make_and_charge),
    call("Account::snapshot_into", || {
        made().accounts[0].snapshot_into(black_box(&mut [0; 64]));
    })
    .after(make_and_charge),
    call("Account::transfer_to", || {
        let [from, to] = &made().accounts;
        from.transfer_to(to, 63, 1);
    })
    .after(make_and_charge),
    call("Account::clone, drop", || drop(made().accounts[0].clone())).after(make),
    call("Ledger::sync", || made().ledger.sync()).after(make_and_charge),
    call("Ledger::for_each", || made().ledger.for_each(|_, counters| _ = black_box(counters)))
        .after(make_and_charge),
    call("Segment::anonymous", || {
        let segment = Segment::anonymous().expect("memory");
        segment.counter("counter").expect("room").inc();
    }),
    call("Segment::create, open", || {
        let place = Place::new();
        drop(Segment::create(&place).expect("a segment"));
        drop(Segment::options().open_or_create(&place, Existing::Replace).expect("a segment"));
        assert!(Segment::open(&place).expect("a segment").path().is_some());
        black_box(Segment::create(&place).expect_err("a segment is there").to_string());
    }),
    call("Segment::as_fd, from_fd", || {
        let fd = shared().segment.as_fd().expect("a descriptor");
        let fd = fd.try_clone_to_owned().expect("a descriptor");
        let segment = Segment::from_fd(fd).expect("a segment");
        segment.counters::<WIDE_LEN>("another").expect("room").add(1, 1);
    })
    .after(make_shared),
    // It copies the array that it fills to the result.
    call("SharedCounters::sum", || _ = black_box(&shared().wide.sum()))
        .after(make_shared)
        .returns::<[[i64; WIDE_LEN]; 2]>(),
    call("SharedCounters::snapshot_into", || {
        shared().wide.snapshot_into(&mut VALUES.lock().expect("no panic"));
    })
    .after(make_shared),
    call("Cache", || {
        drop((0..MANY).map(|_| CACHE.alloc([0; 8])).collect::<Vec<_>>());
        drop(CACHE.prefill(100));
    }),
    call("Cache::shrink, stats, close", || {
        black_box(CACHE.stats());
        black_box([CACHE.shrink(), RAW.shrink(), LARGE_OBJECTS.shrink(), CONSTRUCTED.shrink()]);
        let cache = Cache::<Object>::new();
        drop(cache.alloc([0; 8]));
        assert!(cache.close().is_ok());
    })
    .after(use_caches),
    call("RawCache", || alloc_and_free(&RAW, MANY)),
    call("RawCache of large objects", || alloc_and_free(&LARGE_OBJECTS, 100)),
    call("ConstructedCache", || {
        drop((0..MANY).map(|_| CONSTRUCTED.alloc()).collect::<Vec<_>>());
    }),
    call("system_info", || _ = black_box(&thiscpu::system_info())),
];
