//! Tests of memory that changes while a process does little.
//!
//! Each runs in a child of fork, because it is about a whole process. All run at once, because they
//! sleep most of the time.

mod background_thread;
mod large_density;
mod scavenge;
mod slab_huge_pages;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};
use thiscpu_test_support::child;

/// A name, and a function that panics if the test fails.
type Test = (&'static str, fn());

fn main() -> ExitCode {
    let tests: [Test; 4] =
        [background_thread::TEST, large_density::TEST, scavenge::TEST, slab_huge_pages::TEST];
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(tests.len());
    let trials = tests.map(|(name, run)| {
        Trial::test(name, move || {
            let status = child::status_of(|| {
                run();
                0
            });
            if status == 0 { Ok(()) } else { Err(format!("wait status {status:#x}").into()) }
        })
    });
    libtest_mimic::run(&arguments, trials.into()).exit_code()
}
