//! A worker process, as the auditor has it.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::os::unix::process::CommandExt as _;

use thiscpu_test_support::cpus::confine;

use super::plan::Orders;
use super::worker::die_with_parent;

/// A process that the auditor has started.
pub(super) struct Process {
    pid: i32,
    /// It has ended and was waited for, so its number may be another one's.
    is_over: bool,
}

/// A process that has ended without being killed, with its wait status.
pub(super) struct Ended(pub(super) i32);

impl Process {
    /// Starts this program again as a worker, which gets the descriptors, and the CPUs if any.
    pub(super) fn start(
        number: usize,
        segment: BorrowedFd<'_>,
        witness: BorrowedFd<'_>,
        seed: u64,
        cpus: Vec<usize>,
    ) -> io::Result<Process> {
        let (segment, witness) = (segment.as_raw_fd(), witness.as_raw_fd());
        let orders = Orders { segment, witness, number, seed };
        let mut command = orders.command();
        let prepare = move || {
            die_with_parent();
            if !cpus.is_empty() && !confine(0, cpus.iter().copied()) {
                return Err(io::Error::last_os_error());
            }
            match orders.pass_on_descriptors() {
                true => Ok(()),
                false => Err(io::Error::last_os_error()),
            }
        };
        // SAFETY: `prepare` makes system calls only, and allocates nothing.
        let child = unsafe { command.pre_exec(prepare) }.spawn()?;
        Ok(Process { pid: child.id() as i32, is_over: false })
    }

    fn signal(&self, signal: i32) {
        // SAFETY: the process has not been waited for, so its number is not another one's.
        unsafe { libc::kill(self.pid, signal) };
    }

    /// Stops the process between two of its instructions.
    pub(super) fn stop(&mut self) -> Result<(), Ended> {
        self.signal(libc::SIGSTOP);
        match self.wait(libc::WUNTRACED) {
            status if libc::WIFSTOPPED(status) => Ok(()),
            status => Err(Ended(status)),
        }
    }

    pub(super) fn go_on(&self) {
        self.signal(libc::SIGCONT);
    }

    /// Kills the process, and waits until the kernel has taken it apart.
    ///
    /// Does nothing if it has ended.
    pub(super) fn kill(&mut self) {
        if !self.is_over {
            self.signal(libc::SIGKILL);
            self.wait(0);
        }
    }

    fn wait(&mut self, flags: i32) -> i32 {
        let mut status = 0;
        // SAFETY: the status is a live local. The process is a child that was not waited for.
        while unsafe { libc::waitpid(self.pid, &mut status, flags) } < 0 {
            let why = io::Error::last_os_error();
            assert_eq!(why.kind(), io::ErrorKind::Interrupted, "waitpid: {why}");
        }
        self.is_over = !libc::WIFSTOPPED(status);
        status
    }
}

/// Makes this process the parent of those whose own parent ends before them.
pub(super) fn adopt_orphans() {
    // SAFETY: sets an attribute of this process.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
}

/// Waits until no child is left, when all workers have been waited for.
///
/// A worker's own child dies with it, but not at once. If the worker is killed before the child has
/// asked for that, the child goes on until its end.
pub(super) fn wait_for_orphans() {
    // SAFETY: no status is wanted, and the call waits for children only.
    while unsafe { libc::waitpid(-1, std::ptr::null_mut(), 0) } > 0
        || io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
}
