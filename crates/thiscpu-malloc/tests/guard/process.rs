//! A test: code to be run in a child process, and its expected end and output.

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
    /// The signal that must end the child, or 0 if it must succeed.
    pub(crate) signal: i32,
    /// Patterns that lines of standard error match, in this order.
    ///
    /// `..` stands for anything within a line. A pattern that starts with `!` must not match at
    /// all.
    pub(crate) stderr: &'static [&'static str],
}

/// Lists tests: `NAME: SIGNAL, CHILD => [PATTERNS]`, as the fields of [`Test`].
macro_rules! tests {
    ($($name:ident: $signal:expr, $child:expr => [$($pattern:literal),* $(,)?];)*) => {
        &[$(Test {
            name: stringify!($name),
            child: $child,
            signal: $signal,
            stderr: &[$($pattern),*],
        }),*]
    };
}
pub(crate) use tests;

/// Returns the name of the test that this process is a child of, if it is one.
pub(crate) fn requested() -> Option<String> {
    env::var(TEST).ok()
}

/// Returns the path of the shared object with unwind tables, or of the one without.
pub(crate) fn object(has_tables: bool) -> String {
    env::var(OBJECTS[usize::from(!has_tables)]).unwrap()
}

impl Test {
    /// Runs the child and checks how it ends and what it writes.
    ///
    /// # Panics
    ///
    /// If that differs from what the test expects.
    pub(crate) fn check(&self, objects: &[PathBuf]) {
        let mut child = Command::new(env::current_exe().unwrap());
        child.env(TEST, self.name).envs(OBJECTS.iter().zip(objects));
        let Output { status, stderr, .. } = child.output().unwrap();
        let text = String::from_utf8_lossy(&stderr);
        assert_eq!(
            status.signal().unwrap_or(0),
            self.signal,
            "{status}, with this output:\n{text}"
        );
        assert!(self.signal != 0 || status.success(), "{status}, with this output:\n{text}");
        let mut lines = text.lines();
        for &expected in self.stderr {
            match expected.strip_prefix('!') {
                Some(unexpected) => {
                    assert!(!text.contains(unexpected), "{unexpected:?} in:\n{text}");
                }
                None => assert!(
                    lines.any(|line| matches(line, expected)),
                    "{expected:?} is missing, or out of order, in:\n{text}"
                ),
            }
        }
    }
}

/// Returns whether a line contains the parts of a pattern, in this order.
fn matches(line: &str, pattern: &str) -> bool {
    let mut rest = Some(line);
    for part in pattern.split("..") {
        rest = rest.and_then(|rest| rest.split_once(part)).map(|(_, rest)| rest);
    }
    rest.is_some()
}
