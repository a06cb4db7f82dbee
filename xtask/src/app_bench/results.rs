//! Comparison of result directories, file by file and byte by byte.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

/// The number of lines that are shown of a difference.
const SHOWN: usize = 3;

/// Describes the first difference between two directories; `None` if they are equal.
///
/// Another process compares them, because this one must stay small: the kernel reports for each
/// child at least the peak memory that its parent had at the fork.
pub(super) fn difference(expected: &Path, found: &Path) -> Result<Option<String>> {
    let mut diff = Command::new("diff");
    diff.arg("--recursive").args([expected, found]).stdout(Stdio::piped());
    let mut child = diff.spawn().context("cannot run diff")?;
    let output = child.stdout.take().context("diff has no pipe")?;
    let lines: Vec<_> =
        BufReader::new(output).split(b'\n').take(SHOWN).collect::<Result<_, _>>()?;
    let status = child.wait()?;
    ensure!(status.success() || !lines.is_empty(), "diff: {status}");
    let text = String::from_utf8_lossy(&lines.join(&b'\n')).into_owned();
    Ok((!lines.is_empty()).then_some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Files<'a> = &'a [(&'a str, &'a [u8])];

    fn compared(expected: Files<'_>, found: Files<'_>) -> Option<String> {
        let sh = xshell::Shell::new().unwrap();
        let directory = sh.create_temp_dir().unwrap();
        let write = |name: &str, files: Files<'_>| {
            let path = sh.create_dir(directory.path().join(name)).unwrap();
            files.iter().for_each(|(name, text)| sh.write_file(path.join(name), text).unwrap());
            path
        };
        difference(&write("expected", expected), &write("found", found)).unwrap()
    }

    #[test]
    fn equal_directories_have_no_difference() {
        let files: Files<'_> = &[("a", b"one"), ("b", b""), ("c", &[7; 50_000])];
        assert_eq!(compared(files, files), None);
        assert_eq!(compared(&[], &[]), None);
    }

    #[test]
    fn differences_are_found() {
        let (same, old, mut new) = (("a", &b"same"[..]), vec![0; 50_000], vec![0; 50_000]);
        new[40_000] = 8;
        let cases: [(Files<'_>, Files<'_>, &str); 6] = [
            (&[("a", b"one")], &[], "expected: a"),
            (&[], &[("a", b"one")], "found: a"),
            (&[("a", b"one")], &[("a", b"ode")], "found/a\n1c1\n< one"),
            (&[("a", b"one")], &[("a", b"ones")], "found/a\n1c1\n< one"),
            (&[("a", b"one")], &[("a", b"")], "found/a\n1d0\n< one"),
            (&[same, ("b", &old)], &[same, ("b", &new)], "found/b differ"),
        ];
        for (expected, found, end) in cases {
            let difference = compared(expected, found).unwrap();
            assert!(difference.ends_with(end), "{difference}");
        }
    }

    #[test]
    fn missing_directory_is_an_error() {
        assert!(difference(Path::new("/nowhere"), Path::new("/nowhere")).is_err());
    }
}
