//! The steps of a guest.

use super::Arguments;
use super::machine::Machine;
use crate::arch::Arch;

/// A command in the guest's shell, which fails with a nonzero status.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) name: String,
    pub(crate) command: String,
    /// The prefix of the output line that summarizes it.
    pub(crate) summary: &'static str,
}

/// Tests of each file, and all tests of CPU affinity and hotplug.
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
    "segment_participants::killed_process_returns_everything::",
    "segment_processes::sums_hold_under_load::",
    "signals::handler_may_interrupt_sum::",
    "stacks::nodes_are_never_lost::",
    "single_step::take_holds_during_add::",
    "tiers::",
    "words::ops_of_each_width_are_exact::",
];
/// The chosen tests for 64 CPUs, where tests take long: those of many lanes.
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
/// Tests of shared segments that run on arm64 only: on x86-64 `cargo test` runs them.
const CHOSEN_ON_ARM: &[&str] = &[
    "segment_traced::killed_adds",
    "segment_traced::killed_calls",
    "segment_traced::killed_makers",
    "segment_slots::",
    "segment_kills::processes_go_on_when_one_is_killed::",
    "segment_processes::sums_see_a_token_once::",
    "segment_processes::sums_of_a_group_see_one_instant::",
    "segment_budget::limit_holds_under_load::",
    "segment_budget::waiters_of_all_processes_are_served_in_order::",
    "segment_budget::waiters_get_units_of_killed_holders::",
    "segment_participants::child_of_fork_holds_nothing::",
    "segment_participants::slots_are_used_again::",
    "segment_cpusets::",
    "segment_files::random_images_do_no_harm::",
];
/// Environments that do not depend on the machine; `cargo xtask degraded` runs them.
const SKIPPED: &str = "--skip ::sandbox_";

/// The sections that the abort harness drives on emulated x86-64 machines.
///
/// They are a counter's and a word's. Each breakpoint makes the emulator translate code again, so
/// all sections would take 90 s.
const ABORTED: &[&str] = &["add_windowed", "u64::add"];
/// Those sections for 64 CPUs, each of which forgets its translations at each breakpoint.
const ABORTED_ON_LARGE: &[&str] = &["u64::add"];

/// Returns the command of the abort harness, which needs CPUs 0 and 1 online during its run.
fn aborts(machine: &Machine, arguments: &Arguments) -> String {
    let sections = match machine.cpus {
        _ if arguments.full || machine.arch == Arch::Aarch64 => &[""],
        ..=16 => ABORTED,
        _ => ABORTED_ON_LARGE,
    };
    let runs: Vec<_> = sections.iter().map(|it| format!("thiscpu-aborts '{it}'")).collect();
    let harness = runs.join(" && ");
    format!(
        "echo 1 > /tmp/spared; until [ \"$(cat /tmp/sparing)\" = 1 ]; do sleep 0.1; done; \
         echo 1 > /sys/devices/system/cpu/cpu1/online; {harness}; \
         status=$?; echo 0 > /tmp/spared; exit $status"
    )
}

pub(crate) fn of(machine: &Machine, arguments: &Arguments) -> Vec<Step> {
    let step =
        |name: &str, command: String, summary| Step { name: name.to_owned(), command, summary };
    let mut steps = vec![
        step("doctor", "thiscpu doctor".to_owned(), "tier "),
        step("tests", tests(machine, arguments), "test result:"),
        step("aborts", aborts(machine, arguments), "all "),
    ];
    for tier in machine.tiers() {
        steps.push(step(
            &format!("torture-{tier}"),
            torture(machine, tier, arguments),
            "operations ",
        ));
    }
    // Its protocols are those of every tier.
    steps.push(step("torture-segment", torture_of_segment(machine, arguments), "kills "));
    steps
}

/// Returns how many times slower the guest is than a real machine.
///
/// Its CPUs are emulated, and there are more of them than this machine has.
fn slowness(machine: &Machine) -> usize {
    machine.cpus * 2
}

/// Tests that are run on machines of 16 CPUs only.
const SKIPPED_ON_LARGE: &str = "--skip ::atomic --skip ::self_registered";

fn tests(machine: &Machine, arguments: &Arguments) -> String {
    let slow = slowness(machine);
    let chosen = match machine.cpus {
        _ if arguments.full => String::new(),
        ..=16 => {
            let more = if machine.arch == Arch::Aarch64 { CHOSEN_ON_ARM } else { &[] };
            format!("{SKIPPED} {}", [CHOSEN, more].concat().join(","))
        }
        _ => format!("{SKIPPED} {SKIPPED_ON_LARGE} {}", CHOSEN_ON_LARGE.join(",")),
    };
    let vars =
        format!("THISCPU_TEST_LEVEL=full THISCPU_TEST_SANDBOXES=all THISCPU_TEST_SLOWDOWN={slow}");
    format!("{vars} guarantees --color never --test-threads 4 {chosen}")
}

/// Returns the command that kills processes which share a segment.
fn torture_of_segment(machine: &Machine, arguments: &Arguments) -> String {
    let (processes, seconds) = (machine.cpus.min(8), arguments.seconds);
    format!("thiscpu-torture segment --seconds {seconds} --processes {processes}")
}

/// Returns the command of torture.
///
/// It has few threads, because each must complete its operation.
fn torture(machine: &Machine, tier: &str, arguments: &Arguments) -> String {
    let (threads, seconds) = (machine.cpus.min(32), arguments.seconds);
    format!("THISCPU_TIER={tier} thiscpu-torture --seconds {seconds} --threads {threads}")
}
