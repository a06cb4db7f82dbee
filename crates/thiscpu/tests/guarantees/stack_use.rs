//! Calls use little stack, the first one of a process included.
//!
//! The limits are those of release builds, without lazy binding, as Rust links programs.

use thiscpu_test_support::{child, painted_stack};

use crate::common::calls::{Call, ELSEWHERE, IN_HANDLERS};
use crate::common::seccomp::{self, Call as SystemCall};
use crate::common::{Scenario, TIERS, TIERS_AND_SANDBOXES, WITH_SECTIONS, namespace, scenario};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(stack_use::handlers_need_2_kib, TIERS_AND_SANDBOXES),
    scenario!(stack_use::handlers_need_2_kib_without_sys, TIERS_AND_SANDBOXES)
        .needs(namespace::can_hide_sys),
    scenario!(stack_use::handlers_need_2_kib_without_environment, TIERS),
    scenario!(stack_use::calls_need_16_kib, TIERS_AND_SANDBOXES),
    scenario!(stack_use::calls_need_16_kib_without_sys, TIERS)
        .needs(namespace::can_hide_sys)
        .not_quick(),
    scenario!(stack_use::calls_need_16_kib_when_membarrier_is_denied_late, WITH_SECTIONS)
        .needs(seccomp::can_filter),
];

/// The stack that a call in a signal handler may use, in bytes.
const IN_HANDLER: usize = 2 << 10;
/// The stack that any call may use, besides an array that it returns by value.
const ANYWHERE: usize = 16 << 10;

/// Makes each call in a forked child, which has not used the library, and measures its stack.
///
/// `before` runs in the child first, after what the call needs was made.
fn check(calls: &[Call], limit: usize, before: fn()) {
    let is_within = |call: &&Call| {
        let measure = || {
            (call.prepare)();
            before();
            let used = painted_stack::bytes_used(call.run);
            let limit = limit + call.returned_bytes;
            eprintln!("{used:6} of {limit:6} bytes: {}", call.name);
            i32::from(used > limit)
        };
        child::status_of(measure) == 0
    };
    let exceeded = calls.iter().filter(|call| !is_within(call)).map(|call| call.name);
    assert_eq!(exceeded.collect::<Vec<_>>(), [""; 0], "calls that use too much stack");
}

fn handlers_need_2_kib() {
    check(IN_HANDLERS, IN_HANDLER, || ());
}

fn handlers_need_2_kib_without_sys() {
    namespace::hide_sys().expect("a namespace");
    handlers_need_2_kib();
}

// Then the library reads the environment from `/proc`.
fn handlers_need_2_kib_without_environment() {
    // SAFETY: this process has one thread, and no pointer into the environment.
    unsafe { libc::clearenv() };
    handlers_need_2_kib();
}

fn calls_need_16_kib() {
    check(IN_HANDLERS, ANYWHERE, || ());
    check(ELSEWHERE, ANYWHERE, || ());
}

fn calls_need_16_kib_without_sys() {
    namespace::hide_sys().expect("a namespace");
    calls_need_16_kib();
}

// A fence runs on each CPU in turn then.
fn calls_need_16_kib_when_membarrier_is_denied_late() {
    check(ELSEWHERE, ANYWHERE, || {
        thiscpu::tier().expect("a tier");
        seccomp::deny(SystemCall::Membarrier, libc::EPERM).expect("a seccomp filter");
    });
}
