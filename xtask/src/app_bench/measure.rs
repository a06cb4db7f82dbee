//! The cost of a command and its descendants, as the kernel accounts for it.

use std::io;
use std::ops::Add;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use thiscpu_test_support::memory;

/// The time after which a command hangs. Commands take seconds.
const PATIENCE: Duration = Duration::from_secs(300);

/// The cost of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Cost {
    pub(super) time: Duration,
    /// The user and system time of the program and the descendants that it waited for.
    pub(super) cpu: Duration,
    /// The largest resident memory of one of these processes.
    pub(super) peak_bytes: u64,
}

impl Add for Cost {
    type Output = Cost;

    /// Returns the cost of two commands, one after the other.
    fn add(self, other: Cost) -> Cost {
        Cost {
            time: self.time + other.time,
            cpu: self.cpu + other.cpu,
            peak_bytes: self.peak_bytes.max(other.peak_bytes),
        }
    }
}

/// Runs `command` to its end; kills it and its descendants if it hangs.
pub(super) fn run(command: &mut Command) -> Result<(ExitStatus, Cost)> {
    run_within(PATIENCE, command)
}

fn run_within(patience: Duration, command: &mut Command) -> Result<(ExitStatus, Cost)> {
    end_with_parent(command.process_group(0), libc::SIGKILL);
    let started = Instant::now();
    let child = command.spawn();
    let child = child.with_context(|| format!("cannot start {:?}", command.get_program()))?;
    let group = -pid(&child);
    let (status, mut cost) = end(child, group, patience)?;
    cost.time = started.elapsed();
    Ok((status, cost))
}

/// Makes a command get `signal` when this process ends.
///
/// So no abort leaves a program that hangs. Descendants of the program do not get the signal.
pub(super) fn end_with_parent(command: &mut Command, signal: libc::c_int) {
    let set = move || {
        // SAFETY: the call takes two numbers.
        match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal as libc::c_ulong) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure makes one system call, which is safe in a forked child.
    unsafe { command.pre_exec(set) };
}

/// Waits for `child`, which should be ending, and returns its cost with a time of 0.
pub(super) fn finish(child: Child) -> Result<(ExitStatus, Cost)> {
    finish_within(PATIENCE, child)
}

/// Waits for `child`; kills it if it does not end in time, which is an error.
pub(super) fn finish_within(patience: Duration, child: Child) -> Result<(ExitStatus, Cost)> {
    let process = pid(&child);
    end(child, process, patience)
}

/// Waits for `child`, and kills `victim`, a process or a negative group, if it hangs.
fn end(child: Child, victim: libc::pid_t, patience: Duration) -> Result<(ExitStatus, Cost)> {
    let in_time = has_ended_within(patience, &child)?;
    if !in_time {
        // SAFETY: the call takes two numbers. `victim` still means the child, which keeps its id
        // until it is waited for.
        unsafe { libc::kill(victim, libc::SIGKILL) };
    }
    let mut status = 0;
    // SAFETY: all zeroes is a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are to locals. This function owns the child, so it was not waited
        // for before.
        let waited = unsafe { libc::wait4(pid(&child), &mut status, 0, &mut usage) };
        if waited >= 0 {
            break;
        }
        let error = io::Error::last_os_error();
        ensure!(error.kind() == io::ErrorKind::Interrupted, "wait4: {error}");
    }
    ensure!(in_time, "no end after {patience:?}");
    let cost = Cost {
        time: Duration::ZERO,
        cpu: duration(usage.ru_utime) + duration(usage.ru_stime),
        // Linux counts in KiB, and reports the maximum of the child and of the descendants that it
        // waited for.
        peak_bytes: u64::try_from(usage.ru_maxrss)? << 10,
    };
    Ok((ExitStatus::from_raw(status), cost))
}

fn duration(time: libc::timeval) -> Duration {
    Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
}

fn pid(child: &Child) -> libc::pid_t {
    child.id() as libc::pid_t
}

/// Waits until `child` has ended, without a thread or timer that would take CPU time from it.
fn has_ended_within(patience: Duration, child: &Child) -> Result<bool> {
    // SAFETY: the call takes two numbers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid(child), 0) };
    ensure!(fd >= 0, "pidfd_open: {}", io::Error::last_os_error());
    // SAFETY: the call has just opened it, so it has no other owner.
    let fd = unsafe { OwnedFd::from_raw_fd(i32::try_from(fd)?) };
    let mut wanted = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    loop {
        // SAFETY: the pointer is to one writable structure.
        let ready = unsafe { libc::poll(&mut wanted, 1, patience.as_millis() as i32) };
        if ready >= 0 {
            return Ok(ready > 0);
        }
        let error = io::Error::last_os_error();
        ensure!(error.kind() == io::ErrorKind::Interrupted, "poll: {error}");
    }
}

/// Returns the peak memory of a process so far.
pub(super) fn peak_bytes(process: u32) -> Result<u64> {
    let peak = memory::status_bytes(&process.to_string(), "VmHWM");
    peak.with_context(|| format!("the peak memory of process {process}"))
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn costs_add_up() {
        let cost = |time, cpu, peak_bytes| Cost {
            time: Duration::from_millis(time),
            cpu: Duration::from_millis(cpu),
            peak_bytes,
        };
        assert_eq!(cost(3, 1, 700) + cost(4, 9, 300), cost(7, 10, 700));
    }

    #[test]
    fn descendants_count() {
        // The shell is small; its child has a buffer of 48 MiB.
        let script = "dd if=/dev/zero of=/dev/null bs=48M count=4 2> /dev/null; exit 3";
        let (status, cost) = run(Command::new("sh").args(["-c", script])).unwrap();
        assert_eq!(status.code(), Some(3));
        assert!(cost.peak_bytes >= 48 << 20, "{cost:?}");
        assert!(cost.peak_bytes < 80 << 20, "{cost:?}");
        assert!(cost.cpu > Duration::ZERO, "{cost:?}");
    }

    #[test]
    fn hanging_command_is_killed_with_its_descendants() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "(sleep 20; echo survived) & wait"]).stdout(writer);
        let why = run_within(Duration::from_millis(200), &mut command).unwrap_err();
        assert_eq!(why.to_string(), "no end after 200ms");
        // Then only processes that survived can still write to the pipe.
        drop(command);
        let mut output = String::new();
        reader.read_to_string(&mut output).unwrap();
        assert_eq!(output, "");
    }

    #[test]
    fn command_ends_with_the_thread_that_started_it() {
        let mut command = Command::new("sleep");
        end_with_parent(command.arg("20"), libc::SIGKILL);
        let mut child = std::thread::spawn(move || command.spawn().unwrap()).join().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn peak_of_this_process_is_read() {
        let own = peak_bytes(std::process::id()).unwrap();
        assert!(own > 100 << 10, "{own}");
        assert!(peak_bytes(0).is_err());
    }
}
