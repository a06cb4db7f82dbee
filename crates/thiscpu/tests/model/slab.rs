//! Slab caches under long random runs: no object is handed out twice, and none is lost.
//!
//! A book says which objects are out. It is changed in the same step as a call returns, or begins, so at any time it is
//! exact. What an object holds is not modelled, but for the mark of those that are free, which the cache looks at itself.

use std::alloc::Layout;
use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use thiscpu::model::{self, Machine, Order, random};
use thiscpu::{RawCache, Tier};

use crate::executions;

const THREADS: usize = 4;

/// In a model a unit is a page. So many bytes make slabs of two units, more of them than these tests ever need.
const SMALL: usize = 1024;
/// Four objects a slab, which has a quarter of all units: slabs come and go, and there may be no memory.
const LARGE: usize = 16 * 1024;
/// One object a slab, which has a quarter of all units.
const QUARTER: usize = 64 * 1024;

/// A cache of this execution's, and which of its objects are out.
#[derive(Clone)]
pub(crate) struct Store {
    pub(crate) cache: &'static RawCache,
    out: Arc<Mutex<BTreeSet<usize>>>,
}

impl Store {
    pub(crate) fn of(cache: &'static RawCache) -> Store {
        Store { cache, out: Arc::default() }
    }

    pub(crate) fn new(size: usize) -> Store {
        let layout = Layout::from_size_align(size, 8).expect("a layout");
        let makes = [RawCache::new, RawCache::near];
        // Leaked, because its address must not be used again in this execution.
        Store::of(Box::leak(Box::new(makes[model::choose(2)](layout))))
    }

    fn out(&self) -> std::sync::MutexGuard<'_, BTreeSet<usize>> {
        self.out.lock().expect("no panic")
    }

    /// Whether there was memory.
    pub(crate) fn alloc(&self) -> bool {
        let Some(object) = self.cache.alloc() else { return false };
        let object = object.as_ptr() as usize;
        assert!(self.out().insert(object), "{object:#x} is handed out, and is out already");
        true
    }

    /// Frees any of the objects that are out, whoever has got it.
    pub(crate) fn free(&self) {
        let number = model::choose(self.out().len().max(1));
        let object = self.out().iter().copied().nth(number);
        object.into_iter().for_each(|object| self.free_this(object));
    }

    /// The object that is out, at the lowest address.
    pub(crate) fn first(&self) -> usize {
        *self.out().first().expect("an object is out")
    }

    pub(crate) fn free_last(&self) {
        let last = *self.out().last().expect("an object is out");
        self.free_this(last);
    }

    pub(crate) fn free_this(&self, object: usize) {
        assert!(self.out().remove(&object));
        let object = std::ptr::with_exposed_provenance_mut(object);
        // SAFETY: it is out, and the book knows it no more.
        unsafe { self.cache.free(NonNull::new(object).expect("an object")) };
    }

    /// Everything else is in its slab now.
    pub(crate) fn check_shrunk(&self) {
        self.cache.shrink();
        let stats = self.cache.stats();
        assert_eq!((stats.objects_outside_slabs, stats.objects_in_barns), (self.out().len(), 0));
    }

    /// Ends the cache, after nobody else uses it.
    pub(crate) fn check_end(&self) {
        self.check_shrunk();
        while !self.out().is_empty() {
            self.free();
        }
        self.check_shrunk();
        assert_eq!(self.cache.stats().slabs, 0);
    }
}

/// Starts the threads, of which the last has no lane, and waits for them.
fn run(threads: usize, cpus: usize, store: &Store, work: fn(&Store, usize)) {
    let thread = |number: usize| {
        let store = store.clone();
        model::spawn(number % cpus, move || {
            if number + 1 == THREADS {
                model::leave_lanes();
            }
            work(&store, number);
        })
    };
    let threads: Vec<_> = (0..threads).map(thread).collect();
    threads.into_iter().for_each(model::Thread::join);
}

const THREE: Machine = Machine::new(3, Tier::RseqCid);
const MACHINES: [Machine; 5] = [
    Machine::new(1, Tier::RseqCid),
    THREE,
    Machine { indices: (5, 7), nodes: 2, ..THREE },
    Machine { tier: Tier::Atomic, ..THREE },
    Machine { cpus: 2, tier: Tier::Atomic, nodes: 2, ..THREE },
];

/// On one CPU and several, on one node and two, where there are lanes, with indices that are dense or not, and where
/// there are none.
pub(crate) fn on_each_machine(default: usize, test: fn(usize)) {
    for machine in MACHINES {
        for order in [Order::Uniform, Order::FewChanges(3)] {
            random(machine, order, executions(default) / 10, move || test(machine.cpus));
        }
    }
}

/// Some calls of any kind.
fn anything(store: &Store) {
    for _ in 0..3 + model::choose(8) {
        match model::choose(20) {
            0..=8 => _ = store.alloc(),
            9..=17 => store.free(),
            18 => _ = store.cache.shrink(),
            _ => assert!(store.cache.stats().slabs <= 4),
        }
    }
}

