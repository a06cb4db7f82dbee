//! Forked children, which report by their exit status.

use std::io::{Read, Seek};
use std::os::fd::AsRawFd;

pub(crate) use thiscpu_test_support::child::fork;
pub(super) use thiscpu_test_support::child::status_of;
use thiscpu_test_support::child::{alarm_s, exit_with, wait};
use thiscpu_test_support::memory;

use super::process::memory_file;

/// Forks, runs `body` in the child, which then exits, and returns the child's id.
pub(crate) fn start(body: impl FnOnce()) -> i32 {
    match fork() {
        0 => exit_after(body),
        child => child,
    }
}

/// Runs `body` in a forked child, which then exits; the status is not 0 if `body` panics.
pub(crate) fn exit_after(body: impl FnOnce()) -> ! {
    exit_with(|| {
        body();
        0
    })
}

/// Returns an error that describes a wait status, unless the child has succeeded.
pub(super) fn check_status(status: i32) -> Result<(), String> {
    match status {
        0 => Ok(()),
        _ if libc::WIFSIGNALED(status) => match libc::WTERMSIG(status) {
            libc::SIGALRM => Err(format!("a forked child hung for {} s", alarm_s())),
            signal => Err(format!("signal {signal} killed a forked child")),
        },
        _ => Err("a forked child failed; its output is above".into()),
    }
}

/// Waits for a child of [`start`], and checks its status.
pub(crate) fn finish(child: i32) -> Result<(), String> {
    check_status(wait(child))
}

/// Runs `body` in a forked child, and checks its status.
pub(crate) fn run(body: impl FnOnce()) -> Result<(), String> {
    finish(start(body))
}

/// Runs `body` in a forked child, and returns its `waitpid` status and its standard error.
pub(crate) fn capture_stderr(body: impl FnOnce()) -> (i32, String) {
    let mut stderr = memory_file();
    let child = start(|| {
        // SAFETY: both descriptors are open.
        unsafe { libc::dup2(stderr.as_raw_fd(), libc::STDERR_FILENO) };
        // An expected abort leaves no core file.
        memory::set_limit(libc::RLIMIT_CORE, 0).expect("a limit");
        body();
    });
    let (status, mut text) = (wait(child), String::new());
    stderr.rewind().and_then(|()| stderr.read_to_string(&mut text)).expect("UTF-8 in memory");
    (status, text)
}

/// Runs `body` in a forked child, and asserts that it aborts with exactly this message.
pub(crate) fn assert_aborts(message: &str, body: impl FnOnce()) {
    let (status, text) = capture_stderr(body);
    let aborted = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGABRT;
    assert!(aborted, "status {status:#x} instead of an abort with {message:?}: {text}");
    assert_eq!(text, message);
}

/// The result of [`signal_after_call`].
pub(crate) enum SignalOutcome {
    /// The child got the signal, and succeeded.
    Delivered,
    /// The child made fewer calls.
    TooFewCalls,
}

/// Checks that processes may trace their children.
pub(crate) fn can_trace() -> Result<(), String> {
    run(|| assert!(trace_me())).map_err(|_| "needs ptrace".into())
}

fn trace_me() -> bool {
    // SAFETY: this request takes no pointers.
    unsafe { libc::ptrace(libc::PTRACE_TRACEME) == 0 }
}

/// Runs `body` and then `after` in a forked child, which gets `signal` after a system call.
///
/// The signal arrives when the system call number `call` of `body`, counted from 1, returns.
///
/// # Panics
///
/// If the child fails.
pub(crate) fn signal_after_call(
    call: u32,
    signal: i32,
    body: impl FnOnce(),
    after: impl FnOnce(),
) -> SignalOutcome {
    let child = start(|| {
        assert!(trace_me());
        stop();
        body();
        stop();
        after();
    });
    let (mut calls, mut entering, mut sent) = (0, true, false);
    assert!(libc::WIFSTOPPED(wait(child)), "the child did not stop");
    let mut pass_on = 0;
    loop {
        let request = if sent { libc::PTRACE_CONT } else { libc::PTRACE_SYSCALL };
        // SAFETY: this process traces the child, which is stopped; these requests access no memory.
        assert_eq!(unsafe { libc::ptrace(request, child, 0, pass_on) }, 0);
        let status = wait(child);
        if !libc::WIFSTOPPED(status) {
            check_status(status)
                .unwrap_or_else(|error| panic!("signal after call {call}: {error}"));
            return if sent { SignalOutcome::Delivered } else { SignalOutcome::TooFewCalls };
        }
        pass_on = match libc::WSTOPSIG(status) {
            // The child's second stop: `body` made fewer calls.
            libc::SIGSTOP if !sent => {
                kill(child);
                return SignalOutcome::TooFewCalls;
            }
            libc::SIGSTOP => 0,
            libc::SIGTRAP if sent => 0,
            libc::SIGTRAP => {
                calls += u32::from(!entering);
                entering = !entering;
                sent = calls == call;
                if sent { signal } else { 0 }
            }
            other => other,
        };
    }
}

/// Runs `body` in a forked child, and kills it before its instruction number `steps`.
///
/// Returns false if `body` is shorter.
///
/// # Panics
///
/// If the child fails.
pub(crate) fn kill_before_instruction(steps: u64, body: impl FnOnce()) -> bool {
    let child = Traced::start(|| (), |()| body());
    let is_long = (0..steps).all(|_| child.step());
    kill(child.0);
    is_long
}

/// Runs `op` in a forked child, after `prepare`, and calls `look` after each instruction.
///
/// The child is killed when `op` has ended. Unlike a handler of single steps, this works on each
/// architecture; see [`can_step_children`].
///
/// # Panics
///
/// If the child fails.
pub(crate) fn step_child<T>(prepare: impl FnOnce() -> T, op: impl FnOnce(T), look: fn()) {
    let child = Traced::start(prepare, op);
    while child.step() {
        look();
    }
    kill(child.0);
}

/// Checks that processes may trace their children, and step through all instructions.
pub(crate) fn can_step_children() -> Result<(), String> {
    // A processor forgets exclusive loads between two stops, so a loop with them would not end.
    #[cfg(target_arch = "aarch64")]
    if !std::arch::is_aarch64_feature_detected!("lse") {
        return Err("needs atomic instructions, which can be stepped through".into());
    }
    can_trace()
}

/// A child that is stopped before a call.
struct Traced(i32);

impl Traced {
    fn start<T>(prepare: impl FnOnce() -> T, op: impl FnOnce(T)) -> Traced {
        let child = start(|| {
            assert!(trace_me());
            let prepared = prepare();
            stop();
            op(prepared);
            stop();
        });
        assert!(libc::WIFSTOPPED(wait(child)), "the child did not stop");
        Traced(child)
    }

    /// Lets the child execute one instruction, and returns whether the call goes on.
    fn step(&self) -> bool {
        // SAFETY: this process traces the child, which is stopped; the request takes no pointers.
        assert_eq!(unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, self.0, 0, 0) }, 0);
        let status = wait(self.0);
        assert!(libc::WIFSTOPPED(status), "{:?}", check_status(status));
        libc::WSTOPSIG(status) != libc::SIGSTOP
    }
}

/// Kills a child, and waits until it is gone.
pub(crate) fn kill(child: i32) {
    // SAFETY: the child is this process's own and is not reaped yet.
    unsafe { libc::kill(child, libc::SIGKILL) };
    wait(child);
}

fn stop() {
    // SAFETY: `kill` has no preconditions; the tracer lets this process continue.
    unsafe { libc::kill(libc::getpid(), libc::SIGSTOP) };
}
