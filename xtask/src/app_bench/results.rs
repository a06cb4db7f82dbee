//! Comparison of result directories, file by file and byte by byte.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader};
use std::path::Path;

use anyhow::{Context as _, Result};

/// Describes the first difference between two directories; `None` if they are equal.
pub(super) fn difference(expected: &Path, found: &Path) -> Result<Option<String>> {
    for name in names(expected)?.union(&names(found)?) {
        let (before, after) = (expected.join(name), found.join(name));
        let name = Path::new(name).display();
        let difference = match (before.exists(), after.exists()) {
            (true, false) => Some(format!("{name} is missing")),
            (false, true) => Some(format!("{name} is not expected")),
            _ => first_other_byte(&before, &after)?
                .map(|at| format!("{name} differs from byte {at} on")),
        };
        if difference.is_some() {
            return Ok(difference);
        }
    }
    Ok(None)
}

fn names(directory: &Path) -> Result<BTreeSet<OsString>> {
    let entries = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    Ok(entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<_>>()?)
}

/// Returns the offset at which two files begin to differ.
///
/// Reads them in pieces, because this process must stay small: the kernel reports for each child at
/// least the peak memory that its parent had at the fork.
fn first_other_byte(one: &Path, other: &Path) -> Result<Option<u64>> {
    let open = |path: &Path| File::open(path).with_context(|| path.display().to_string());
    let (mut one, mut other) = (BufReader::new(open(one)?), BufReader::new(open(other)?));
    let mut at = 0;
    loop {
        let (left, right) = (one.fill_buf()?, other.fill_buf()?);
        let both = left.len().min(right.len());
        if both == 0 {
            return Ok((left.len() != right.len()).then_some(at));
        }
        if let Some(place) = (0..both).find(|&place| left[place] != right[place]) {
            return Ok(Some(at + place as u64));
        }
        one.consume(both);
        other.consume(both);
        at += both as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(expected: &[(&str, &[u8])], found: &[(&str, &[u8])]) -> Option<String> {
        let sh = xshell::Shell::new().unwrap();
        let directory = sh.create_temp_dir().unwrap();
        let write = |name: &str, files: &[(&str, &[u8])]| {
            let path = directory.path().join(name);
            fs::create_dir(&path).unwrap();
            for (name, text) in files {
                fs::write(path.join(name), text).unwrap();
            }
            path
        };
        difference(&write("expected", expected), &write("found", found)).unwrap()
    }

    #[test]
    fn equal_directories_have_no_difference() {
        let files: &[(&str, &[u8])] = &[("a", b"one"), ("b", b""), ("c", &[7; 50_000])];
        assert_eq!(compared(files, files), None);
        assert_eq!(compared(&[], &[]), None);
    }

    #[test]
    fn differences_are_found() {
        let describe = |expected, found| compared(expected, found).unwrap();
        assert_eq!(describe(&[("a", b"one")], &[]), "a is missing");
        assert_eq!(describe(&[], &[("a", b"one")]), "a is not expected");
        assert_eq!(describe(&[("a", b"one")], &[("a", b"ode")]), "a differs from byte 1 on");
        assert_eq!(describe(&[("a", b"one")], &[("a", b"ones")]), "a differs from byte 3 on");
        assert_eq!(describe(&[("a", b"one")], &[("a", b"")]), "a differs from byte 0 on");
        let (mut long, same) = (vec![7; 50_000], ("a", &b"same"[..]));
        long[40_000] = 8;
        assert_eq!(
            describe(&[same, ("b", &[7; 50_000])], &[same, ("b", &long)]),
            "b differs from byte 40000 on"
        );
    }

    #[test]
    fn missing_directory_is_an_error() {
        assert!(difference(Path::new("/nowhere"), Path::new("/nowhere")).is_err());
    }
}