#[test]
fn random_ops_keep_objects_distinct() {
    on_each_machine(4_000, |cpus| {
        let store = Store::new(LARGE);
        run(THREADS, cpus, &store, |store, _| anything(store));
        store.check_end();
    });
}

/// Whoever asks for an object gets one as long as there is memory.
#[test]
fn alloc_succeeds_while_memory_lasts() {
    on_each_machine(4_000, |cpus| {
        let store = Store::new(SMALL);
        run(THREADS, cpus, &store, |store, _| {
            for _ in 0..2 + model::choose(4) {
                assert!(store.alloc(), "there is memory, and no object");
                if model::choose(2) == 0 {
                    assert!(store.alloc(), "there is memory, and no object");
                }
                store.free();
            }
        });
        store.check_end();
    });
}

/// Some only allocate, and others only free, on other CPUs and nodes.
#[test]
fn remote_frees_keep_objects_distinct() {
    on_each_machine(4_000, |cpus| {
        let store = Store::new(LARGE);
        run(THREADS, cpus, &store, |store, number| {
            (0..6).for_each(|_| match number % 2 {
                0 => _ = store.alloc(),
                _ => store.free(),
            });
        });
        store.check_end();
    });
}

/// Two shrink, in any state of the lanes, while others do what fills and empties them.
#[test]
fn concurrent_shrinks_lose_nothing() {
    on_each_machine(4_000, |cpus| {
        let store = Store::new(LARGE);
        run(THREADS, cpus, &store, |store, number| match number {
            0 | 1 => (0..2).for_each(|_| _ = store.cache.shrink()),
            _ => anything(store),
        });
        store.check_end();
    });
}

/// There is no memory any more, and two take what another node has in stock.
#[test]
fn alloc_takes_from_barns_of_other_nodes() {
    let machine = Machine { nodes: 2, disturbed: 0, ..THREE };
    for order in [Order::Uniform, Order::FewChanges(3)] {
        random(machine, order, executions(4_000) / 2, || {
            let store = Store::new(LARGE);
            model::run_on(1);
            while store.alloc() {}
            // Two sheaves stay in the lane, and one goes to the stock.
            (0..6).for_each(|_| store.free());
            assert_eq!(store.cache.stats().objects_in_barns, 2);
            let threads = [0, 2].map(|cpu| {
                let store = store.clone();
                model::spawn(cpu, move || store.alloc())
            });
            let got = threads.map(model::Thread::join);
            // The first may have both in hand when the second looks.
            assert_ne!(got, [false; 2]);
            store.check_end();
        });
    }
}

/// What is in stock, and nobody needs, goes back to its slabs when others trade.
#[test]
fn idle_objects_return_to_slabs() {
    on_each_machine(2_000, |cpus| {
        let store = Store::new(LARGE);
        while store.alloc() {}
        while !store.out().is_empty() {
            store.free();
        }
        let busy = |number: usize| {
            let store = store.clone();
            model::spawn(number % cpus, move || {
                for _ in 0..4 {
                    model::let_a_second_pass();
                    (0..2 + model::choose(6)).for_each(|_| _ = store.alloc());
                    (0..8).for_each(|_| store.free());
                }
            })
        };
        [0, 1].map(busy).into_iter().for_each(model::Thread::join);
        store.check_end();
    });
}

/// Two caches take each other's units and sheaves, and leave nothing behind.
#[test]
fn caches_share_chunks_without_loss() {
    on_each_machine(2_000, |cpus| {
        let stores = [Store::new(LARGE), Store::new(QUARTER)];
        let threads = [0, 1, 0, 1].map(|number| {
            let store = stores[number].clone();
            model::spawn(number % cpus, move || anything(&store))
        });
        threads.into_iter().for_each(model::Thread::join);
        for store in &stores {
            store.check_end();
        }
        (0..4).for_each(|_| assert!(stores[1].alloc(), "units are lost"));
        assert!(!stores[1].alloc(), "there are more units than there are");
        stores[1].check_end();
    });
}

/// Objects may be freed by whoever has them while their cache is closed. Once it was found that none is out, another cache
/// has all that it had.
#[test]
fn close_is_safe_while_last_objects_are_freed() {
    on_each_machine(1_000, |cpus| {
        let store = Store::new(LARGE);
        let threads = [0, 1, 2].map(|number| {
            assert!(store.alloc());
            let store = store.clone();
            // They get into each other's way in lane 0, and so have to do with the slabs themselves.
            model::spawn(number % cpus, move || {
                model::leave_lanes();
                store.free();
            })
        });
        let mut threads = Some(threads);
        let cache = std::ptr::from_ref(store.cache).cast_mut();
        for attempt in 0.. {
            if attempt == 3 {
                threads.take().into_iter().flatten().for_each(model::Thread::join);
            }
            // SAFETY: it ends the cache or leaves it as it is, and moves nothing. Nobody uses it but to free an object.
            unsafe { std::ptr::drop_in_place(cache) };
            if store.cache.stats().sheaf_capacity == 0 {
                break;
            }
        }
        let next = Store::new(LARGE);
        (0..3).for_each(|_| assert!(next.alloc(), "there is memory, and no object"));
        next.free();
        threads.into_iter().flatten().for_each(model::Thread::join);
        next.check_end();
    });
}
