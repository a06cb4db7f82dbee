//! Memory of dropped objects: it returns to the system, and no page in use does.

use std::cell::RefCell;
use std::collections::HashSet;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use thiscpu::{
    Account, Budget, Cache, ConstructedCache, Counter, Counters, Ledger, Link, PerCpu, PerCpuPair,
    PerCpuStack, RawCache,
};

use crate::common::{
    CID_AND_ATOMIC, Scenario, SetOnDrop, Steps, TIERS, WITH_SECTIONS, cache_of, can_single_step,
    fork, fork_at_steps, resources, scale, scenario, seccomp, signal, together, together_while,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(memory_return::dropped_counters_return_memory, TIERS),
    scenario!(memory_return::dropped_counter_groups_return_memory, TIERS).not_quick(),
    scenario!(memory_return::dropped_budgets_return_memory, WITH_SECTIONS).not_quick(),
    scenario!(memory_return::dropped_words_return_memory, TIERS).not_quick(),
    scenario!(memory_return::dropped_pairs_return_memory, TIERS),
    scenario!(memory_return::dropped_stacks_return_memory, TIERS),
    scenario!(memory_return::dropped_raw_caches_return_memory, TIERS).not_quick(),
    scenario!(memory_return::dropped_caches_return_memory, TIERS).not_quick(),
    scenario!(memory_return::dropped_constructed_caches_return_memory, TIERS).not_quick(),
    scenario!(memory_return::closed_accounts_return_memory, TIERS).not_quick(),
    scenario!(memory_return::accounts_of_returned_memory_have_new_ids, TIERS).not_quick(),
    scenario!(memory_return::accounts_keep_units_while_others_return_memory, TIERS),
    scenario!(memory_return::survivors_keep_values_while_neighbors_are_dropped, TIERS),
    scenario!(memory_return::items_keep_values_while_threads_drop_others, TIERS),
    scenario!(memory_return::locked_memory_is_zeroed_before_reuse, TIERS)
        .needs(resources::can_lock_all),
    scenario!(memory_return::repeated_make_and_drop_keeps_pages, TIERS),
    scenario!(memory_return::children_forked_during_drops_keep_items_apart, TIERS),
    scenario!(memory_return::child_keeps_items_apart_when_forked_during_drop, CID_AND_ATOMIC)
        .needs(can_single_step),
    scenario!(memory_return::child_of_handler_keeps_counts_when_forked_during_drop, CID_AND_ATOMIC)
        .needs(fork::can_trace)
        .not_quick(),
    scenario!(memory_return::drop_of_item_waits_for_no_system_call_of_another, TIERS)
        .needs(seccomp::can_filter),
    scenario!(memory_return::close_of_account_waits_for_no_system_call_of_another, TIERS)
        .needs(seccomp::can_filter),
];

/// Returns the order in which objects are dropped: scattered over all of them.
fn scattered(count: usize) -> impl Iterator<Item = usize> {
    // A prime that divides no count of these tests.
    (0..count).map(move |n| n * 7919 % count)
}

/// Makes many objects, uses and drops them: a fifth of their memory may stay, at most.
///
/// Each takes `bytes` in a lane, and most of them are in use in one.
fn assert_memory_returns<T: Sync>(
    count: usize,
    bytes: usize,
    make: impl Fn() -> T,
    use_one: impl Fn(&T) + Sync,
) {
    let mut all: Vec<Option<T>> = Vec::new();
    all.resize_with(count, || None);
    // The stacks of the threads, and what the library needs once.
    let first: Vec<T> = (0..10).map(|_| make()).collect();
    together(2, |_| first.iter().for_each(&use_one));
    let before = resources::status_bytes("RssAnon");
    all.iter_mut().for_each(|place| *place = Some(make()));
    together(2, |_| all.iter().flatten().for_each(&use_one));
    let used = resources::status_bytes("RssAnon") - before;
    assert!(used >= (count * bytes / 2) as i64, "only {used} bytes were used");
    scattered(count).for_each(|at| all[at] = None);
    let left = resources::status_bytes("RssAnon") - before;
    assert!(left <= used / 5, "{left} of {used} bytes stay");
}

const COUNT: usize = 100_000;

fn dropped_counters_return_memory() {
    let add = |counter: &Counter| (0..40).for_each(|_| counter.inc());
    assert_memory_returns(COUNT, 32, Counter::new, add);
}

fn dropped_counter_groups_return_memory() {
    let add = |counters: &Counters<3>| (0..40).for_each(|n| counters.add(n % 3, 1));
    assert_memory_returns(COUNT, 96, Counters::<3>::new, add);
}

