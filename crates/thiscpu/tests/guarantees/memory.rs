//! Memory of lanes: none available, huge pages, all of it locked, and reuse.

use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use thiscpu::{Budget, Counter, Counters, Error, PerCpu, PerCpuPair, PerCpuStack};

use crate::common::{
    Scenario, TIERS, resources, scale, scenario, to_percpu_mode, together, together_while,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(memory::counters_stay_exact_without_address_space, TIERS),
    scenario!(memory::mlockall_does_not_fill_reserved_lanes, TIERS).needs(resources::can_lock_all),
    scenario!(memory::unused_lanes_are_inaccessible, TIERS),
    scenario!(memory::huge_pages_do_not_inflate_lanes, TIERS)
        .needs(resources::huge_pages_are_always_on),
    scenario!(memory::lanes_decline_huge_pages, TIERS),
    scenario!(memory::items_are_reused_and_zeroed, TIERS),
    scenario!(memory::counters_have_own_memory_beyond_one_region, TIERS),
];

static COUNTER: Counter = Counter::new();
static COUNTERS: Counters<2> = Counters::new();

// Constructors return errors that help; counters and budgets stay in shared mode and exact.
fn counters_stay_exact_without_address_space() {
    let limited = AtomicBool::new(false);
    let add = |_| {
        // The threads get their stacks before the limit is set.
        while !limited.load(SeqCst) {
            std::thread::yield_now();
        }
        for _ in 0..3000 {
            COUNTER.inc();
            COUNTERS.add(1, 1);
        }
    };
    let check = || {
        let limit = resources::limit_address_space();
        let error = PerCpu::<u64>::try_new().map(drop).expect_err("there is no address space");
        let Error::NoAddressSpace { bytes, lanes, errno } = &error else { panic!("{error:?}") };
        assert!(*bytes > *lanes && *lanes > 0 && *errno == libc::ENOMEM, "{error:?}");
        let text = error.to_string();
        for word in [&bytes.to_string()[..], "address space", "ulimit -v"] {
            assert!(text.contains(word), "{word:?} is not in {text:?}");
        }
        assert_eq!(PerCpuPair::<u64>::try_new().map(drop), Err(error.clone()));
        assert_eq!(PerCpuStack::try_new().map(drop), Err(error));
        let panic = catch_unwind(PerCpu::<u64>::new).expect_err("there is no address space");
        assert!(panic.downcast::<String>().expect("a message").contains(&text));
        limited.store(true, SeqCst);
        // A budget without lanes stays in shared mode.
        let budget = Budget::new(1_000);
        for _ in 0..3000 {
            budget.try_acquire(1).expect("units are available");
            budget.release(1);
        }
        assert_eq!(budget.available(), 1_000);
        for _ in 0..3000 {
            COUNTER.inc();
            COUNTERS.add(0, 1);
            assert!(COUNTER.compare(-1).ordering.is_gt());
        }
        limit
    };
    let mut limit = None;
    together_while(2, add, || limit = Some(check()));
    assert_eq!(COUNTER.sum(), 9000);
    assert_eq!(COUNTERS.snapshot(), [3000, 6000]);
    // Without the limit all works as usual.
    drop(limit);
    PerCpu::<u64>::try_new().expect("there is address space");
    to_percpu_mode(&COUNTER);
    together(2, |_| (0..3000).for_each(|_| COUNTER.inc()));
    assert_eq!(COUNTER.sum(), 15_000);
}

/// Uses counters and words on all CPUs, and returns by how many bytes the process has grown.
fn growth_by_use() -> i64 {
    let before = resources::status_bytes("RssAnon");
    let counters: Vec<Counter> = (0..50).map(|_| Counter::new()).collect();
    let words = PerCpu::<u64>::new();
    counters.iter().for_each(to_percpu_mode);
    let add = |_| {
        for counter in &counters {
            (0..200).for_each(|_| counter.inc());
            words.add(1);
        }
    };
    // One thread after another, so they reuse one stack, which does not count.
    for thread in 0..8 {
        std::thread::scope(|scope| drop(scope.spawn(|| add(thread)).join()));
    }
    for counter in &counters {
        assert_eq!(counter.sum(), 1600);
    }
    assert_eq!(words.lanes().sum::<u64>(), 400);
    resources::status_bytes("RssAnon") - before
}

