//! Segments whose file somebody shortens: every process goes on, and learns of it.

use std::ffi::c_void;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use thiscpu::{Segment, SegmentErrorKind, SegmentView, SharedAcquireError, SharedCounter};
use thiscpu_test_support::child::wait;
use thiscpu_test_support::memory::set_limit;

use super::segment_participants::until;
use crate::common::segment::{Place, Processes, file_of, file_with, shared_words, small};
use crate::common::{DEFAULT_ONLY, Scenario, fork, pin, scale, scenario, signal, soon, together};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(segment_lost::participants_go_on_when_file_is_shortened, DEFAULT_ONLY),
    scenario!(segment_lost::calls_fail_when_file_is_shortened, DEFAULT_ONLY),
    scenario!(segment_lost::acquires_fail_when_file_is_shortened, DEFAULT_ONLY),
    scenario!(segment_lost::view_gives_no_bounds_when_file_is_shortened, DEFAULT_ONLY),
    scenario!(segment_lost::child_of_fork_goes_on_alone, DEFAULT_ONLY),
    scenario!(segment_lost::other_faults_reach_the_handler_of_the_program, DEFAULT_ONLY),
    scenario!(segment_lost::number_is_enough_for_the_handler_of_the_program, DEFAULT_ONLY),
    scenario!(segment_lost::handler_that_runs_once_runs_once, DEFAULT_ONLY),
    scenario!(segment_lost::other_faults_end_a_process_without_handler, DEFAULT_ONLY),
    scenario!(segment_lost::detached_memory_is_not_replaced, DEFAULT_ONLY),
    scenario!(segment_lost::segment_without_name_installs_no_handler, DEFAULT_ONLY),
];

fn counter(segment: &Segment) -> SharedCounter {
    segment.counter("counter").expect("room")
}

fn shorten(path: &Path, bytes: u64) {
    let file = File::options().write(true).open(path).expect("the file");
    file.set_len(bytes).expect("a shorter file");
}

fn length(path: &Path) -> u64 {
    std::fs::metadata(path).expect("the file").len()
}

fn assert_is_lost(segment: &Segment) {
    assert!(segment.is_lost());
    let found = [segment.counter("counter"), segment.counter("new")].map(|it| it.map(drop));
    let listed = segment.objects().map(|object| object.map(drop));
    for result in found.into_iter().chain(listed) {
        let error = result.expect_err("a lost segment");
        assert_eq!(*error.kind(), SegmentErrorKind::Lost);
        assert!(error.to_string().contains(": somebody has shortened its file"), "{error}");
    }
}

// Two processes add and sum, each in several threads. The length is one that leaves no byte, one
// that leaves lane 0, and one that leaves all bytes in use.
fn participants_go_on_when_file_is_shortened() {
    let [over, progress, attached] = [0, 8, 16].map(|at| &shared_words()[at]);
    let progress_by = |more: u64| {
        let wanted = progress.load(SeqCst) + more;
        while progress.load(SeqCst) < wanted {
            std::thread::yield_now();
        }
    };
    for part in 0..3 {
        [over, attached].into_iter().for_each(|word| word.store(0, SeqCst));
        let place = Place::new();
        let segment = small().create(&place).expect("a segment");
        assert!(!segment.is_lost());
        let all = length(&place);
        let shorter = [0, all - (300 << 10), all - (64 << 10)][part];
        let own = counter(&segment);
        own.dec();
        let processes = Processes::start(2, |process| {
            let own = match process {
                0 => Segment::open(&place).expect("a segment"),
                _ => segment.clone(),
            };
            let counter = counter(&own);
            let group = own.counters::<300>("group").expect("room");
            attached.fetch_add(1, SeqCst);
            together(3, |thread| {
                for round in 0.. {
                    match thread {
                        0 => drop((counter.sum(), group.sum())),
                        _ => [1, -1, 1 << 40].into_iter().for_each(|n| {
                            counter.add(n);
                            group.add(round % 300, n);
                        }),
                    }
                    progress.fetch_add(1, SeqCst);
                    if over.load(SeqCst) != 0 {
                        break;
                    }
                }
            });
            assert_is_lost(&own);
        });
        // Otherwise one process could make all of the progress, and the other find no segment.
        assert!(soon(|| attached.load(SeqCst) == 2), "a process has not attached");
        progress_by(scale::rounds(1000));
        shorten(&place, shorter);
        progress_by(scale::rounds(1000));
        over.store(1, SeqCst);
        processes.finish();
        // Whatever the value, it is exact again.
        let sum = own.sum();
        own.add(5);
        assert_eq!(own.sum(), sum + 5);
        assert_is_lost(&segment);
        assert_eq!(length(&place), shorter);
        Segment::open(&place).expect_err("a short file");
    }
}

