//! Shared budgets: tasks that wait, next to threads and to other processes.

use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};

use thiscpu::{Segment, SharedAcquireError, SharedBudget};
use thiscpu_test_support::seccomp::install;

use super::budget::poll;
use super::budget_waiters::block_on;
use super::segment_budget::waits_are_served_in_order;
use super::segment_participants::{Holder, LIMIT, budget, until};
use crate::common::seccomp::can_filter;
use crate::common::segment::{Place, Processes, file_of, shared_words, small, small_segment};
use crate::common::{DEFAULT_ONLY, Random, Scenario, TIERS, fork, scale, scenario, together};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(segment_budget_tasks::tasks_and_threads_of_all_processes_are_served_in_order, TIERS),
    scenario!(segment_budget_tasks::dropped_futures_lose_nothing, DEFAULT_ONLY),
    scenario!(segment_budget_tasks::dropped_futures_lose_nothing_under_load, TIERS),
    scenario!(segment_budget_tasks::task_gets_units_when_releaser_is_killed, DEFAULT_ONLY)
        .needs(can_filter),
    scenario!(segment_budget_tasks::task_gets_units_of_killed_holder, DEFAULT_ONLY),
    scenario!(segment_budget_tasks::close_and_limit_end_waits_of_tasks, DEFAULT_ONLY),
    scenario!(segment_budget_tasks::thousand_tasks_get_their_units, DEFAULT_ONLY),
    scenario!(segment_budget_tasks::children_leave_tasks_to_their_parent, DEFAULT_ONLY),
    scenario!(segment_budget_tasks::panicking_waker_stops_no_other_task, DEFAULT_ONLY),
    scenario!(segment_budget_tasks::task_learns_that_file_was_shortened, DEFAULT_ONLY),
    scenario!(segment_budget_tasks::thread_ends_with_the_last_wait, DEFAULT_ONLY),
    scenario!(segment_budget_tasks::polls_do_not_wait_for_the_thread, DEFAULT_ONLY),
    scenario!(segment_budget_tasks::child_detaches_while_its_parents_tasks_wait, DEFAULT_ONLY),
];

