//! A test: what a child process does, and what is to come of it.

use std::env;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Command, Output};

const TEST: &str = "GUARD_TEST";
const OBJECTS: [&str; 2] = ["GUARD_OBJECT", "GUARD_OBJECT_WITHOUT_TABLES"];

#[derive(Clone, Copy)]
pub(crate) struct Test {
    pub(crate) name: &'static str,
    pub(crate) child: fn(),
    /// The signal that ends the child, or 0 if it is to end well.
    pub(crate) signal: i32,
    /// What the child writes to standard error, in this order; `..` stands for anything within a line, and a `!` in front for what
    /// it does not write anywhere.
    pub(crate) says: &'static [&'static str],
}

/// The test that this process is the child of, if it is one.
pub(crate) fn asked() -> Option<String> {
    env::var(TEST).ok()
}

/// Where the shared object is: that with unwinding tables, or that without.
pub(crate) fn object(has_tables: bool) -> String {
    env::var(OBJECTS[usize::from(!has_tables)]).unwrap()
}

impl Test {
    /// Runs the child and looks at what has come of it.
    ///
    /// # Panics
    ///
    /// If that is not what it should be.
    pub(crate) fn check(&self, objects: &[PathBuf]) {
        let mut child = Command::new(env::current_exe().unwrap());
        child.env(TEST, self.name).envs(OBJECTS.iter().zip(objects));
        let Output { status, stderr, .. } = child.output().unwrap();
        let said = String::from_utf8_lossy(&stderr);
        assert_eq!(status.signal().unwrap_or(0), self.signal, "{status}, and it said:\n{said}");
        assert!(self.signal != 0 || status.success(), "{status}, and it said:\n{said}");
        let mut lines = said.lines();
        for &expected in self.says {
            match expected.strip_prefix('!') {
                Some(unexpected) => {
                    assert!(!said.contains(unexpected), "{unexpected:?} in:\n{said}");
                }
                None => assert!(
                    lines.any(|line| matches(line, expected)),
                    "{expected:?} is not in its place in:\n{said}"
                ),
            }
        }
    }
}

/// Whether a line has the parts of a pattern in it, in this order.
fn matches(line: &str, pattern: &str) -> bool {
    let mut rest = Some(line);
    for part in pattern.split("..") {
        rest = rest.and_then(|rest| rest.split_once(part)).map(|(_, rest)| rest);
    }
    rest.is_some()
}