// No call has accessed the missing part.
fn calls_fail_when_file_is_shortened() {
    let place = Place::new();
    let segment = small().create(&place).expect("a segment");
    let group = segment.counters::<3000>("group").expect("room");
    // Lane 1 is missing, and all calls use lane 0.
    pin::pin(0);
    let shorter = length(&place) - (192 << 10);
    shorten(&place, shorter);
    segment.counters::<1000>("another").map(drop).expect_err("a lost segment");
    assert_is_lost(&segment);
    // Takes memory in each lane.
    group.add(0, -1);
    assert_eq!(length(&place), shorter);
}

fn acquires_fail_when_file_is_shortened() {
    // The whole file is missing, or one lane alone. In the second case other processes can still
    // see the waiter.
    for missing in [u64::MAX, 64 << 10] {
        let place = Place::new();
        let segment = small().create(&place).expect("a segment");
        let budget = segment.budget("budget", 1).expect("room");
        budget.try_acquire(1).expect("a unit is available");
        let waiter = std::thread::spawn({
            let budget = budget.clone();
            move || budget.acquire(1)
        });
        until(|| budget.waiters() == 1);
        shorten(&place, length(&place).saturating_sub(missing));
        if missing < u64::MAX {
            // This call looks at the length.
            segment.counter("counter").map(drop).expect_err("a lost segment");
        }
        assert_eq!(budget.try_acquire(1), Err(SharedAcquireError::Lost));
        assert!(soon(|| waiter.is_finished()), "the wait does not end");
        assert_eq!(waiter.join().expect("no panic"), Err(SharedAcquireError::Lost));
    }
}

fn view_gives_no_bounds_when_file_is_shortened() {
    let place = Place::new();
    let segment = small().create(&place).expect("a segment");
    counter(&segment).add(7);
    let view = SegmentView::open(&place).expect("a segment");
    let bounds = view.counter("counter").expect("it exists");
    assert_eq!((bounds.bounds().low, view.is_lost()), (7, false));
    shorten(&place, 0);
    assert_eq!((bounds.bounds().low, bounds.bounds().high), (i64::MIN, i64::MAX));
    assert!(view.is_lost());
    let error = view.counter("counter").map(drop).expect_err("a lost segment");
    assert_eq!(*error.kind(), SegmentErrorKind::Lost);
}

fn child_of_fork_goes_on_alone() {
    let place = Place::new();
    let segment = small().create(&place).expect("a segment");
    let counter = counter(&segment);
    counter.add(100);
    shorten(&place, 0);
    fork::run(|| {
        (0..10).for_each(|_| counter.inc());
        assert_eq!(counter.sum(), 10);
        assert_is_lost(&segment);
    })
    .expect("the child");
    counter.add(3);
    assert_eq!(counter.sum(), 3);
    fork::run(|| {
        counter.inc();
        assert_eq!(counter.sum(), 4);
    })
    .expect("the child");
    assert_eq!(counter.sum(), 3);
}