const MIB: i64 = 1 << 20;

// Locking all present and future memory does not fill lanes that are only reserved.
fn mlockall_does_not_fill_reserved_lanes() {
    resources::lock_all().expect("memory can be locked");
    // The locked stack of a thread does not belong to the library.
    let stack = resources::thread_stack_bytes();
    let growth = growth_by_use();
    assert!(growth < 4 * MIB + stack, "grew by {growth} bytes, with a stack of {stack}");
}

// Lanes that no CPU has used are inaccessible, so the kernel cannot fill them.
fn unused_lanes_are_inaccessible() {
    let before = resources::inaccessible_bytes();
    let words = PerCpu::<u64>::new();
    words.add(1);
    let report = thiscpu::system_info().expect("a tier");
    let unused = (report.lanes_max - report.lanes_in_use) as i64 * 256 * 1024;
    let growth = resources::inaccessible_bytes() - before;
    assert!(growth >= unused, "only {growth} of {unused} unused bytes are inaccessible");
}

// Lanes use small pages, so only touched memory is resident.
fn huge_pages_do_not_inflate_lanes() {
    let growth = growth_by_use();
    assert!(growth < 4 * MIB, "grew by {growth} bytes");
}

// Lanes also decline huge pages where the kernel makes them only on request.
fn lanes_decline_huge_pages() {
    let before = resources::no_huge_page_bytes();
    growth_by_use();
    let lanes = thiscpu::system_info().expect("a tier").lanes_in_use as i64;
    let declined = resources::no_huge_page_bytes() - before;
    assert!(declined >= (lanes + 1) * 256 * 1024, "huge pages are declined for {declined} bytes");
}

// New counters and words reuse the memory of dropped ones, and start at 0.
fn items_are_reused_and_zeroed() {
    let rounds = scale::rounds(100_000);
    let words = |n: u64| {
        let (word, byte, pair) =
            (PerCpu::<u64>::new(), PerCpu::<u8>::new(), PerCpuPair::<u64>::new());
        assert!(word.lanes().all(|value| value == 0), "round {n}: {word:?}");
        assert!(byte.lanes().all(|value| value == 0), "round {n}: {byte:?}");
        assert!(pair.lanes().all(|value| value == (0, 0)), "round {n}: {pair:?}");
        word.add(!0 - n);
        byte.add(77);
        assert_eq!(pair.cmpxchg_double((0, 0), (n, !n)), Ok(()));
    };
    let counters = |n: u64| {
        let counter = Counter::with_batch(2);
        to_percpu_mode(&counter);
        let counters = Counters::<3>::new();
        (0..5).for_each(|_| counters.add(2, n as i64));
        counter.add(40_000);
        assert_eq!(counter.sum(), 40_000, "round {n}");
        assert_eq!(counters.snapshot(), [0, 0, 5 * n as i64]);
    };
    words(1);
    counters(1);
    let before = resources::status_bytes("VmSize");
    together(2, |_| {
        (0..rounds).for_each(words);
        (0..rounds / 50).for_each(counters);
    });
    let growth = resources::status_bytes("VmSize") - before;
    // Threads have stacks and malloc arenas of their own; a leak would be far larger.
    assert!(growth < 200 * MIB, "grew by {growth} bytes of address space");
    let mappings = resources::anonymous_mappings();
    assert!(mappings < 30, "{mappings} mappings");
}

// There are more counters than one region holds, and each has its own memory.
fn counters_have_own_memory_beyond_one_region() {
    const COUNT: i64 = 12_000;
    let counters: Vec<Counter> = (0..COUNT).map(|_| Counter::new()).collect();
    together(2, |_| {
        for (number, counter) in counters.iter().enumerate() {
            (0..40).for_each(|_| counter.add(number as i64));
        }
    });
    for (number, counter) in (0..).zip(&counters) {
        assert_eq!(counter.sum(), 80 * number);
    }
}