/// A waker that counts its calls.
#[derive(Default)]
pub(super) struct Wakes(pub(super) AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Polls a future that must wait, and returns the counter of its wakes.
pub(super) fn poll_pending<F: Future>(future: Pin<&mut F>) -> Arc<Wakes> {
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(Arc::clone(&wakes));
    assert!(future.poll(&mut Context::from_waker(&waker)).is_pending());
    wakes
}

fn tasks_and_threads_of_all_processes_are_served_in_order() {
    let budget = budget(&small_segment());
    for _ in 0..scale::rounds(4) {
        waits_are_served_in_order(&budget, |number, units, serve| match number % 3 {
            0 => {
                budget.acquire(units).expect("open");
                serve();
                budget.release(units);
            }
            1 => {
                let lease = block_on(budget.acquire_async(units)).expect("open");
                serve();
                assert_eq!(lease.units(), units);
            }
            _ => {
                let lease = block_on(budget.acquire_owned(units)).expect("open");
                serve();
                assert_eq!(lease.units(), units);
            }
        });
        until(|| budget.available() == LIMIT);
    }
}

// Before its first poll, while it waits, when it was granted, and when it was resolved.
fn dropped_futures_lose_nothing() {
    let segment = small_segment();
    let budget = budget(&segment);
    for step in 0..4 {
        budget.try_acquire(60).expect("units are available");
        let mut future = Box::pin(budget.acquire_owned(70));
        if step > 0 {
            assert!(poll(future.as_mut()).is_pending());
        }
        if step > 1 {
            budget.release(60);
            assert_eq!((budget.available(), budget.waiters()), (30, 0), "granted");
        }
        if step > 2 {
            assert!(poll(future.as_mut()).is_ready());
        }
        drop(future);
        if step < 2 {
            assert_eq!((budget.acquired(), budget.waiters()), (60, 0), "step {step}");
            budget.release(60);
        }
        assert_eq!((budget.available(), budget.waiters()), (LIMIT, 0), "step {step}");
    }
    // A future that waits may become a thread that waits.
    budget.try_acquire(60).expect("units are available");
    let mut future = budget.acquire_async(70);
    assert!(poll(Pin::new(&mut future)).is_pending());
    budget.release(60);
    assert_eq!(future.wait().expect("open").units(), 70);
    assert_eq!(budget.acquire_owned(LIMIT).wait().expect("open").units(), LIMIT);
    assert_eq!(budget.available(), LIMIT);
}

fn dropped_futures_lose_nothing_under_load() {
    let segment = small_segment();
    let budget = budget(&segment);
    let work = |thread: usize| {
        let mut random = Random::new(thread as u64);
        for _ in 0..scale::rounds(1_000) {
            let is_granted = {
                let mut future = pin!(budget.acquire_async(70));
                let polls = random.below(3);
                (0..polls).any(|_| poll(future.as_mut()).is_ready())
            };
            // Without the future, which might get units for which others wait in front of this.
            if !is_granted && thread == 0 {
                budget.acquire(10).expect("open");
                budget.release(10);
            }
        }
    };
    let processes = Processes::start(2, |_| drop(together(2, work)));
    together(2, work);
    processes.finish();
    until(|| budget.acquired() == 0);
    assert_eq!((budget.available(), budget.waiters()), (LIMIT, 0));
}

// The kernel kills the releaser at the system call that should wake the task.
fn task_gets_units_when_releaser_is_killed() {
    let segment = small_segment();
    let budget = budget(&segment);
    for _ in 0..scale::rounds(5) {
        let step = &shared_words()[0];
        let releaser = fork::start(|| {
            budget.try_acquire(LIMIT).expect("units are available");
            step.store(1, SeqCst);
            until(|| step.load(SeqCst) == 2);
            let no_wakes = [(libc::SYS_futex, libc::SECCOMP_RET_KILL_PROCESS)];
            install(no_wakes, libc::SECCOMP_RET_ALLOW).expect("a filter");
            budget.release(LIMIT);
        });
        until(|| step.load(SeqCst) == 1);
        let mut future = pin!(budget.acquire_async(70));
        let wakes = poll_pending(future.as_mut());
        step.store(2, SeqCst);
        fork::finish(releaser).expect_err("killed before its wake");
        until(|| wakes.0.load(SeqCst) > 0);
        assert!(poll(future).is_ready());
    }
    assert_eq!((budget.available(), budget.waiters()), (LIMIT, 0));
}

// No process makes a call when the kernel releases the lock.
fn task_gets_units_of_killed_holder() {
    let segment = small_segment();
    let budget = budget(&segment);
    for _ in 0..scale::rounds(5) {
        let hold = || std::mem::forget(budget.lease(LIMIT).expect("units are available"));
        let holder = Holder::start(hold, || ());
        let mut future = pin!(budget.acquire_async(70));
        let wakes = poll_pending(future.as_mut());
        holder.kill();
        until(|| wakes.0.load(SeqCst) > 0);
        assert!(poll(future).is_ready());
    }
}

fn close_and_limit_end_waits_of_tasks() {
    let segment = small_segment();
    let budget = budget(&segment);
    budget.try_acquire(80).expect("units are available");
    let mut first = pin!(budget.acquire_async(30));
    let wakes = poll_pending(first.as_mut());
    fork::run(|| budget.set_limit(LIMIT + 10)).expect("a child that raises the limit");
    until(|| wakes.0.load(SeqCst) > 0);
    let Poll::Ready(Ok(lease)) = poll(first) else { panic!("granted") };
    let mut second = pin!(budget.acquire_owned(30));
    let wakes = poll_pending(second.as_mut());
    fork::run(|| budget.close()).expect("a child that closes");
    until(|| wakes.0.load(SeqCst) > 0);
    assert!(matches!(poll(second), Poll::Ready(Err(SharedAcquireError::Closed))));
    assert!(matches!(poll(pin!(budget.acquire_async(1))), Poll::Ready(Err(_))));
    assert_eq!((lease.units(), budget.acquired(), budget.waiters()), (30, LIMIT + 10, 0));
}

/// Polls each future when it is woken, until all are resolved.
fn run_all(budget: &SharedBudget, count: usize, units: u64, begin: impl FnOnce()) {
    struct Ready(usize, mpsc::Sender<usize>);
    impl Wake for Ready {
        fn wake(self: Arc<Self>) {
            let _ = self.1.send(self.0);
        }
    }
    let (send, receive) = mpsc::channel();
    let mut futures: Vec<_> =
        (0..count).map(|_| Some(Box::pin(budget.acquire_owned(units)))).collect();
    let wakers: Vec<_> =
        (0..count).map(|task| Waker::from(Arc::new(Ready(task, send.clone())))).collect();
    let poll = |futures: &mut Vec<Option<Pin<Box<_>>>>, task: usize| {
        let future: &mut Pin<Box<thiscpu::SharedAcquireOwned>> = match &mut futures[task] {
            Some(future) => future,
            None => return false,
        };
        match future.as_mut().poll(&mut Context::from_waker(&wakers[task])) {
            Poll::Ready(lease) => {
                assert_eq!(lease.expect("open").units(), units);
                futures[task] = None;
                true
            }
            Poll::Pending => false,
        }
    };
    for task in 0..count {
        assert!(!poll(&mut futures, task), "no units are available");
    }
    begin();
    let mut left = count;
    while left > 0 {
        let task = receive.recv().expect("a sender");
        left -= usize::from(poll(&mut futures, task));
    }
}

// There are 64 waiters for 8 participants.
fn thousand_tasks_get_their_units() {
    let segment = small().participants(8).anonymous().expect("a segment");
    let budget = budget(&segment);
    budget.try_acquire(LIMIT).expect("units are available");
    let begin = || {
        assert_eq!(budget.waiters(), 64);
        budget.release(LIMIT);
    };
    run_all(&budget, scale::rounds(1000) as usize + 100, 3, begin);
    assert_eq!((budget.available(), budget.waiters()), (LIMIT, 0));
}

fn children_leave_tasks_to_their_parent() {
    let segment = small_segment();
    let budget = budget(&segment);
    budget.try_acquire(LIMIT).expect("units are available");
    for _ in 0..scale::rounds(5) {
        let (mut dropped, mut polled) =
            (Box::pin(budget.acquire_owned(10)), Box::pin(budget.acquire_owned(20)));
        let wakes = [poll_pending(dropped.as_mut()), poll_pending(polled.as_mut())];
        let child = fork::start(|| {
            let own = budget.waiters();
            // SAFETY: the copy of the parent's memory is this process's own.
            let (dropped, mut polled) =
                unsafe { (std::ptr::read(&raw const dropped), std::ptr::read(&raw const polled)) };
            drop(dropped);
            assert_eq!(budget.waiters(), own, "the parent waits");
            let lease = block_on(polled.as_mut()).expect("open");
            assert_eq!(lease.units(), 20);
            std::process::exit(0);
        });
        until(|| budget.waiters() == 3);
        budget.release(30);
        until(|| wakes.iter().all(|wakes| wakes.0.load(SeqCst) > 0));
        for future in [dropped, polled] {
            let Poll::Ready(Ok(lease)) = poll(pin!(future)) else { panic!("granted") };
            lease.forget();
        }
        budget.release(30);
        fork::finish(child).expect("units for the child");
        until(|| budget.acquired() == LIMIT - 30);
        budget.try_acquire(30).expect("units are available");
    }
}

fn panicking_waker_stops_no_other_task() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("the waker panics");
        }
    }
    let segment = small_segment();
    let budget = budget(&segment);
    for _ in 0..3 {
        budget.try_acquire(LIMIT).expect("units are available");
        let (mut first, mut second) =
            (pin!(budget.acquire_async(30)), pin!(budget.acquire_async(40)));
        let panics = Waker::from(Arc::new(Panics));
        assert!(first.as_mut().poll(&mut Context::from_waker(&panics)).is_pending());
        let wakes = poll_pending(second.as_mut());
        catch_unwind(AssertUnwindSafe(|| budget.release(LIMIT))).expect("a panic of nobody else");
        until(|| wakes.0.load(SeqCst) > 0);
        assert!(poll(first).is_ready() && poll(second).is_ready());
        assert_eq!((budget.available(), budget.waiters()), (LIMIT, 0));
    }
}