fn dropped_budgets_return_memory() {
    let acquire = |budget: &Budget| {
        for _ in 0..40 {
            budget.try_acquire(1).expect("units are available");
            budget.release(1);
        }
    };
    assert_memory_returns(COUNT, 32, || Budget::new(1 << 20), acquire);
}

fn dropped_words_return_memory() {
    assert_memory_returns(4 * COUNT, 8, PerCpu::<u64>::new, |word| word.add(1));
    assert_memory_returns(4 * COUNT, 8, PerCpu::<u8>::new, |word| word.add(1));
}

fn dropped_pairs_return_memory() {
    let change = |pair: &PerCpuPair<u64>| _ = pair.cmpxchg_double((0, 0), (1, 1));
    assert_memory_returns(2 * COUNT, 16, PerCpuPair::<u64>::new, change);
}

fn dropped_stacks_return_memory() {
    const STACKS: usize = 2 * COUNT;
    // A leaked node for each stack that is made.
    let nodes: Vec<Link> = (0..STACKS + 10).map(|_| Link::new()).collect();
    let nodes = RefCell::new(Vec::leak(nodes).iter_mut());
    let node = || std::ptr::from_mut(nodes.borrow_mut().next().expect("there are enough"));
    let make = || (PerCpuStack::new(), AtomicPtr::new(node()));
    let push = |(stack, node): &(PerCpuStack, AtomicPtr<Link>)| {
        if let Some(node) = NonNull::new(node.swap(null_mut(), SeqCst)) {
            // SAFETY: the node is leaked, and only this thread took it.
            unsafe { stack.push(node) };
        }
    };
    assert_memory_returns(STACKS, 16, make, push);
}

const CACHES: usize = 2_000;

fn dropped_raw_caches_return_memory() {
    let use_one = |cache: &RawCache| {
        let object = cache.alloc().expect("memory");
        // SAFETY: the object is from this cache, and not used any more.
        unsafe { cache.free(object) };
    };
    assert_memory_returns(CACHES, 4096, || cache_of(64), use_one);
}

fn dropped_caches_return_memory() {
    let use_one = |cache: &Cache<u64>| drop(cache.alloc(1));
    assert_memory_returns(CACHES, 4096, Cache::<u64>::new, use_one);
}

fn dropped_constructed_caches_return_memory() {
    let make = || ConstructedCache::new(|| 7_u64);
    let use_one = |cache: &ConstructedCache<u64>| drop(cache.alloc());
    assert_memory_returns(CACHES, 4096, make, use_one);
}

/// Accounts that fill several chunks of records.
const ACCOUNTS: usize = 160_000;

fn closed_accounts_return_memory() {
    let ledger = Ledger::<1>::new();
    // It stays, with the records near its own.
    let survivor = ledger.open();
    survivor.charge(0, 5);
    assert_memory_returns(3 * ACCOUNTS, 32, || ledger.open(), |account| account.charge(0, 1));
    assert_eq!((survivor.sum(0), ledger.len()), (5, 1));
}

// No id repeats, whether the pages of a record have returned or not.
fn accounts_of_returned_memory_have_new_ids() {
    let ledger = Ledger::<1>::new();
    let mut ids = HashSet::new();
    for round in 0..3 {
        let accounts: Vec<Account<1>> = (0..ACCOUNTS / 2).map(|_| ledger.open()).collect();
        for account in &accounts {
            assert!(ids.insert(account.id()), "{} is repeated in round {round}", account.id());
            assert_eq!(account.sum(0), 0);
            account.charge(0, 3);
        }
    }
}

// Threads evict accounts, synchronize, and take snapshots, while chunks of records return.
fn accounts_keep_units_while_others_return_memory() {
    let ledger = Ledger::<1>::new();
    let kept: Vec<Account<1>> = (0..3_000).map(|_| ledger.open()).collect();
    let is_over = AtomicBool::new(false);
    // Pages do not return during these calls, so they leave time in between.
    let pause = || std::thread::sleep(Duration::from_millis(5));
    let work = |thread| {
        let mut charged = 0;
        while !is_over.load(SeqCst) {
            match thread {
                0 => {
                    ledger.sync();
                    pause();
                }
                1 => {
                    ledger.for_each(|_, [units]| assert!(units >= 0));
                    pause();
                }
                _ => {
                    kept.iter().for_each(|account| account.charge(0, 1));
                    charged += 1;
                }
            }
        }
        charged
    };
    let open_and_close = || {
        let _stop = SetOnDrop(&is_over);
        for _ in 0..scale::rounds(12) {
            let accounts: Vec<Account<1>> = (0..ACCOUNTS / 2).map(|_| ledger.open()).collect();
            accounts.iter().for_each(|account| account.charge(0, 1));
            let units: i64 = accounts.iter().map(|account| account.sum(0)).sum();
            assert_eq!(units, accounts.len() as i64);
        }
    };
    let charged: i64 = together_while(4, work, open_and_close).into_iter().sum();
    for account in &kept {
        assert_eq!(account.sum(0), charged);
    }
}

