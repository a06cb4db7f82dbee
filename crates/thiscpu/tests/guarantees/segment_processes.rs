//! Segments of several processes: counters are exact, and races for names and files have an end.

use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::process::Command;
use std::sync::atomic::Ordering::SeqCst;

use thiscpu::{Existing, Segment, SharedCounter, SharedCounters};
use thiscpu_test_support::child;

use crate::common::segment::{
    Place, Processes, attach, file_of, image_of, in_processes, shared_words, small, small_segment,
};
use crate::common::{
    DEFAULT_ONLY, Random, Scenario, TIERS, fork, pin, scale, scenario, together, together_while,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(segment_processes::processes_that_race_for_a_name_get_one_counter, DEFAULT_ONLY),
    scenario!(segment_processes::processes_that_keep_get_one_segment, DEFAULT_ONLY),
    scenario!(segment_processes::processes_that_replace_get_one_each, DEFAULT_ONLY),
    scenario!(segment_processes::created_segment_is_never_replaced, DEFAULT_ONLY),
    scenario!(segment_processes::sums_see_a_token_once, TIERS).needs(pin::two_cpus),
    scenario!(segment_processes::sums_of_a_group_see_one_instant, TIERS).needs(pin::two_cpus),
    scenario!(segment_processes::sums_hold_under_load, TIERS),
    scenario!(segment_processes::children_of_fork_count_exactly, TIERS),
    scenario!(segment_processes::children_of_vfork_count_exactly, TIERS),
    scenario!(segment_processes::executed_program_attaches_by_descriptor, DEFAULT_ONLY),
];

fn counter(segment: &Segment) -> SharedCounter {
    segment.counter("counter").expect("room")
}

fn pair(segment: &Segment) -> SharedCounters<2> {
    segment.counters("pair").expect("room")
}

fn processes_that_race_for_a_name_get_one_counter() {
    for round in 0..scale::rounds(60) {
        let segment = small_segment();
        let name = |n: usize| format!("{round} {}", n % 40);
        in_processes(4, |process| {
            // Two processes attach, the others have what their parent attached.
            let own = match process {
                0 | 1 => Segment::from_fd(file_of(&segment).into()).expect("a segment"),
                _ => segment.clone(),
            };
            for n in 0..40 {
                own.counter(&name(n + process)).expect("room").inc();
            }
        });
        for n in 0..40 {
            assert_eq!(segment.counter(&name(n)).expect("the name").sum(), 4, "{}", name(n));
        }
    }
}

const PROCESSES: usize = 8;

fn processes_that_keep_get_one_segment() {
    for _ in 0..scale::rounds(40) {
        let place = Place::new();
        in_processes(PROCESSES, |_| {
            let segment = small().open_or_create(&place, Existing::Keep).expect("a segment");
            counter(&segment).inc();
        });
        let segment = Segment::open(&place).expect("a segment");
        assert_eq!(counter(&segment).sum(), PROCESSES as i64);
        let again = small().open_or_create(&place, Existing::Keep).expect("a segment");
        assert_eq!(counter(&again).sum(), PROCESSES as i64);
        assert_eq!(again.path(), Some(&*place));
    }
}

fn processes_that_replace_get_one_each() {
    for _ in 0..scale::rounds(40) {
        let place = Place::new();
        let before = small().create(&place).expect("a segment");
        counter(&before).add(100);
        in_processes(PROCESSES, |_| {
            let segment = small().open_or_create(&place, Existing::Replace).expect("a segment");
            counter(&segment).inc();
            assert_eq!(counter(&segment).sum(), 1);
        });
        let last = Segment::open(&place).expect("the last segment");
        assert_eq!((counter(&last).sum(), counter(&before).sum()), (1, 100));
    }
}

