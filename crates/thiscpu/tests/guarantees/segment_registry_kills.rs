//! Registries whose processes are killed or stopped in the middle of inserts and scrapes.

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use thiscpu::__internal::inspect;
use thiscpu::{Segment, SegmentView, SharedFamily, SharedSeries};

use super::segment_kills::{images_of, kill_distance};
use crate::common::segment::{attach, file_of, image_of, small, smallest};
use crate::common::{
    DEFAULT_ONLY, Random, Scenario, at_every_nth_step, at_kills, can_single_step, fork, pin, scale,
    scenario,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(segment_registry_kills::killed_inserts_leave_whole_names, DEFAULT_ONLY)
        .needs(can_single_step),
    scenario!(segment_registry_kills::killed_scrapes_change_no_value, DEFAULT_ONLY)
        .needs(can_single_step)
        .not_quick(),
    scenario!(segment_registry_kills::stopped_inserts_go_on, DEFAULT_ONLY)
        .needs(can_single_step)
        .not_quick(),
    scenario!(segment_registry_kills::processes_go_on_when_inserters_are_killed, DEFAULT_ONLY)
        .needs(fork::can_trace),
    scenario!(segment_registry_kills::names_are_whole_after_a_storm_of_kills, DEFAULT_ONLY),
];

fn family(segment: &Segment) -> SharedFamily {
    let registry = segment.registry().expect("a registry");
    registry.counter_family("requests", "Requests.", &["method", "number"]).expect("room")
}

/// Asserts that a registry has these series, each once, and that nothing is damaged.
fn assert_whole(segment: &Segment, wanted: &BTreeSet<(String, u64)>, what: &str) {
    let scrape = segment.registry().and_then(|registry| registry.scrape()).expect("memory");
    assert!(scrape.damaged().is_empty(), "{what}: {:?}", scrape.damaged());
    let found: Vec<_> = scrape
        .samples()
        .map(|sample| {
            let values: Vec<_> = sample.labels().map(|(_, value)| value).collect();
            (values.join("|"), sample.value().expect("an exact value"))
        })
        .collect();
    assert_eq!(found.len(), wanted.len(), "{what}");
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), *wanted, "{what}");
    let view = SegmentView::from_fd(file_of(segment).into()).expect("a segment");
    let checked = inspect::check(&view).expect("an answer");
    assert!(checked.faults.is_empty(), "{what}: {:?}", checked.faults);
}

/// Values of different lengths, also of the spare that [`leave_spare`] leaves.
const VALUES: [[&str; 2]; 3] = [["GET", "1"], ["", ""], ["a longer method", "a longer number"]];

fn name_of(values: [&str; 2]) -> String {
    values.into_iter().filter(|value| !value.is_empty()).collect::<Vec<_>>().join("|")
}

fn killed_inserts_leave_whole_names() {
    for (number, values) in VALUES.into_iter().enumerate() {
        let segment = smallest().series(3).anonymous().expect("a segment");
        let mut before = BTreeSet::new();
        if number > 0 {
            family(&segment).series(&["before", ""]).expect("room").add(7);
            before.insert(("before".to_owned(), 7));
        }
        let images = images_of(&segment, || {
            family(&segment).series(&values).expect("room").inc();
        });
        assert!(images.len() >= 6, "{} images of an insert", images.len());
        let mut states = BTreeSet::new();
        for image in images {
            let copy = attach(&image).expect("a copy");
            let found = copy.registry().and_then(|registry| registry.find_family("requests"));
            let found = found.expect("no damage").map(|it| it.find(&values).expect("no damage"));
            let sum = found.as_ref().map(|found| found.as_ref().map(SharedSeries::sum));
            states.insert(sum);
            let mut wanted = before.clone();
            if let Some(Some(sum)) = sum {
                assert!(sum <= 1);
                wanted.insert((name_of(values), sum));
            }
            assert_whole(&copy, &wanted, "a killed insert");
            // The next process goes on: with this name and others.
            let again = family(&copy).series(&values).expect("room");
            again.add(10);
            wanted.retain(|(name, _)| *name != name_of(values));
            wanted.insert((name_of(values), 10 + sum.flatten().unwrap_or(0)));
            for other in ["x", "y", "z"] {
                family(&copy).series(&[other, other]).expect("room").add(2);
                wanted.insert((format!("{other}|{other}"), 2));
            }
            assert_whole(&copy, &wanted, "a killed insert, and others");
        }
        let none = if number > 0 { Some(None) } else { None };
        assert!(states.contains(&none) && states.contains(&Some(Some(1))), "{states:?}");
    }
}

fn killed_scrapes_change_no_value() {
    for nth in 0..2 {
        pin::pin(nth);
        let segment = smallest().series(3).anonymous().expect("a segment");
        let all = VALUES.map(|values| family(&segment).series(&values).expect("room"));
        all.iter().for_each(|series| series.add(1 << 20));
        let registry = segment.registry().expect("a registry");
        all[1].add(5);
        let images = images_of(&segment, || assert!(registry.scrape().expect("memory").is_exact()));
        assert!(images.len() >= 8, "{} images of a scrape", images.len());
        for image in images {
            let copy = attach(&image).expect("a copy");
            let values = [1 << 20, (1 << 20) + 5, 1 << 20];
            let wanted = VALUES.map(name_of).into_iter().zip(values).collect();
            assert_whole(&copy, &wanted, "a killed scrape");
        }
    }
}

/// Two mappings of one segment, names, and the number of the current one.
struct Makers {
    segment: Segment,
    families: [SharedFamily; 2],
    names: Vec<String>,
    current: AtomicUsize,
}