// A page of a dropped item returns only if no other item is on it.
fn survivors_keep_values_while_neighbors_are_dropped() {
    const STEP: usize = 150;
    let mut words: Vec<Option<PerCpu<u64>>> = (0..COUNT).map(|_| Some(PerCpu::new())).collect();
    let add = |_| words.iter().flatten().enumerate().for_each(|(at, word)| word.add(at as u64));
    together(2, add);
    scattered(COUNT).filter(|at| !at.is_multiple_of(STEP)).for_each(|at| words[at] = None);
    let fresh: Vec<PerCpu<u64>> = (0..COUNT).map(|_| PerCpu::new()).collect();
    for word in &fresh {
        assert!(word.lanes().all(|value| value == 0), "{word:?}");
        word.add(!0);
    }
    for (at, word) in words.iter().enumerate() {
        let sum = word.as_ref().map(|word| word.lanes().sum::<u64>());
        assert_eq!(sum, at.is_multiple_of(STEP).then_some(2 * at as u64), "word {at}");
    }
}

/// Makes items of several sizes that hold `value`, checks them, and drops them.
fn make_and_drop_some(value: u64) {
    let words: Vec<PerCpu<u64>> = (0..1_100).map(|_| PerCpu::new()).collect();
    let pairs: Vec<PerCpuPair<u64>> = (0..300).map(|_| PerCpuPair::new()).collect();
    let groups: Vec<Counters<100>> = (0..20).map(|_| Counters::new()).collect();
    for word in &words {
        assert!(word.lanes().all(|found| found == 0), "{word:?}");
        word.add(value);
    }
    for pair in &pairs {
        assert_eq!(pair.lanes().find(|&found| found != (0, 0)), None);
        while pair.cmpxchg_double((0, 0), (value, !value)).is_err() {}
    }
    groups.iter().for_each(|group| (0..100).for_each(|n| group.add(n, value as i64)));
    for word in &words {
        assert_eq!(word.lanes().sum::<u64>(), value);
    }
    for pair in &pairs {
        assert!(pair.lanes().any(|found| found == (value, !value)), "{pair:?}");
    }
    for group in &groups {
        assert_eq!(group.snapshot(), [value as i64; 100]);
    }
}

// Pages that are on their way back to the system are allocated to no item.
fn items_keep_values_while_threads_drop_others() {
    together(4, |thread| {
        (1..=scale::rounds(60)).for_each(|n| make_and_drop_some(n * 8 + thread as u64));
    });
}

// The system does not take locked pages back. They are reused as zeros.
fn locked_memory_is_zeroed_before_reuse() {
    (1..4).for_each(make_and_drop_some);
    resources::lock_all().expect("memory can be locked");
    (1..8).for_each(make_and_drop_some);
}

// A few objects that come and go keep their pages, so that they cost no system call.
fn repeated_make_and_drop_keeps_pages() {
    let make = |n: u64| {
        let (word, counters) = (PerCpu::<u64>::new(), Counters::<300>::new());
        word.add(n);
        counters.add(299, 1);
        assert_eq!(counters.snapshot()[299], 1);
    };
    let rounds = scale::rounds(10_000);
    (0..100).for_each(make);
    let before = resources::page_faults();
    (0..rounds).for_each(make);
    let faults = resources::page_faults() - before;
    assert!(faults < 100 + rounds as i64 / 10, "{faults} page faults in {rounds} rounds");
}

// A child may be forked in the middle of any change of a region.
fn children_forked_during_drops_keep_items_apart() {
    // They fill their columns, so that the threads' words are in others.
    let kept: Vec<PerCpu<u64>> = (0..4_096).map(|_| PerCpu::new()).collect();
    let check = || {
        for (at, word) in kept.iter().enumerate() {
            assert_eq!(word.lanes().sum::<u64>(), at as u64, "word {at}");
        }
    };
    kept.iter().zip(0..).for_each(|(word, at)| word.add(at));
    let is_over = AtomicBool::new(false);
    // Each item is the only one of its size, so each call takes or frees columns.
    let churn = |thread| {
        while !is_over.load(SeqCst) {
            match thread {
                0 => drop(PerCpu::<u64>::new()),
                1 => drop(PerCpuPair::<u64>::new()),
                2 => Counters::<100>::new().add(0, 1),
                _ => Counters::<300>::new().add(0, 1),
            }
        }
    };
    let fork_children = || {
        let _stop = SetOnDrop(&is_over);
        for number in 0..scale::rounds(200) {
            let in_child = || {
                check();
                make_and_drop_some(1);
                check();
            };
            fork::run(in_child).unwrap_or_else(|error| panic!("child {number}: {error}"));
        }
    };
    together_while(4, churn, fork_children);
    check();
}

