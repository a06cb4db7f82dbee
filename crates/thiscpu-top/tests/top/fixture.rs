//! Segments, and processes that use them.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{self, Command, Output, Stdio};
use std::time::Duration;
use std::{env, thread};

use tempfile::TempDir;
use thiscpu::Segment;
use thiscpu_test_support::{child, program, text};

/// The program under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_thiscpu-top");

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

    /// Creates a small segment.
    pub(crate) fn create(&self, name: &str) -> Segment {
        Segment::options().max_bytes(1 << 20).lanes(2).create(self.path(name)).unwrap()
    }
}

/// Returns the exit status, standard output and standard error of the program.
pub(crate) fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = program::output(command).unwrap();
    (status.code(), text(&stdout), text(&stderr))
}

/// Returns a command that prints one look at once.
pub(crate) fn once(target: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(["--once", "--interval", "0"]).args(options).arg(target);
    command
}

/// Says to [`child`] what it is to do.
const WORK: &str = "THISCPU_TOP_TEST_CHILD";

/// A process of its own that uses segments, and is killed when this is dropped.
///
/// A forked child would have the segments of all tests that run at once.
pub(crate) struct Child(process::Child);

impl Child {
    /// Starts a process that does some work, and waits until it is ready.
    pub(crate) fn start(work: &str) -> Child {
        let mut child = Command::new(env::current_exe().unwrap());
        child.args(["--exact", "fixture::child", "--ignored", "--nocapture"]).env(WORK, work);
        let mut child = Child(child.stdout(Stdio::piped()).spawn().unwrap());
        let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().ends_with("ready")), "{work}");
        child
    }

    pub(crate) fn id(&self) -> String {
        self.0.id().to_string()
    }

    /// Kills the process, and waits until it is gone.
    pub(crate) fn kill(self) {}
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Works as a process that a test has started.
#[test]
#[ignore = "no test: a part of others"]
fn child() {
    let work = env::var(WORK).unwrap();
    let words: Vec<_> = work.splitn(3, ' ').collect();
    // SAFETY: `alarm` has no preconditions. The process ends also if its parent was killed.
    unsafe { libc::alarm(child::alarm_s()) };
    let ready = || io::stdout().write_all(b"ready\n").unwrap();
    match words[..] {
        ["count", number] => {
            let segments: Vec<_> = (0..number.parse().unwrap())
                .map(|value| {
                    let segment = Segment::anonymous().unwrap();
                    segment.counter("in the child").unwrap().add(value + 42);
                    segment
                })
                .collect();
            ready();
            sleep(segments)
        }
        ["add", number, path] => {
            let counter = Segment::open(path).unwrap().counter("busy").unwrap();
            ready();
            loop {
                counter.add(number.parse().unwrap());
                thread::sleep(Duration::from_millis(1));
            }
        }
        ["hold", number, path] => {
            let budget = Segment::open(path).unwrap().budget("connections", 100).unwrap();
            let lease = budget.try_acquire(number.parse().unwrap());
            ready();
            sleep(lease)
        }
        _ => panic!("{work}"),
    }
}

fn sleep<T>(_keep: T) -> ! {
    loop {
        thread::park();
    }
}