fn task_learns_that_file_was_shortened() {
    let place = Place::new();
    let segment = small().create(&place).expect("a segment");
    let budget = budget(&segment);
    budget.try_acquire(LIMIT).expect("units are available");
    let mut future = pin!(budget.acquire_async(30));
    let wakes = poll_pending(future.as_mut());
    let file = std::fs::File::options().write(true).open(&*place).expect("the file");
    file.set_len(0).expect("a shorter file");
    until(|| wakes.0.load(SeqCst) > 0);
    assert!(matches!(poll(future), Poll::Ready(Err(SharedAcquireError::Lost))));
}

/// Returns how many threads of this process wake tasks.
fn threads() -> usize {
    let names = std::fs::read_dir("/proc/self/task").expect("threads");
    let is_one = |entry: std::io::Result<std::fs::DirEntry>| {
        let name = entry.ok().and_then(|it| std::fs::read_to_string(it.path().join("comm")).ok());
        name.is_some_and(|name| name.trim() == "thiscpu-tasks")
    };
    names.map(is_one).filter(|&is_one| is_one).count()
}

// The slot is free when the last handle is dropped, even if that thread still runs.
fn thread_ends_with_the_last_wait() {
    let segment = small_segment();
    let watcher = budget(&Segment::from_fd(file_of(&segment).into()).expect("a segment"));
    for _ in 0..scale::rounds(20) {
        let own = Segment::from_fd(file_of(&segment).into()).expect("a segment");
        let budget = budget(&own);
        budget.try_acquire(90).expect("units are available");
        assert!(poll(Box::pin(budget.acquire_async(10)).as_mut()).is_ready());
        let mut future = Box::pin(budget.acquire_owned(20));
        let mut other = Box::pin(budget.acquire_owned(1));
        let wakes = poll_pending(future.as_mut());
        let _other = poll_pending(other.as_mut());
        until(|| threads() == 1);
        budget.release(60);
        until(|| wakes.0.load(SeqCst) > 0);
        assert!(poll(future.as_mut()).is_ready() && poll(other.as_mut()).is_ready());
        drop((future, other, budget, own));
        // Three participants at most have the 64 slots.
        assert_eq!(watcher.acquired(), 0);
        until(|| threads() == 0);
    }
}

