//! No call is a cancellation point, the first one of a process included.

use thiscpu_test_support::cancellation::is_survived;

use crate::common::calls::{ELSEWHERE, IN_HANDLERS};
use crate::common::seccomp::{self, Call as SystemCall};
use crate::common::{Scenario, TIERS, TIERS_AND_SANDBOXES, WITH_SECTIONS, namespace, scenario};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(cancellation::calls_survive_pending_cancel, TIERS_AND_SANDBOXES).not_quick(),
    scenario!(cancellation::calls_survive_pending_cancel_without_sys, TIERS)
        .needs(namespace::can_hide_sys)
        .not_quick(),
    scenario!(cancellation::calls_survive_pending_cancel_without_environment, TIERS).not_quick(),
    scenario!(cancellation::calls_survive_pending_cancel_when_membarrier_is_denied, WITH_SECTIONS)
        .needs(seccomp::can_filter),
];

/// Makes each call on a thread with a pending cancel, in a process of its own.
///
/// `before` runs in that process first, after what the call needs was made.
fn check(before: fn()) {
    let survives = |prepare: fn(), run| {
        is_survived(
            || {
                prepare();
                before();
            },
            run,
        )
    };
    let ended = IN_HANDLERS.iter().chain(ELSEWHERE);
    let ended = ended.filter(|call| !survives(call.prepare, call.run)).map(|call| call.name);
    assert_eq!(ended.collect::<Vec<_>>(), [""; 0], "calls that are cancellation points");
}

fn calls_survive_pending_cancel() {
    check(|| ());
}

fn calls_survive_pending_cancel_without_sys() {
    namespace::hide_sys().expect("a namespace");
    check(|| ());
}

// Then the library reads the environment from `/proc`.
fn calls_survive_pending_cancel_without_environment() {
    // SAFETY: this process has one thread, and no pointer into the environment.
    unsafe { libc::clearenv() };
    check(|| ());
}

// A fence runs on each CPU in turn then.
fn calls_survive_pending_cancel_when_membarrier_is_denied() {
    check(|| {
        thiscpu::tier().expect("a tier");
        seccomp::deny(SystemCall::Membarrier, libc::EPERM).expect("a seccomp filter");
    });
}