impl Makers {
    fn get() -> &'static Makers {
        static MAKERS: OnceLock<Makers> = OnceLock::new();
        MAKERS.get_or_init(|| {
            let segment = small().series(100_000).anonymous().expect("a segment");
            let other = Segment::from_fd(file_of(&segment).into()).expect("a segment");
            Makers {
                segment: segment.clone(),
                families: [segment, other].map(|segment| family(&segment)),
                names: (0..50_000).map(|number| format!("{number}")).collect(),
                current: AtomicUsize::new(0),
            }
        })
    }

    /// Makes or finds a series; allocates nothing on the heap.
    fn make(&self, mapping: usize, number: usize) -> SharedSeries {
        self.families[mapping].series(&["GET", &self.names[number]]).expect("room")
    }
}

// The others make the very series, and others that take the memory and the spare behind it.
fn stopped_inserts_go_on() {
    let makers = Makers::get();
    let disturb = || {
        let makers = Makers::get();
        let current = makers.current.load(SeqCst);
        (0..3).for_each(|behind| makers.make(1, current + behind).add(10));
    };
    let op = || {
        let made = makers.make(0, makers.current.load(SeqCst));
        made.add(1);
        made
    };
    let check = |steps, reached, made: SharedSeries| {
        let current = makers.current.load(SeqCst);
        let sum = 1 + if reached { 10 } else { 0 };
        for series in [made, makers.make(0, current), makers.make(1, current)] {
            assert_eq!(series.sum(), sum, "stopped after {steps}");
        }
        for behind in 1..3 {
            let sum = if reached { 10 } else { 0 };
            assert_eq!(makers.make(0, current + behind).sum(), sum, "stopped after {steps}");
        }
        makers.current.fetch_add(3, SeqCst);
    };
    let stops = at_every_nth_step(if scale::is_quick() { 41 } else { 3 }, op, disturb, check);
    assert!(stops > 50, "{stops} stops");
    // Each loser has left its record and its cell to the next insert.
    let usage = makers.segment.registry().and_then(|registry| registry.usage());
    let series = usage.expect("a registry").series;
    let used = word_of_head(&makers.segment, CELLS_USED);
    assert!((series..=series + 1).contains(&used), "{used} cells of {series} series");
}

/// The word of a registry's head that counts the cells in use.
const CELLS_USED: usize = 8;

/// Returns a word of the head of a registry, which lies behind the waiters.
fn word_of_head(segment: &Segment, number: usize) -> u64 {
    let image = image_of(segment);
    let word = |at: usize| u64::from_le_bytes(image[at..at + 8].try_into().expect("8 bytes"));
    let head = 4096 + 8 * word(40) + 64 * word(64) + 64 * word(72);
    word(head as usize + 8 * number)
}

fn processes_go_on_when_inserters_are_killed() {
    let segment = small().series(5000).anonymous().expect("a segment");
    let number = AtomicUsize::new(0);
    let insert = |number: usize| family(&segment).series(&["GET", &number.to_string()]);
    let op = || insert(number.load(SeqCst)).expect("room").inc();
    let mut wanted = BTreeSet::new();
    let added = std::cell::RefCell::new(&mut wanted);
    let kills = at_kills(kill_distance(97), op, |steps| {
        let current = number.fetch_add(1, SeqCst);
        let series = insert(current).expect("room");
        let sum = series.sum();
        assert!(sum <= 1, "killed after {steps}: {sum}");
        series.add(5);
        added.borrow_mut().insert((format!("GET|{current}"), sum + 5));
    });
    assert!(kills > 3, "{kills} kills");
    assert_whole(&segment, &wanted, "after all kills");
}

// Four processes insert all names, while one after the other is killed and replaced.
fn names_are_whole_after_a_storm_of_kills() {
    const WORKERS: usize = 4;
    let (names, kills) = (scale::rounds(100_000) as usize, scale::rounds(10_000));
    // Each kill can cost the room of one series.
    let mut options = small();
    let segment = options.series(names as u32 + kills as u32).anonymous().expect("a segment");
    let made = family(&segment);
    let work = |first: usize| {
        for number in 0..names {
            let number = (first + number) % names;
            made.series(&["GET", &number.to_string()]).expect("room").inc();
        }
    };
    let mut random = Random::new(35);
    // All begin at one place, so that they race.
    let mut first = 0;
    let mut start = |kill: u64| {
        first = kill as usize * names / kills as usize;
        let first = first;
        fork::start(move || work(first))
    };
    let mut workers = [0; WORKERS].map(|_| start(0));
    for kill in 0..kills {
        let victim = random.below(WORKERS as u64) as usize;
        std::thread::sleep(std::time::Duration::from_micros(random.below(400)));
        fork::kill(workers[victim]);
        workers[victim] = start(kill);
    }
    for worker in workers {
        fork::finish(worker).unwrap_or_else(|error| panic!("{error}"));
    }
    work(0);
    let registry = segment.registry().expect("a registry");
    let usage = registry.usage().expect("a registry");
    assert_eq!((usage.series, usage.families, usage.refused), (names as u64, 1, 0));
    let scrape = registry.scrape().expect("memory");
    assert!(scrape.damaged().is_empty(), "{:?}", scrape.damaged());
    let mut found = vec![0; names];
    for sample in scrape.samples() {
        let (_, number) = sample.labels().nth(1).expect("two labels");
        found[number.parse::<usize>().expect("a number")] += 1;
        assert!(sample.value().expect("an exact value") > WORKERS as u64 - 1, "{number}");
    }
    assert!(found.iter().all(|&count| count == 1));
}
