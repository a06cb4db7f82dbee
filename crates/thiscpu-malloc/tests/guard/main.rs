//! Tests of hardening. Each runs in a process of its own, because most end by a signal.
//!
//! `cargo test --test guard overflow` runs the tests whose names contain `overflow`.

mod errors;
mod faults;
mod helper;
mod process;
mod valid_use;

use std::process::ExitCode;

fn main() -> ExitCode {
    let tests = [errors::TESTS, faults::TESTS, valid_use::TESTS].concat();
    if let Some(name) = process::requested() {
        let test = tests.iter().find(|test| test.name == name).expect("a test has this name");
        (test.child)();
        return ExitCode::SUCCESS;
    }
    let objects = [
        helper::build("guard_helper", helper::WITHOUT_FRAME_POINTERS),
        helper::build("guard_helper_without_tables", helper::WITHOUT_TABLES),
    ];
    let trials = tests.into_iter().map(|test| {
        let objects = objects.clone();
        libtest_mimic::Trial::test(test.name, move || {
            test.check(&objects);
            Ok(())
        })
    });
    libtest_mimic::run(&libtest_mimic::Arguments::from_args(), trials.collect()).exit_code()
}