/// Maps a page of a file that has no bytes, at an address or anywhere.
fn foreign_page(at: usize) -> *const u8 {
    let file = file_with(&[]);
    let fixed = if at == 0 { 0 } else { libc::MAP_FIXED_NOREPLACE };
    let flags = libc::MAP_SHARED | fixed;
    // SAFETY: a new mapping where nothing is.
    let page =
        unsafe { libc::mmap(at as *mut c_void, 4096, libc::PROT_READ, flags, file.as_raw_fd(), 0) };
    assert_ne!(page, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
    page.cast()
}

fn touch(page: *const u8) -> u8 {
    // SAFETY: a mapped page. If an access raises a signal, the test expects that.
    unsafe { page.read_volatile() }
}

/// How often the program's handler ran, and the last address that it was given.
static HANDLED: AtomicUsize = AtomicUsize::new(0);
static ADDRESS: AtomicUsize = AtomicUsize::new(0);

/// Handles SIGBUS as a program does that maps files: maps an empty page there.
extern "C" fn repair(_: i32, info: *mut libc::siginfo_t, _: *mut c_void) {
    HANDLED.fetch_add(1, SeqCst);
    // SAFETY: the kernel passes a valid structure.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr()) };
    if code <= 0 {
        return;
    }
    ADDRESS.store(address as usize, SeqCst);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: the test's own page, whose contents are not used.
    unsafe { libc::mmap(address, 4096, libc::PROT_READ, flags, -1, 0) };
}

extern "C" fn note(_: i32) {
    HANDLED.fetch_add(1, SeqCst);
}

fn raise() {
    // SAFETY: the call has no preconditions.
    unsafe { libc::raise(libc::SIGBUS) };
}

fn other_faults_reach_the_handler_of_the_program() {
    signal::handle_with_context(libc::SIGBUS, repair);
    let place = Place::new();
    let segment = small().create(&place).expect("a segment");
    let counter = counter(&segment);
    let page = foreign_page(0);
    assert_eq!((touch(page), HANDLED.load(SeqCst)), (0, 1));
    assert_eq!(ADDRESS.load(SeqCst), page as usize);
    raise();
    assert_eq!(HANDLED.load(SeqCst), 2);
    shorten(&place, 0);
    counter.inc();
    assert_eq!((counter.sum(), HANDLED.load(SeqCst)), (1, 2));
}

fn number_is_enough_for_the_handler_of_the_program() {
    signal::handle(libc::SIGBUS, note);
    let place = Place::new();
    let segment = small().create(&place).expect("a segment");
    let counter = counter(&segment);
    raise();
    assert_eq!(HANDLED.load(SeqCst), 1);
    shorten(&place, 0);
    counter.inc();
    assert_eq!((counter.sum(), HANDLED.load(SeqCst)), (1, 1));
}

extern "C" fn report(_: i32) {
    assert_eq!(HANDLED.fetch_add(1, SeqCst), 0, "the handler runs again");
}

// Handlers that report a crash return to it, and the second fault ends the process.
fn handler_that_runs_once_runs_once() {
    let status = wait(fork::start(|| {
        set_limit(libc::RLIMIT_CORE, 0).expect("a limit");
        // SAFETY: `sigaction` is plain data, for which zeros are valid, and the handler only adds.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = report as *const () as usize;
            action.sa_flags = libc::SA_RESETHAND;
            assert_eq!(libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()), 0);
        }
        let place = Place::new();
        let _segment = small().create(&place).expect("a segment");
        std::fs::remove_file(&place).expect("the file");
        touch(foreign_page(0));
    }));
    assert!(libc::WIFSIGNALED(status), "status {status:#x}");
    assert_eq!(libc::WTERMSIG(status), libc::SIGBUS);
}

/// Sets the action of SIGBUS to a special one.
fn set_action(action: libc::sighandler_t) {
    // SAFETY: the default action and the ignored signal are valid for it.
    assert_ne!(unsafe { libc::signal(libc::SIGBUS, action) }, libc::SIG_ERR);
}

/// Runs `body` in a child that is attached to a segment, and returns the signal that ends it.
fn ending_signal(action: libc::sighandler_t, body: fn()) -> Option<i32> {
    let status = wait(fork::start(|| {
        set_limit(libc::RLIMIT_CORE, 0).expect("a limit");
        set_action(action);
        let place = Place::new();
        let segment = small().create(&place).expect("a segment");
        std::fs::remove_file(&place).expect("the file");
        body();
        counter(&segment).inc();
    }));
    libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status))
}

fn other_faults_end_a_process_without_handler() {
    for action in [libc::SIG_DFL, libc::SIG_IGN] {
        let fault = || assert_eq!(touch(foreign_page(0)), 0);
        assert_eq!(ending_signal(action, fault), Some(libc::SIGBUS));
    }
    assert_eq!(ending_signal(libc::SIG_DFL, raise), Some(libc::SIGBUS));
    assert_eq!(ending_signal(libc::SIG_IGN, raise), None);
}

// The memory's place is another mapping's after the segment has gone.
fn detached_memory_is_not_replaced() {
    signal::handle_with_context(libc::SIGBUS, repair);
    let place = Place::new();
    let segment = small().create(&place).expect("a segment");
    let maps = std::fs::read_to_string("/proc/self/maps").expect("a list of mappings");
    let own = maps.lines().find(|line| line.ends_with(&*place.to_string_lossy()));
    // A segment is mapped before it has its name.
    let own = own.or_else(|| maps.lines().find(|line| line.contains("/dev/shm/#")));
    let address = own.and_then(|line| line.split('-').next()).expect("the segment is mapped");
    let address = usize::from_str_radix(address, 16).expect("an address");
    drop(segment);
    let page = foreign_page(address);
    assert_eq!((touch(page), HANDLED.load(SeqCst)), (0, 1));
}

fn action() -> usize {
    // SAFETY: `sigaction` is plain data, for which zeros are valid, and the call writes it.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut action), 0);
        action.sa_sigaction
    }
}

fn segment_without_name_installs_no_handler() {
    let before = action();
    let segment = small().anonymous().expect("a segment");
    counter(&segment).inc();
    let view = SegmentView::from_fd(file_of(&segment).into()).expect("a segment");
    view.counter("counter").expect("it exists").bounds();
    assert_eq!(action(), before);
    let place = Place::new();
    small().create(&place).expect("a segment");
    assert_ne!(action(), before);
}