// A report of an over-release blocks the thread at a pipe that is full.
fn polls_do_not_wait_for_the_thread() {
    let segment = small_segment();
    let budget = budget(&segment);
    budget.try_acquire(LIMIT - 1).expect("units are available");
    let hold = || budget.try_acquire(1).expect("units are available");
    let holder = Holder::start(hold, || budget.release(4));
    let mut first = Box::pin(budget.acquire_owned(70));
    let _wakes = poll_pending(first.as_mut());
    holder.tell();
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    // SAFETY: the descriptors are open.
    let stderr = unsafe {
        let stderr = libc::dup(libc::STDERR_FILENO);
        let size = libc::fcntl(writer.as_raw_fd(), libc::F_GETPIPE_SZ);
        writer.write_all(&vec![0; size as usize]).expect("room");
        libc::dup2(writer.as_raw_fd(), libc::STDERR_FILENO);
        stderr
    };
    holder.kill();
    until(|| budget.over_released() == 3);
    let mut second = Box::pin(budget.acquire_owned(80));
    let _wakes = poll_pending(second.as_mut());
    drop(second);
    drop(reader);
    // SAFETY: both descriptors are open.
    unsafe { libc::dup2(stderr, libc::STDERR_FILENO) };
    drop(first);
    assert_eq!((budget.acquired(), budget.waiters()), (LIMIT - 1, 0));
}

// The thread has nothing that a child could not drop.
fn child_detaches_while_its_parents_tasks_wait() {
    let place = Place::new();
    let segment = small().create(&place).expect("a segment");
    let budget = budget(&segment);
    budget.try_acquire(LIMIT).expect("units are available");
    let mut future = Box::pin(budget.acquire_owned(10));
    let _wakes = poll_pending(future.as_mut());
    until(|| threads() == 1);
    let inode = format!(" {} ", file_of(&segment).metadata().expect("a file").ino());
    for _ in 0..scale::rounds(20) {
        fork::run(|| {
            let is_mapped = || {
                let maps = std::fs::read_to_string("/proc/self/maps").expect("mappings");
                maps.contains(&inode)
            };
            assert!(is_mapped());
            // SAFETY: the copies are those of this process, which ends without dropping them again.
            unsafe {
                drop(std::ptr::read(&raw const future));
                drop(std::ptr::read(&raw const budget));
                drop(std::ptr::read(&raw const segment));
            }
            assert!(!is_mapped(), "the segment is attached");
        })
        .expect("a child that detaches");
    }
}