// Of several processes that create, one does; and those that keep or replace always succeed.
fn created_segment_is_never_replaced() {
    let created = &shared_words()[0];
    for round in 0..scale::rounds(40) {
        let place = Place::new();
        in_processes(PROCESSES, |_| match small().create(&place) {
            Ok(segment) => {
                created.fetch_add(1, SeqCst);
                counter(&segment).inc();
            }
            Err(error) => {
                assert!(error.to_string().contains("; open it, or remove it"), "{error}");
                counter(&Segment::open(&place).expect("a complete segment")).inc();
            }
        });
        assert_eq!(created.load(SeqCst), round + 1);
        assert_eq!(counter(&Segment::open(&place).expect("it")).sum(), PROCESSES as i64);
        in_processes(PROCESSES, |process| {
            let existing = if process % 2 == 0 { Existing::Keep } else { Existing::Replace };
            small().open_or_create(&place, existing).expect("a segment");
        });
    }
}

/// Lets two processes on two CPUs act in turn, while this one and another ask.
///
/// `act` gets the process's number and the number of its turn, from 0.
fn in_turns(act: impl Fn(usize, u64), ask: impl Fn()) {
    let turn = &shared_words()[0];
    let asked = scale::rounds(4000);
    let _actors = Processes::start(2, |process| {
        pin::pin(process);
        for own in 0.. {
            let mut spins = 0;
            while turn.load(SeqCst) != 2 * own + process as u64 {
                spins += 1;
                if spins % 30 == 0 {
                    std::thread::yield_now();
                }
            }
            act(process, own);
            turn.fetch_add(1, SeqCst);
        }
    });
    let keep_asking = || {
        let mut questions = 0;
        while questions < asked || turn.load(SeqCst) < asked / 4 {
            ask();
            questions += 1;
            if questions % 4 == 0 {
                std::thread::yield_now();
            }
        }
    };
    let other = Processes::start(1, |_| keep_asking());
    keep_asking();
    other.finish();
}

fn sums_see_a_token_once() {
    let segment = small_segment();
    let counter = counter(&segment);
    let act = |process, _| counter.add(if process == 0 { 1 } else { -1 });
    in_turns(act, || {
        let sum = counter.sum();
        assert!(sum == 0 || sum == 1, "{sum}");
    });
}

// The second process adds to the second counter what the first has added to the first.
fn sums_of_a_group_see_one_instant() {
    let segment = small_segment();
    let pair = pair(&segment);
    let amount = |turn: u64| if turn.is_multiple_of(8) { 100_000 } else { 1 };
    let act = |process, turn| pair.add(process, amount(turn));
    in_turns(act, || {
        let [first, second] = pair.sum();
        let ahead = first - second;
        assert!(ahead == 0 || ahead == 1 || ahead == 100_000, "{first}, {second}");
    });
}

fn sums_hold_under_load() {
    let segment = small_segment();
    let (counter, pair) = (counter(&segment), pair(&segment));
    let [begun, done, over] = [0, 8, 16].map(|at| &shared_words()[at]);
    let processes = Processes::start(2, |process| {
        together(2, |thread| {
            let mut random = Random::new((2 * process + thread) as u64);
            while over.load(SeqCst) == 0 {
                let n = if random.below(8) == 0 { 40_000 } else { random.below(100) };
                begun.fetch_add(n, SeqCst);
                counter.add(n as i64);
                pair.add(thread, n as i64);
                done.fetch_add(n, SeqCst);
            }
        });
    });
    let mut last = 0;
    for round in 0..scale::rounds(3000) {
        let before = done.load(SeqCst) as i64;
        let sum = match round % 2 {
            0 => counter.sum(),
            _ => pair.sum().iter().sum(),
        };
        let after = begun.load(SeqCst) as i64;
        assert!(before <= sum && sum <= after && sum >= last, "{before}, {last}: {sum} {after}");
        last = before;
        if round % 16 == 0 {
            std::thread::yield_now();
        }
    }
    over.store(1, SeqCst);
    processes.finish();
    let all = done.load(SeqCst) as i64;
    assert_eq!((counter.sum(), pair.sum().iter().sum::<i64>()), (all, all));
}

