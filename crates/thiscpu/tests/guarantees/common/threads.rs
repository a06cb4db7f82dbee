//! Threads that start at the same moment, and what they share.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};

use thiscpu::{Bounds, Counter};

/// Runs `work` on `count` threads that start together.
pub(crate) fn together<R: Send>(count: usize, work: impl Fn(usize) -> R + Sync) -> Vec<R> {
    together_while(count, work, || ())
}

/// Runs `work` on `count` threads that start together, and `meanwhile` on this one.
pub(crate) fn together_while<R: Send>(
    count: usize,
    work: impl Fn(usize) -> R + Sync,
    meanwhile: impl FnOnce(),
) -> Vec<R> {
    let (barrier, work) = (&Barrier::new(count + 1), &work);
    std::thread::scope(|scope| {
        let start = |number| {
            scope.spawn(move || {
                barrier.wait();
                work(number)
            })
        };
        let threads: Vec<_> = (0..count).map(start).collect();
        barrier.wait();
        meanwhile();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

/// Makes the calling thread one without a lane, if `condition` holds.
pub(crate) fn leave_lanes_if(condition: bool) {
    if condition {
        thiscpu::__test_support::leave_lanes();
    }
}

/// Pins threads 0 and 1 of five to a CPU each, and makes thread 4 one without a lane.
pub(crate) fn place_one_of_five(thread: usize) {
    if thread < 2 {
        super::pin::pin(thread);
    }
    leave_lanes_if(thread == 4);
}

/// Returns the wrapping sum, as counters add.
pub(crate) fn wrapping_sum(parts: impl IntoIterator<Item = i64>) -> i64 {
    parts.into_iter().fold(0, i64::wrapping_add)
}

/// Totals of begun and of finished adds, between which an exact answer lies.
///
/// Each thread has its own totals, so threads do not contend here.
#[derive(Default)]
pub(crate) struct Tally(Vec<[AtomicU64; 2]>);

impl Tally {
    pub(crate) fn new(threads: usize) -> Tally {
        Tally((0..threads).map(|_| Default::default()).collect())
    }

    /// Adds `n` by `add`, on thread number `thread`.
    pub(crate) fn add(&self, thread: usize, n: u64, add: impl FnOnce()) {
        // SeqCst keeps both updates on their sides of the add on every architecture.
        self.0[thread][0].fetch_add(n, SeqCst);
        add();
        self.0[thread][1].fetch_add(n, SeqCst);
    }

    /// Returns the finished adds before `ask`, its answer, and the begun adds after it.
    pub(crate) fn around<R>(&self, ask: impl FnOnce() -> R) -> (i64, R, i64) {
        let all = |which: usize| self.0.iter().map(|t| t[which].load(SeqCst)).sum::<u64>() as i64;
        let done = all(1);
        let answer = ask();
        (done, answer, all(0))
    }
}

/// Puts a counter into per-CPU mode by many adds; its value stays the same.
pub(crate) fn to_percpu_mode(counter: &Counter) {
    (0..1200).for_each(|n| counter.add(if n % 2 == 0 { 1 } else { -1 }));
}

/// Asserts that a counter's bounds contain `value`, and returns them.
#[track_caller]
pub(crate) fn assert_bounds_contain(counter: &Counter, value: i64) -> Bounds {
    let bounds = counter.bounds();
    assert!(bounds.low <= value && value <= bounds.high, "{value} is not within {bounds:?}");
    bounds
}

/// Decrements a number when dropped.
///
/// Threads hold one, so the threads that wait for them stop after a panic too.
pub(crate) struct DecrementOnDrop<'a>(pub(crate) &'a AtomicUsize);

impl Drop for DecrementOnDrop<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}
