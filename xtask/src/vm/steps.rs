//! What a guest does, one after the other.

use super::machine::Machine;
use crate::arch::Arch;

/// A line of the guest's shell, which fails if it does not end with 0.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) name: String,
    pub(crate) command: String,
    /// What a line of its output begins with that says how much it did.
    pub(crate) tells: &'static str,
}

/// How much is done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Of torture, in each tier.
    pub(crate) seconds: u32,
    /// Every test.
    pub(crate) full: bool,
}

/// Tests of each file, and all of those that are about CPUs.
const CHOSEN: &[&str] = &[
    "bounds::contain_moving_token::",
    "budget::limit_may_change_under_load::",
    "budget::never_refuses_wrongly::",
    "budget::waiters_time_out::",
    "adds::are_all_counted::",
    "adds::are_all_counted_when_threads_move::",
    "thread_exit::destructors_may_add::",
    "first_use::works_on_many_threads_at_once::",
    "forks::children_see_token_once::",
    "sums::see_token_between_lanes_once::",
    "sums::snapshot_is_one_instant::",
    "ledger::new_accounts_start_at_zero::",
    "ledger::sums_and_snapshots_are_one_instant::",
    "ledger::for_each_is_one_instant::",
    "compare_set_take::take_loses_nothing::",
    "memory::mlockall_does_not_fill_reserved_lanes::",
    "pairs::words_change_together::",
    "properties::counter_matches_sequential_model::",
    "sandbox::",
    "signals::handler_may_interrupt_sum::",
    "stacks::nodes_are_never_lost::",
    "single_step::take_holds_during_add::",
    "tiers::",
    "words::ops_of_each_width_are_exact::",
];
/// Those of them that run on 64 CPUs, where all takes long: what is about many lanes.
const CHOSEN_ON_LARGE: &[&str] = &[
    "budget::never_refuses_wrongly::",
    "adds::are_all_counted_when_threads_move::",
    "forks::children_see_token_once::",
    "sums::see_token_between_lanes_once::",
    "ledger::for_each_is_one_instant::",
    "memory::mlockall_does_not_fill_reserved_lanes::",
    "sandbox::fence_works_when_caller_is_moved::",
    "tiers::works_without_sysfs::",
];
/// Environments that say nothing about the machine; `cargo xtask degraded` is about them.
const SKIPPED: &str = "--skip ::sandbox_";

/// Sections that the abort harness drives where a real machine drives all: a counter's, and a word's. Each
/// breakpoint makes the emulator translate anew, so that all of them take a minute and a half.
const ABORTED: [&str; 2] = ["add_windowed", "u64::add"];

/// The abort harness moves between CPUs 0 and 1, which have to be there all the while.
fn aborts(machine: &Machine, bounds: Bounds) -> String {
    let harness = match bounds.full || machine.arch == Arch::Aarch64 {
        true => "thiscpu-aborts".to_owned(),
        false => ABORTED.map(|section| format!("thiscpu-aborts {section}")).join(" && "),
    };
    format!(
        "echo 1 > /tmp/spared; until [ \"$(cat /tmp/sparing)\" = 1 ]; do sleep 0.1; done; \
         echo 1 > /sys/devices/system/cpu/cpu1/online; {harness}; \
         status=$?; echo 0 > /tmp/spared; exit $status"
    )
}

pub(crate) fn of(machine: &Machine, bounds: Bounds) -> Vec<Step> {
    let step = |name: &str, command: String, tells| Step { name: name.to_owned(), command, tells };
    let mut steps = vec![
        step("doctor", "thiscpu doctor".to_owned(), "tier "),
        step("tests", tests(machine, bounds), "test result:"),
    ];
    steps.push(step("aborts", aborts(machine, bounds), "all "));
    for tier in machine.tiers() {
        steps.push(step(&format!("torture-{tier}"), torture(machine, tier, bounds), "operations "));
    }
    steps
}

/// How many times slower the guest is than a machine of its own: its CPUs are emulated, and there are
/// more of them than here.
fn slowness(machine: &Machine) -> usize {
    machine.cpus * 2
}

/// What machines of 16 CPUs show as well as those of 64, which take long.
const SKIPPED_ON_LARGE: &str = "--skip ::atomic --skip ::self_registered";

fn tests(machine: &Machine, bounds: Bounds) -> String {
    let slow = slowness(machine);
    let chosen = match machine.cpus {
        _ if bounds.full => String::new(),
        ..=16 => format!("{SKIPPED} {}", CHOSEN.join(",")),
        _ => format!("{SKIPPED} {SKIPPED_ON_LARGE} {}", CHOSEN_ON_LARGE.join(",")),
    };
    format!("THISCPU_TEST_SLOWDOWN={slow} guarantees --color never --test-threads 4 {chosen}")
}

/// Few threads, because each has to come to an end of what it does.
fn torture(machine: &Machine, tier: &str, bounds: Bounds) -> String {
    let (threads, seconds) = (machine.cpus.min(32), bounds.seconds);
    format!("THISCPU_TIER={tier} thiscpu-torture --seconds {seconds} --threads {threads}")
}
