//! Forked children that report by how they end.

use std::io::{Read, Seek};
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::process::memory_file;

/// A child that hangs is ended by a signal after so many seconds, by itself.
fn alarm_s() -> u32 {
    20 * super::scale::factor()
}

/// Forks, and runs `body` in the child, which then ends. Returns the child.
pub(crate) fn start(body: impl FnOnce()) -> i32 {
    match fork() {
        0 => exit_after(body),
        child => child,
    }
}

/// Forks. Returns the child; 0 in the child, which goes on and comes to [`end`].
pub(crate) fn fork() -> i32 {
    // SAFETY: the child of a process with threads runs on with one; these tests are about that, and
    // what it uses (the allocator of glibc, this library) is made for it.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: alarm has no preconditions.
            unsafe { libc::alarm(alarm_s()) };
            0
        }
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        child => child,
    }
}

/// Runs `body` in a child, which then ends.
pub(crate) fn exit_after(body: impl FnOnce()) -> ! {
    let result = catch_unwind(AssertUnwindSafe(body));
    // SAFETY: ends the child without running what the parent registered for its exit.
    unsafe { libc::_exit(i32::from(result.is_err())) }
}

/// Waits for a child to end, or to stop if it is traced; its status.
fn wait(child: i32) -> i32 {
    let mut status = 0;
    loop {
        // SAFETY: `status` is valid for writes.
        match unsafe { libc::waitpid(child, &mut status, 0) } {
            -1 if std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) => {}
            waited => {
                assert_eq!(waited, child, "{}", std::io::Error::last_os_error());
                return status;
            }
        }
    }
}

fn check_status(status: i32) -> Result<(), String> {
    match status {
        0 => Ok(()),
        _ if libc::WIFSIGNALED(status) => match libc::WTERMSIG(status) {
            libc::SIGALRM => Err(format!("a forked child hung for {} s", alarm_s())),
            signal => Err(format!("signal {signal} ended a forked child")),
        },
        _ => Err("a forked child failed; see above".into()),
    }
}

/// Waits for a child of [`start`].
pub(crate) fn finish(child: i32) -> Result<(), String> {
    check_status(wait(child))
}

/// Runs `body` in a forked child.
pub(crate) fn run(body: impl FnOnce()) -> Result<(), String> {
    finish(start(body))
}

/// Runs `body` in a forked child: how that ended, as `waitpid` says it, and what it wrote to standard error.
pub(crate) fn capture_stderr(body: impl FnOnce()) -> (i32, String) {
    let mut heard = memory_file();
    let child = start(|| {
        // SAFETY: both descriptors are open; the limit is valid for reads. An end that is looked for leaves no core file.
        unsafe {
            libc::dup2(heard.as_raw_fd(), libc::STDERR_FILENO);
            libc::setrlimit(libc::RLIMIT_CORE, &libc::rlimit { rlim_cur: 0, rlim_max: 0 });
        }
        body();
    });
    let (status, mut words) = (wait(child), String::new());
    heard.rewind().and_then(|()| heard.read_to_string(&mut words)).expect("text in memory");
    (status, words)
}

/// How a traced child ended.
pub(crate) enum SignalOutcome {
    Delivered,
    /// It made fewer calls.
    TooFewCalls,
}

/// For scenarios that trace children.
pub(crate) fn can_trace() -> Result<(), String> {
    run(|| assert!(trace_me())).map_err(|_| "needs ptrace".into())
}

fn trace_me() -> bool {
    // SAFETY: this request takes no arguments.
    unsafe { libc::ptrace(libc::PTRACE_TRACEME) == 0 }
}

/// Runs `body`, then `after` in a forked child. As the system call number `call` (from 1) of `body`
/// returns, the child gets `signal`. Panics if the child fails.
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
    assert!(libc::WIFSTOPPED(wait(child)), "the child's own stop");
    let mut pass_on = 0;
    loop {
        let request = if sent { libc::PTRACE_CONT } else { libc::PTRACE_SYSCALL };
        // SAFETY: the child is stopped and this process traces it; these requests touch no memory.
        assert_eq!(unsafe { libc::ptrace(request, child, 0, pass_on) }, 0);
        let status = wait(child);
        if !libc::WIFSTOPPED(status) {
            check_status(status)
                .unwrap_or_else(|error| panic!("signal after call {call}: {error}"));
            return if sent { SignalOutcome::Delivered } else { SignalOutcome::TooFewCalls };
        }
        pass_on = match libc::WSTOPSIG(status) {
            // The second stop: the body made fewer calls, and there is nothing to see.
            libc::SIGSTOP if !sent => {
                // SAFETY: the child is this process's own.
                unsafe { libc::kill(child, libc::SIGKILL) };
                wait(child);
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

fn stop() {
    // SAFETY: stops this process until its tracer lets it go on.
    unsafe { libc::kill(libc::getpid(), libc::SIGSTOP) };
}