fn children_of_fork_count_exactly() {
    const ADDS: i64 = 500;
    let segment = small_segment();
    let counter = counter(&segment);
    let add = |name: &str| {
        for _ in 0..ADDS {
            counter.inc();
            segment.counter(name).expect("room").add(2);
        }
    };
    let rounds = scale::rounds(30) as i64;
    let fork_often = || {
        for round in 0..rounds {
            let child = || {
                add(&format!("round {round}"));
                fork::run(|| add("all")).expect("the grandchild");
                // What the child releases stays its parent's.
                drop(counter.clone());
                drop(Segment::from_fd(file_of(&segment).into()).expect("a segment"));
                let sum = counter.sum();
                assert!(sum >= 2 * ADDS, "{sum}");
            };
            fork::run(child).unwrap_or_else(|error| panic!("child {round}: {error}"));
        }
    };
    let threads =
        together_while(2, |_| (0..10 * ADDS).for_each(|_| add_once(&counter)), fork_often);
    assert_eq!(threads.len(), 2);
    let (children, grandchildren) = (rounds * ADDS, rounds * ADDS);
    assert_eq!(counter.sum(), children + grandchildren + 2 * 10 * ADDS);
    assert_eq!(segment.counter("all").expect("the name").sum(), 2 * grandchildren);
    for round in 0..rounds {
        let name = format!("round {round}");
        assert_eq!(segment.counter(&name).expect("the name").sum(), 2 * ADDS);
    }
}

fn add_once(counter: &SharedCounter) {
    counter.inc();
    assert!(counter.sum() > 0);
}

fn children_of_vfork_count_exactly() {
    let segment = small_segment();
    let counter = counter(&segment);
    for round in 0..scale::rounds(50) as usize {
        pin::pin(round);
        let scope = thiscpu::vfork_scope();
        let body = || {
            pin::pin(round + 1);
            (0..1000).for_each(|_| counter.inc());
            assert!(counter.sum() > 0);
            counter.add(1 << 20);
        };
        assert_eq!(child::on_this_memory(body).expect("a process"), 0, "the child failed");
        drop(scope);
        counter.add(-(1 << 20));
    }
    assert_eq!(counter.sum(), 1000 * scale::rounds(50) as i64);
}

/// The environment variable by which the executed program gets its descriptor.
const DESCRIPTOR: &str = "SEGMENT_FD";

fn executed_program_attaches_by_descriptor() {
    if let Ok(fd) = std::env::var(DESCRIPTOR) {
        // SAFETY: the parent has left this descriptor open for this program, which owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd.parse().expect("a number")) };
        let segment = Segment::from_fd(fd).expect("a segment");
        assert_eq!((segment.path(), segment.lanes()), (None, 2));
        counter(&segment).add(2);
        segment.counters::<100>("by the program").expect("room").add(99, 5);
        return;
    }
    let place = Place::new();
    for segment in [small_segment(), small().create(&place).expect("a segment")] {
        counter(&segment).inc();
        let passed = file_of(&segment);
        // SAFETY: the descriptor is open, and the call takes numbers.
        assert_eq!(unsafe { libc::fcntl(passed.as_raw_fd(), libc::F_SETFD, 0) }, 0);
        let program = std::env::current_exe().expect("the path of this program");
        let mut program = Command::new(program);
        program.env(DESCRIPTOR, passed.as_raw_fd().to_string());
        assert!(program.status().expect("the program").success());
        assert_eq!(counter(&segment).sum(), 3);
        let group = segment.counters::<100>("by the program").expect("the name");
        assert_eq!(group.sum()[99], 5);
        let copy = attach(&image_of(&segment)).expect("a copy");
        assert_eq!(counter(&copy).sum(), 3);
    }
}
