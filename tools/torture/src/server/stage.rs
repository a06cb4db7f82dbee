//! A stage for one act at a time: the heap, threads, children and the time that is left.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{Builder, scope};
use std::time::Instant;

use fastrand::Rng;
use thiscpu_test_support::child;

use super::Server;
use super::heap::Heap;
use crate::violation::{Checked, Violation, equal};

/// What an act can use.
pub(super) struct Stage<'a> {
    server: &'a Server,
    ends: Instant,
}

impl<'a> Stage<'a> {
    pub(super) fn new(server: &'a Server, ends: Instant) -> Stage<'a> {
        Stage { server, ends }
    }

    pub(super) fn heap(&self) -> &'a Heap {
        &self.server.heap
    }

    /// Returns whether the act should end soon.
    pub(super) fn is_over(&self) -> bool {
        self.server.is_over() || Instant::now() >= self.ends
    }

    /// Runs `body` on `count` threads, which get their numbers and random numbers of their own.
    ///
    /// Returns the first failure. If the kernel grants no further thread, there are fewer.
    pub(super) fn run_threads(
        &self,
        count: usize,
        random: &mut Rng,
        body: impl Fn(usize, &mut Rng) -> Checked + Sync,
    ) -> Checked {
        let body = &body;
        scope(|threads| {
            let started: Vec<_> = (0..count)
                .map_while(|number| {
                    let mut random = random.fork();
                    let run = move || {
                        let body = AssertUnwindSafe(|| body(number, &mut random));
                        catch_unwind(body).unwrap_or(Err(Violation::PANIC))
                    };
                    Builder::new().spawn_scoped(threads, run).ok()
                })
                .collect();
            let results = started.into_iter().map(|thread| thread.join());
            // All are joined before the first failure is returned.
            let results: Vec<_> =
                results.map(|result| result.unwrap_or(Err(Violation::PANIC))).collect();
            results.into_iter().collect()
        })
    }

    /// Forks a child that runs `body`, and returns its id.
    ///
    /// The child writes a violation to standard error, and exits with 1.
    /// Returns `None` if the kernel grants no further process.
    pub(super) fn fork(&self, body: impl FnOnce() -> Checked) -> Option<i32> {
        match child::try_fork() {
            Ok(0) => child::exit_with(|| {
                self.heap().live.enter_child();
                match body() {
                    Ok(()) => 0,
                    Err(violation) => {
                        complain(&violation);
                        1
                    }
                }
            }),
            Ok(child) => {
                self.count_child();
                Some(child)
            }
            Err(_) => None,
        }
    }

    /// Counts a child for the report.
    pub(super) fn count_child(&self) {
        self.server.children.fetch_add(1, Relaxed);
    }

    /// Waits for children, which must exit with 0.
    pub(super) fn join(&self, children: impl IntoIterator<Item = i32>) -> Checked {
        let statuses: Vec<_> = children.into_iter().map(child::wait).collect();
        let failed = statuses.into_iter().find(|&status| status != 0).unwrap_or(0);
        equal("the wait status of a child", 0, failed.into())
    }
}

/// Writes a child's violation to standard error.
///
/// Without the standard library's lock, which another thread may have held at the fork.
fn complain(violation: &Violation) {
    let text = format!("in a child: {violation}\n");
    // SAFETY: the text is valid for reads. Nobody could be told of an error.
    unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
}
