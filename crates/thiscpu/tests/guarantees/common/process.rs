//! Running a scenario in a process of its own, with a deadline.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::FromRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use super::{DEFAULT, Env, Scenario, env, random, scale};

/// A child that has not ended by then is killed, and the scenario has failed; later on slow machines. The longest takes half a minute on two
/// CPUs that nobody else wants.
const DEADLINE: Duration = Duration::from_secs(180);

const SCENARIO: &str = "THISCPU_TEST_SCENARIO";
const ENVIRONMENT: &str = "THISCPU_TEST_ENVIRONMENT";
const MODE: &str = "THISCPU_TEST_MODE";

/// What a child is asked to do.
pub(crate) const RUN: &str = "run";
pub(crate) const NEEDS: &str = "needs";
pub(crate) const TIER: &str = "tier";

/// Does what this process was started for, if it is a child.
pub(crate) fn run_as_child(scenarios: &[Scenario]) -> Option<ExitCode> {
    let get = |name| std::env::var(name).ok();
    let (name, env, mode) = (get(SCENARIO)?, get(ENVIRONMENT)?, get(MODE)?);
    let scenario = scenarios.iter().find(|scenario| scenario.name == name)?;
    let env = env::find(&env)?;
    env.enter();
    let result = match mode.as_str() {
        NEEDS => scenario.needs.map_or(Ok(()), |needs| needs()),
        TIER => env.check(),
        _ => {
            eprintln!("seed {:#x}", random::SEED);
            (scenario.run)();
            env.check_tier()
        }
    };
    Some(match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            println!("{reason}");
            ExitCode::FAILURE
        }
    })
}

/// What the scenario lacks on this machine, asked in a process of its own if there is a question.
pub(crate) fn check_needs(scenario: &Scenario) -> Result<(), String> {
    scenario.needs.map_or(Ok(()), |_| ask(scenario, &DEFAULT, NEEDS))
}

/// Asks a child a question; the error is its answer.
pub(crate) fn ask(
    scenario: &Scenario,
    env: &'static Env,
    mode: &'static str,
) -> Result<(), String> {
    Child::new(scenario.name, env, mode).run().map_err(|output| {
        let answer = output.lines().find(|line| !line.is_empty()).unwrap_or("no answer");
        answer.to_owned()
    })
}

pub(crate) struct Child {
    scenario: &'static str,
    env: &'static Env,
    mode: &'static str,
}

impl Child {
    pub(crate) fn new(scenario: &'static str, env: &'static Env, mode: &'static str) -> Child {
        Child { scenario, env, mode }
    }

    /// Runs the child to its end; the error is what it wrote and how it ended.
    pub(crate) fn run(&self) -> Result<(), String> {
        let mut output = memory_file();
        let stdio = || output.try_clone().expect("a copy of a descriptor");
        let mut command = this_program();
        command.stdout(stdio()).stderr(stdio()).process_group(0);
        command.env(SCENARIO, self.scenario).env(ENVIRONMENT, self.env.name).env(MODE, self.mode);
        self.env.apply(&mut command);
        // SAFETY: prctl may be called between fork and exec.
        unsafe { command.pre_exec(end_with_parent) };
        let mut child = command.spawn().expect("this program starts again");
        let (began, deadline) = (Instant::now(), DEADLINE * scale::factor());
        let ended = loop {
            match child.try_wait().expect("the child is this process's own") {
                Some(status) if status.success() => return Ok(()),
                Some(status) => break format!("{status} (signal {:?})", status.signal()),
                None if began.elapsed() > deadline => {
                    kill_group(child.id());
                    let _ = child.wait();
                    break format!("no end after {deadline:?}; killed");
                }
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        let mut text = String::new();
        output.rewind().and_then(|()| output.read_to_string(&mut text)).expect("text in memory");
        if self.mode == RUN {
            text += &format!("\n{} in environment {}: {ended}", self.scenario, self.env.name);
        }
        Err(text)
    }
}

/// This program, started by another if `THISCPU_TEST_RUNNER` names one, such as `valgrind --quiet`.
fn this_program() -> Command {
    let program = std::env::current_exe().expect("the path of this program");
    let runner = std::env::var("THISCPU_TEST_RUNNER").unwrap_or_default();
    let mut words = runner.split_whitespace();
    match words.next() {
        None => Command::new(program),
        Some(runner) => {
            let mut command = Command::new(runner);
            command.args(words).arg(program);
            command
        }
    }
}

/// Has a child killed when the thread that waits for it ends, which it does only if it is killed itself.
fn end_with_parent() -> std::io::Result<()> {
    // SAFETY: this request takes a signal's number.
    match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Kills the child and what it forked.
fn kill_group(leader: u32) {
    // SAFETY: kill touches no memory; the group is the child's own and the child is not reaped yet.
    unsafe { libc::kill(-(leader as i32), libc::SIGKILL) };
}

/// A file without a name, so that a child can write any amount and is never held up.
pub(crate) fn memory_file() -> File {
    // SAFETY: the name ends with a zero byte; a descriptor that is not negative is new and ours.
    unsafe {
        let file = libc::memfd_create(c"output".as_ptr(), libc::MFD_CLOEXEC);
        assert!(file >= 0, "memfd_create: {}", std::io::Error::last_os_error());
        File::from_raw_fd(file)
    }
}
