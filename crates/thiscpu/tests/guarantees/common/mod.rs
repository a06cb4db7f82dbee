//! The harness: runs each scenario in a process of its own, once per environment.
//!
//! A scenario is a function. It needs a process per environment, because a process has one tier for
//! life: the test program starts itself again with the scenario's name in `THISCPU_TEST_SCENARIO`.
//! An environment that this machine lacks counts as ignored, and the reason is shown.
//! CONTRIBUTING.md lists the environment variables of the harness.

mod env;
mod process;

pub(crate) mod calls;
pub(crate) mod cpuset;
pub(crate) mod destructors;
pub(crate) mod fork;
pub(crate) mod futex;
pub(crate) mod namespace;
mod objects;
pub(crate) mod pin;
mod replay;
pub(crate) mod resources;
pub(crate) mod scale;
pub(crate) mod seccomp;
pub(crate) mod segment;
pub(crate) mod signal;
mod single_step;
pub(crate) mod threads;
pub(crate) mod token;

use std::collections::HashMap;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

pub(crate) use self::env::{
    ATOMIC_ONLY, CID_AND_ATOMIC, DEFAULT, DEFAULT_ONLY, Env, LANES_BY_CPU, SELF_REGISTERED_ONLY,
    TIERS, TIERS_AND_SANDBOXES, WITH_SECTIONS,
};

pub(crate) use self::objects::{Object, alloc_many, cache_of, close, exhaust, free_all};
pub(crate) use self::scale::{Level, soon};
pub(crate) use self::single_step::{
    Steps, at_each_step, at_every_nth_step, at_kills, at_sampled_steps, can_single_step,
    conflict_in_handler, fork_at_steps, step_through, stopped_at, stopped_child,
};
pub(crate) use self::threads::{
    DecrementOnDrop, Tally, assert_bounds_contain, leave_lanes_if, place_one_of_five,
    to_percpu_mode, together, together_while, wrapping_sum,
};
pub(crate) use self::token::{Adder, MIXED, PINNED, pass, pass_while_asking};
pub(crate) use thiscpu_test_support::{SetOnDrop, errno, random::Random};

/// A function that panics if a guarantee is broken, and the environments it runs in.
#[derive(Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) run: fn(),
    pub(crate) envs: &'static [&'static Env],
    /// A check that the machine has what the scenario needs, made in a process of its own.
    pub(crate) needs: Option<fn() -> Result<(), String>>,
    /// Whether quick runs have the scenario.
    is_quick: bool,
    /// Whether usual runs have the scenario in one environment only.
    is_slow: bool,
}

impl Scenario {
    pub(crate) const fn new(name: &'static str, envs: &'static [&'static Env], run: fn()) -> Self {
        Scenario { name, run, envs, needs: None, is_quick: true, is_slow: false }
    }

    pub(crate) const fn needs(self, needs: fn() -> Result<(), String>) -> Self {
        Scenario { needs: Some(needs), ..self }
    }

    /// Marks a scenario that takes too long for quick runs.
    pub(crate) const fn not_quick(self) -> Self {
        Scenario { is_quick: false, ..self }
    }

    /// Marks a scenario that is not quick, and that usual runs have in one environment.
    pub(crate) const fn slow(self) -> Self {
        Scenario { is_slow: true, ..self.not_quick() }
    }
}

/// Makes a scenario of a function: `scenario!(group::function, ENVIRONMENTS)`.
macro_rules! scenario {
    ($group:ident::$run:ident, $envs:ident) => {
        $crate::common::Scenario::new(
            concat!(stringify!($group), "::", stringify!($run)),
            &$envs,
            $run,
        )
    };
}
pub(crate) use scenario;

/// Runs the scenarios that the command line selects, or one, if this process is a child.
pub(crate) fn run(scenarios: &[Scenario]) -> ExitCode {
    if let Some(code) = process::run_as_child(scenarios) {
        return code;
    }
    let mut arguments = Arguments::from_args();
    // The filter is a list of parts of names, separated by commas; any of them selects a trial.
    let filter = arguments.filter.take();
    let chosen = |name: &str| match &filter {
        Some(filter) if arguments.exact => filter.split(',').any(|part| name == part),
        Some(filter) => filter.split(',').any(|part| name.contains(part)),
        None => true,
    };
    let (mut machine, mut trials) = (Machine::default(), Vec::new());
    for scenario in scenarios {
        for env in env::select(scenario.envs) {
            let name = format!("{}::{}", scenario.name, env.name);
            if !chosen(&name) {
                continue;
            }
            let obstacle = machine.obstacle(scenario, env);
            // One environment is the first that the machine has.
            let has_one = match scale::level() {
                Level::Quick => true,
                Level::Usual => scenario.is_slow,
                Level::Full => false,
            };
            let is_last =
                has_one && (obstacle.is_none() || !scenario.is_quick && scale::is_quick());
            trials.push(trial(name, scenario, env, obstacle));
            if is_last {
                break;
            }
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn trial(name: String, scenario: &Scenario, env: &'static Env, obstacle: Option<&str>) -> Trial {
    let child = process::Child::new(scenario.name, env, process::RUN);
    let trial = Trial::test(name, move || child.run().map_err(Into::into));
    match obstacle {
        None => trial,
        Some(reason) => trial.with_kind(reason).with_ignored_flag(true),
    }
}

/// The answers of this machine's checks, each made once.
#[derive(Default)]
struct Machine {
    /// By the address of the check.
    needs: HashMap<usize, Result<(), String>>,
    /// By the name of the environment.
    envs: HashMap<&'static str, Result<(), String>>,
}

impl Machine {
    /// Returns why a scenario cannot run, or should not run in a quick run.
    fn obstacle(&mut self, scenario: &Scenario, env: &'static Env) -> Option<&str> {
        if !scenario.is_quick && scale::is_quick() {
            return Some("not quick");
        }
        if let Some(needs) = scenario.needs {
            let check = || process::ask(scenario, &DEFAULT, process::NEEDS);
            let answer = self.needs.entry(needs as usize).or_insert_with(check);
            if let Err(reason) = answer {
                return Some(reason);
            }
        }
        let check = || process::ask(scenario, env, process::TIER);
        self.envs.entry(env.name).or_insert_with(check).as_ref().err().map(String::as_str)
    }
}