// A child is forked at the steps of a drop that returns pages, and of an allocation after it.
fn child_keeps_items_apart_when_forked_during_drop() {
    let kept: Vec<PerCpu<u64>> = (0..4_096).map(|_| PerCpu::new()).collect();
    kept.iter().zip(0..).for_each(|(word, at)| word.add(at));
    let check = || {
        for (at, word) in kept.iter().enumerate() {
            assert_eq!(word.lanes().sum::<u64>(), at as u64, "word {at}");
        }
    };
    let child = || {
        make_and_drop_some(1);
        check();
    };
    let pair = RefCell::new(None);
    let prepare = || {
        // The only item of its size is in a column of its own.
        *pair.borrow_mut() = Some(PerCpuPair::<u64>::new());
        // Then as many columns are free as may keep their pages.
        drop((0..COUNT).map(|_| PerCpu::<u64>::new()).collect::<Vec<_>>());
    };
    let drop_and_make = || {
        drop(pair.take());
        drop(PerCpuPair::<u64>::new());
    };
    fork_at_steps(Steps::Sampled, prepare, drop_and_make, child, |()| check());
}

/// Counters without memory in the lanes until a signal handler adds to them.
static GROUP: Counters<100> = Counters::new();
/// How often the handler's child adds to one of them.
const ADDS: i64 = 1_000;
/// The child that the signal handler forks: 0 in that child, and -1 before.
static FORKED: AtomicI32 = AtomicI32::new(-1);

extern "C" fn fork_and_add(_: i32) {
    // SAFETY: the child makes only calls that handlers may make, before it leaves the handler.
    FORKED.store(unsafe { libc::fork() }, SeqCst);
    if FORKED.load(SeqCst) == 0 {
        (0..ADDS).for_each(|_| GROUP.add(7, 1));
    }
}

// A handler forks between the system calls by which a drop returns pages. Its child uses the
// memory, and then goes on with the drop.
fn child_of_handler_keeps_counts_when_forked_during_drop() {
    for call in 1.. {
        let words: Vec<_> = (0..COUNT).map(|_| PerCpu::<u64>::new()).collect();
        together(2, |_| words.iter().for_each(|word| word.add(1)));
        let body = || {
            signal::handle(libc::SIGUSR1, fork_and_add);
            drop(words);
            if FORKED.load(SeqCst) == 0 {
                fork::exit_after(|| assert_eq!(GROUP.sum(7), ADDS));
            }
        };
        let after = || fork::finish(FORKED.load(SeqCst)).expect("the handler's child succeeds");
        match fork::signal_after_call(call, libc::SIGUSR1, body, after) {
            fork::SignalOutcome::Delivered if call < 10 => {}
            _ => return,
        }
    }
}

/// How many system calls that return pages have begun.
static RETURNS: AtomicUsize = AtomicUsize::new(0);
/// Whether the thread in the first of them may go on.
static MAY_RETURN: AtomicBool = AtomicBool::new(false);
/// Whether that thread went on without permission, because another one waits for it.
static IS_AWAITED: AtomicBool = AtomicBool::new(false);

extern "C" fn stop_in_first_return(_: i32, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    if RETURNS.fetch_add(1, SeqCst) > 0 {
        return;
    }
    let begun = Instant::now();
    while !MAY_RETURN.load(SeqCst) {
        if begun.elapsed() > Duration::from_secs(20) {
            return IS_AWAITED.store(true, SeqCst);
        }
        std::thread::yield_now();
    }
}

/// Drops `all`, which returns pages, and `other` on another thread meanwhile.
fn assert_not_awaited<T: Send + 'static>(all: Vec<T>, other: T) {
    std::thread::spawn(|| {
        while RETURNS.load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        drop(other);
        MAY_RETURN.store(true, SeqCst);
        // A thread that exits makes the system call while it blocks all signals.
        loop {
            std::thread::park();
        }
    });
    signal::handle_with_context(libc::SIGSYS, stop_in_first_return);
    seccomp::trap(seccomp::Call::Advise).expect("a filter");
    drop(all);
    assert!(RETURNS.load(SeqCst) > 0 && !IS_AWAITED.load(SeqCst));
}

fn drop_of_item_waits_for_no_system_call_of_another() {
    let words = (0..COUNT).map(|_| PerCpu::<u64>::new()).collect();
    assert_not_awaited(words, PerCpu::new());
}

fn close_of_account_waits_for_no_system_call_of_another() {
    let ledger = Ledger::<64>::new();
    // They fill several chunks.
    let accounts = (0..8_000).map(|_| ledger.open()).collect();
    assert_not_awaited(accounts, ledger.open());
}
