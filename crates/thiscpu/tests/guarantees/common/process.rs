//! Runs a scenario in a process of its own, with a deadline.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::FromRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use thiscpu_test_support::random::SEED;

use super::{Env, Scenario, env, scale};

/// The time after which a child is killed and the scenario fails; longer on slow machines.
///
/// The longest scenario takes half a minute on two idle CPUs.
const DEADLINE: Duration = Duration::from_secs(180);

const SCENARIO: &str = "THISCPU_TEST_SCENARIO";
const ENVIRONMENT: &str = "THISCPU_TEST_ENVIRONMENT";
const MODE: &str = "THISCPU_TEST_MODE";
const WORKER: &str = "THISCPU_TEST_WORKER";

/// The mode of a child that runs its scenario.
pub(crate) const RUN: &str = "run";
/// The mode of a child that checks what its scenario needs.
pub(crate) const NEEDS: &str = "needs";
/// The mode of a child that checks its environment.
pub(crate) const TIER: &str = "tier";

/// Runs this process as a child, if its environment variables say so.
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
            eprintln!("seed {:#x}", SEED);
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

/// Returns the number of the parent's thread that waits for this child.
pub(crate) fn worker() -> usize {
    std::env::var(WORKER).map_or(0, |number| number.parse().expect("a number"))
}

/// Returns the number of the calling thread, among those that run children.
fn own_number() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        // Relaxed: only the number matters.
        static NUMBER: usize = THREADS.fetch_add(1, Relaxed);
    }
    NUMBER.with(|number| *number)
}

/// Runs a check in a child; the error is the first line of its output.
pub(crate) fn ask(
    scenario: &Scenario,
    env: &'static Env,
    mode: &'static str,
) -> Result<(), String> {
    Child::new(scenario.name, env, mode).run().map_err(|output| {
        let answer = output.lines().find(|line| !line.is_empty()).unwrap_or("no output");
        answer.to_owned()
    })
}

/// A scenario in one environment, to be run in a child process.
pub(crate) struct Child {
    scenario: &'static str,
    env: &'static Env,
    mode: &'static str,
}

impl Child {
    pub(crate) fn new(scenario: &'static str, env: &'static Env, mode: &'static str) -> Child {
        Child { scenario, env, mode }
    }

    /// Runs the child until it ends; the error has its output and status.
    pub(crate) fn run(&self) -> Result<(), String> {
        let mut output = memory_file();
        let stdio = || output.try_clone().expect("a duplicate descriptor");
        let mut command = this_program();
        command.stdout(stdio()).stderr(stdio()).process_group(0);
        command.env(SCENARIO, self.scenario).env(ENVIRONMENT, self.env.name).env(MODE, self.mode);
        command.env(WORKER, own_number().to_string());
        if scale::is_quick() {
            // Many scenarios panic on purpose, and each backtrace takes 0.15 s.
            command.env("RUST_BACKTRACE", "0");
        }
        self.env.apply(&mut command);
        // SAFETY: `end_with_parent` only calls `prctl`, which is async-signal-safe.
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
                    break format!("killed after {deadline:?}");
                }
                None => std::thread::sleep(Duration::from_millis(2)),
            }
        };
        let mut text = String::new();
        output.rewind().and_then(|()| output.read_to_string(&mut text)).expect("UTF-8 in memory");
        if self.mode == RUN {
            text += &format!("\n{} in environment {}: {ended}", self.scenario, self.env.name);
        }
        Err(text)
    }
}

/// Returns a command for this program, prefixed with `THISCPU_TEST_RUNNER` if that is set.
///
/// An example is `THISCPU_TEST_RUNNER="valgrind --quiet"`.
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

/// Asks the kernel to kill this child when the thread that waits for it ends.
///
/// That thread ends early only if the test program is killed.
fn end_with_parent() -> std::io::Result<()> {
    // SAFETY: this request takes a signal number and no pointers.
    match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Kills the child and all processes that it forked.
fn kill_group(leader: u32) {
    // SAFETY: `kill` accesses no memory. The child leads the group and is not reaped yet, so the id
    // is not reused.
    unsafe { libc::kill(-(leader as i32), libc::SIGKILL) };
}

/// Makes a file in memory, so a child can write any amount without blocking.
pub(crate) fn memory_file() -> File {
    // SAFETY: the name is NUL-terminated; a nonnegative descriptor is new, so this file owns it.
    unsafe {
        let file = libc::memfd_create(c"output".as_ptr(), libc::MFD_CLOEXEC);
        assert!(file >= 0, "memfd_create: {}", std::io::Error::last_os_error());
        File::from_raw_fd(file)
    }
}
