//! Segments, workers that use them, and a program that exports them.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{self, ChildStderr, Command, ExitStatus, Output, Stdio};
use std::time::Duration;
use std::{env, thread};

use tempfile::TempDir;
use thiscpu::{Segment, SharedSeries};
use thiscpu_test_support::{child, program, slowdown, text};

/// The program under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_thiscpu-export");

/// How long anything may take that is bound to happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A directory of shared memory, and the path of a segment there.
pub(crate) struct Place {
    directory: TempDir,
}

impl Place {
    pub(crate) fn new() -> Place {
        let shared = Path::new("/dev/shm");
        let directory = if shared.is_dir() { TempDir::new_in(shared) } else { TempDir::new() };
        Place { directory: directory.unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns the value of the label `segment` of a segment.
    pub(crate) fn label(&self, name: &str) -> String {
        let path = self.path(name);
        path.strip_prefix("/dev/shm").unwrap_or(&path).to_str().unwrap().to_owned()
    }

    /// Creates a small segment with a registry.
    pub(crate) fn create(&self, name: &str) -> Segment {
        let mut options = Segment::options();
        options.max_bytes(4 << 20).lanes(2).series(100).create(self.path(name)).unwrap()
    }
}

/// Returns the series of a family `requests` with a label `path`.
pub(crate) fn requests(segment: &Segment, path: &str) -> SharedSeries {
    let registry = segment.registry().unwrap();
    let family = registry.counter_family("requests", "Requests served.", &["path"]).unwrap();
    family.series(&[path]).unwrap()
}

/// Returns the exit status, standard output and standard error of the program.
pub(crate) fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = program::output(command).unwrap();
    (status.code(), text(&stdout), text(&stderr))
}

/// Returns a command that prints one answer.
pub(crate) fn once(target: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg("--once").args(options).arg(target);
    command
}

/// Returns what the program prints once, which must succeed.
#[track_caller]
pub(crate) fn printed(target: &Path, options: &[&str]) -> String {
    let (status, stdout, stderr) = run(&mut once(target, options));
    assert_eq!((status, &*stderr), (Some(0), ""), "{stdout}");
    stdout
}

/// Returns the value of a series in a text; `None` if the text does not have it.
pub(crate) fn value(text: &str, series: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.map(|value| value.parse().unwrap())
}

/// A child that is killed when this is dropped.
struct Process(process::Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program that listens.
pub(crate) struct Exporter {
    process: Process,
    pub(crate) address: SocketAddr,
    /// Kept open, so that the program can write there.
    stderr: BufReader<ChildStderr>,
}

impl Exporter {
    /// Starts the program, and waits until it listens.
    pub(crate) fn start(targets: &[&Path], options: &[&str]) -> Exporter {
        let mut command = Command::new(PROGRAM);
        command.args(["--listen", "127.0.0.1:0"]).args(options).args(targets);
        let mut process = Process(command.stderr(Stdio::piped()).spawn().unwrap());
        let mut stderr = BufReader::new(process.0.stderr.take().unwrap());
        let mut lines = String::new();
        let address = loop {
            let begin = lines.len();
            assert!(stderr.read_line(&mut lines).unwrap() > 0, "{lines}");
            let address = lines[begin..].strip_prefix("thiscpu-export: listening on http://");
            if let Some(address) = address.and_then(|it| it.strip_suffix("/metrics\n")) {
                break address.parse().unwrap();
            }
        };
        Exporter { process, address, stderr }
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.0.id()
    }

    /// Scrapes, with more lines of the request's head, and returns the head and the text.
    pub(crate) fn ask(&self, headers: &str) -> (String, String) {
        let mut client = TcpStream::connect(self.address).unwrap();
        client.set_read_timeout(Some(PATIENCE * slowdown())).unwrap();
        write!(client, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n").unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_ascii_lowercase(), body.to_owned())
    }

    /// Scrapes, and returns the text.
    #[track_caller]
    pub(crate) fn scrape(&self) -> String {
        let (head, body) = self.ask("");
        assert!(head.starts_with("http/1.1 200 ok"), "{head}");
        body
    }

    /// Sends a signal, and returns the exit status and what else is on standard error.
    pub(crate) fn end(mut self, signal: i32) -> (ExitStatus, String) {
        send(&self.process.0, signal);
        // It hangs up when the program ends.
        let fd = self.stderr.get_ref().as_raw_fd();
        let mut pipe = libc::pollfd { fd, events: 0, revents: 0 };
        let timeout = (PATIENCE * slowdown()).as_millis() as i32;
        // SAFETY: there is one entry, which lives during the call.
        assert_eq!(unsafe { libc::poll(&mut pipe, 1, timeout) }, 1, "the program goes on");
        let status = self.process.0.wait().unwrap();
        let mut rest = String::new();
        self.stderr.read_to_string(&mut rest).unwrap();
        (status, rest)
    }
}

/// Sends a signal to a child that nobody has waited for.
fn send(child: &process::Child, signal: i32) {
    // SAFETY: `kill` has no preconditions. Nobody has waited for the child, so no other process
    // has its ID.
    assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
}

/// Says to [`child`] what it is to do.
const WORK: &str = "THISCPU_EXPORT_TEST_CHILD";

/// A worker: a process of its own that uses a segment, and is killed when this is dropped.
pub(crate) struct Worker(Process);

impl Worker {
    /// Starts a process that does some work on a segment, and waits until it has begun.
    pub(crate) fn start(work: &str, segment: &Path) -> Worker {
        let mut child = Command::new(env::current_exe().unwrap());
        child.args(["--exact", "fixture::child", "--ignored", "--nocapture"]);
        child.env(WORK, format!("{work} {}", segment.display()));
        let mut worker = Process(child.stdout(Stdio::piped()).spawn().unwrap());
        let mut lines = BufReader::new(worker.0.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().ends_with("ready")), "{work}");
        Worker(worker)
    }

    pub(crate) fn id(&self) -> String {
        self.0.0.id().to_string()
    }

    /// Stops the process, and waits until it is stopped.
    pub(crate) fn stop(&self) {
        let (child, mut status) = (&self.0.0, 0);
        send(child, libc::SIGSTOP);
        // SAFETY: the status is an integer, and the child is this process's own.
        let stopped = unsafe { libc::waitpid(child.id() as i32, &mut status, libc::WUNTRACED) };
        assert!(stopped == child.id() as i32 && libc::WIFSTOPPED(status));
    }

    /// Kills the process by SIGKILL, and waits until it is gone.
    pub(crate) fn kill(self) {}
}

/// Works as a process that a test has started.
#[test]
#[ignore = "no test: a part of others"]
fn child() {
    let work = env::var(WORK).unwrap();
    let (work, path) = work.split_once(' ').unwrap();
    // SAFETY: `alarm` has no preconditions. The process ends also if its parent was killed.
    unsafe { libc::alarm(child::alarm_s()) };
    let ready = || io::stdout().write_all(b"ready\n").unwrap();
    let segment = Segment::open(path).unwrap();
    match work {
        // One after the other, so that both are equal, or the first is one more.
        "add" => {
            let [first, second] = ["/first", "/second"].map(|path| requests(&segment, path));
            let mut rounds = 0_u64;
            loop {
                first.inc();
                second.inc();
                rounds += 1;
                if rounds == 1000 {
                    ready();
                }
            }
        }
        "hold" => {
            let budget = segment.budget("connections", 100).unwrap();
            budget.try_acquire(30).unwrap();
            ready();
            loop {
                thread::park();
            }
        }
        _ => panic!("{work}"),
    }
}
