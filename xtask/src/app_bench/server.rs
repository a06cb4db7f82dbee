//! A server of a run. It ends with this process, however that ends.

use std::io;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use super::measure::{self, Cost};
use super::run::Run;

/// The time after which a server does not start.
const START: Duration = Duration::from_secs(60);
/// The time that a server of a failed run has to end.
const END: Duration = Duration::from_secs(10);

/// A running server, which is ended when this is dropped.
pub(super) struct Server {
    child: Option<Child>,
    name: String,
    abort: libc::c_int,
}

impl Server {
    /// Starts a server, and waits until the command `ping` succeeds.
    ///
    /// The server gets the signal `abort` if the run fails or this process ends.
    pub(super) fn start(
        run: &Run,
        command: &mut Command,
        abort: libc::c_int,
        ping: impl Fn() -> Result<Command>,
    ) -> Result<Server> {
        measure::end_with_parent(command, abort);
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command.spawn().with_context(|| name.clone())?;
        let mut server = Server { child: Some(child), name, abort };
        server.wait_until_ready(run, ping)?;
        Ok(server)
    }

    fn wait_until_ready(&mut self, run: &Run, ping: impl Fn() -> Result<Command>) -> Result<()> {
        let deadline = Instant::now() + START;
        while !measure::run(&mut ping()?)?.0.success() {
            if let Some(status) = self.child.as_mut().map(Child::try_wait).transpose()?.flatten() {
                self.child = None;
                bail!("{}: {status}; {}", self.name, run.last_errors());
            }
            ensure!(Instant::now() < deadline, "{} does not answer", self.name);
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Returns the process id.
    pub(super) fn id(&self) -> Result<u32> {
        Ok(self.child.as_ref().context("the server is not running")?.id())
    }

    pub(super) fn signal(&self, signal: libc::c_int) -> Result<()> {
        let process = self.id()? as libc::pid_t;
        // SAFETY: the call takes two numbers. The id still means the child, which was not waited
        // for.
        let sent = unsafe { libc::kill(process, signal) };
        ensure!(sent == 0, "kill: {}", io::Error::last_os_error());
        Ok(())
    }

    /// Waits for the server, which was told to end, and returns its cost.
    ///
    /// The time is the CPU time, because the rest of the elapsed time is that of clients.
    pub(super) fn finish(mut self, run: &Run) -> Result<Cost> {
        let child = self.child.take().context("the server is not running")?;
        let (status, cost) = measure::finish(child)?;
        ensure!(status.success(), "{}: {status}; {}", self.name, run.last_errors());
        Ok(Cost { time: cost.cpu, ..cost })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Errors are not shown, because the run has failed already.
        let _ = self.signal(self.abort);
        if let Some(child) = self.child.take() {
            let _ = measure::finish_within(END, child);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app_bench::allocator::Allocator;
    use crate::app_bench::run::Scale;

    fn with_run(test: impl FnOnce(&Run)) {
        let sh = xshell::Shell::new().unwrap();
        let directory = sh.create_temp_dir().unwrap();
        let [inputs, own] = ["inputs", "run"].map(|name| directory.path().join(name));
        test(&Run::new(own, inputs, Scale::Quick, &Allocator::SYSTEM).unwrap());
    }

    /// Starts a shell that is ready once it has made the file `ready`.
    fn start(run: &Run, script: &str) -> Result<Server> {
        let mut shell = run.command("/bin/sh")?;
        Server::start(run, shell.args(["-c", script]), libc::SIGUSR1, || {
            let mut ping = run.client("/usr/bin/test")?;
            ping.args(["-e", "ready"]);
            Ok(ping)
        })
    }

    const WAITS: &str = "trap 'touch aborted; exit' USR1; trap 'exit' TERM; touch ready
                         while :; do sleep 0.01; done";

    #[test]
    fn server_of_a_failed_run_is_aborted() {
        with_run(|run| {
            drop(start(run, WAITS).unwrap());
            assert!(run.directory.join("aborted").exists());
        });
    }

    #[test]
    fn server_that_ends_has_a_cost() {
        with_run(|run| {
            let server = start(run, WAITS).unwrap();
            server.signal(libc::SIGTERM).unwrap();
            let cost = server.finish(run).unwrap();
            assert_eq!(cost.time, cost.cpu);
            assert!(cost.peak_bytes > 0);
            assert!(!run.directory.join("aborted").exists());
        });
    }

    #[test]
    fn server_that_does_not_start_is_an_error() {
        with_run(|run| {
            let why = start(run, "echo no memory >&2; exit 3").err().unwrap().to_string();
            assert_eq!(why, "/bin/sh: exit status: 3; no memory");
        });
    }
}
