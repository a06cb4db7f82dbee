//! Where the segment is: a name, a process that uses it, or the only segment there is.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::find::{self, Identity};
use crate::text;

/// An error of the request, not of the segment: several segments fit it.
#[derive(Debug)]
pub struct Ambiguous(String);

impl std::fmt::Display for Ambiguous {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Ambiguous {}

/// The place of a segment, and the file that was there last.
#[derive(Debug)]
pub struct Source {
    /// The path by which it is opened.
    pub path: PathBuf,
    /// Its name for people.
    pub name: String,
    /// The process by which it was found, if it has no name of its own.
    pid: Option<u32>,
    identity: Option<Identity>,
}

/// An event of a segment's file.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    /// Nothing.
    Same,
    /// The file is gone, for this reason.
    Gone(String),
    /// Another file has its name.
    Replaced,
}

impl Source {
    /// Finds what a user asks for: a segment's name or path, a process ID, or nothing.
    ///
    /// # Errors
    ///
    /// If a process has no segment, or if there is no process. [`Ambiguous`], if there are several
    /// segments. A name or a path need not have a file yet.
    pub fn find(target: Option<&OsStr>) -> Result<Source> {
        let Some(target) = target else { return only_segment(Path::new(find::DIRECTORY)) };
        match target.to_str().and_then(|text| text.parse().ok()) {
            Some(pid) => of_process(pid),
            None => {
                let path = find::path_of(Path::new(target));
                Ok(Source { name: text::of_path(&path), path, pid: None, identity: None })
            }
        }
    }

    /// Opens the segment that is there now.
    ///
    /// # Errors
    ///
    /// That of `open`, which gets the path.
    pub fn open<T>(&mut self, open: impl FnOnce(&Path) -> Result<T>) -> Result<T> {
        // Before: if another file takes the name meanwhile, the next look will find it.
        self.identity = find::identity(&self.path).ok();
        let opened = open(&self.path);
        if opened.is_err() {
            // It may be half copied.
            self.forget();
        }
        opened
    }

    /// Opens the segment if another file is there now, or if the opened one [is lost].
    ///
    /// Returns `None` if the segment is the one that was opened last.
    ///
    /// # Errors
    ///
    /// The reason for which there is no segment now.
    ///
    /// [is lost]: thiscpu::SegmentView::is_lost
    pub fn renew<T>(
        &mut self,
        is_lost: bool,
        open: impl FnOnce(&Path) -> Result<T>,
    ) -> Result<Option<T>, String> {
        match self.change() {
            // Somebody may copy another segment into this file.
            Change::Same if is_lost => match open(&self.path) {
                Ok(new) => Ok(Some(new)),
                Err(_) => Err("the segment's file was shortened".to_owned()),
            },
            Change::Same => Ok(None),
            Change::Gone(why) => Err(why),
            Change::Replaced => self.open(open).map(Some).map_err(|error| format!("{error:#}")),
        }
    }

    /// Takes the file for another one at the next look.
    pub fn forget(&mut self) {
        self.identity = None;
    }

    /// Looks whether the file is still the one that was opened last.
    fn change(&self) -> Change {
        match find::identity(&self.path) {
            Ok(now) if Some(now) == self.identity => Change::Same,
            Ok(_) => match self.pid {
                // The process has closed its descriptor, and the number is another file's.
                Some(pid) => Change::Gone(format!("process {pid} has closed the segment")),
                None => Change::Replaced,
            },
            Err(error) => Change::Gone(match (error.kind(), self.pid) {
                (ErrorKind::NotFound, None) => "the segment was removed".to_owned(),
                (ErrorKind::NotFound, Some(pid)) if Path::new(&format!("/proc/{pid}")).exists() => {
                    format!("process {pid} has closed the segment")
                }
                (ErrorKind::NotFound, Some(pid)) => format!("process {pid} has ended"),
                _ => format!("the segment cannot be looked at: {error}"),
            }),
        }
    }
}

fn only_segment(directory: &Path) -> Result<Source> {
    let mut paths = find::in_directory(directory)?;
    let names: Vec<_> = paths.iter().map(|path| text::of_path(path)).collect();
    let directory = text::of_path(directory);
    match paths.pop() {
        None => bail!("{directory} has no segment that this user may read; give a path or a PID"),
        Some(_) if !paths.is_empty() => bail!(Ambiguous(format!(
            "{directory} has {} segments; give one of them:\n  {}",
            names.len(),
            names.join("\n  ")
        ))),
        Some(path) => Ok(Source { name: text::of_path(&path), path, pid: None, identity: None }),
    }
}

fn of_process(pid: u32) -> Result<Source> {
    let mut found = find::in_process(pid)?;
    let paths: Vec<_> = found.iter().map(|it| text::of_path(&it.path)).collect();
    let first = found.pop().with_context(|| {
        format!("process {pid} has no segment mapped; give the ID of a process that uses one")
    })?;
    if !found.is_empty() {
        bail!(Ambiguous(format!(
            "process {pid} uses {} segments; give one of them:\n  {}",
            paths.len(),
            paths.join("\n  ")
        )));
    }
    let pid = first.path.starts_with("/proc").then_some(pid);
    Ok(Source { path: first.path, name: first.name, pid, identity: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use thiscpu::Segment;

    #[test]
    fn replaced_and_removed_segments_are_noticed() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = directory.path().join("shop");
        drop(Segment::create(&path).unwrap());
        let mut source = Source::find(Some(path.as_os_str())).unwrap();
        assert_eq!(source.change(), Change::Replaced);
        source.open(find::open).unwrap();
        assert_eq!(source.change(), Change::Same);
        // A new file, before the old one is gone: its number is another.
        let new = directory.path().join("new");
        drop(Segment::create(&new).unwrap());
        fs::rename(&new, &path).unwrap();
        assert_eq!(source.change(), Change::Replaced);
        source.open(find::open).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(source.change(), Change::Gone("the segment was removed".to_owned()));
        source.open(find::open).unwrap_err();
    }

    #[test]
    fn only_segment_is_taken_and_several_are_listed() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let error = only_segment(directory.path()).unwrap_err();
        assert!(!error.is::<Ambiguous>() && error.to_string().contains("has no segment"));
        let path = directory.path().join("a");
        drop(Segment::create(&path).unwrap());
        fs::write(directory.path().join("text"), "no segment").unwrap();
        assert_eq!(only_segment(directory.path()).unwrap().path, path);
        drop(Segment::create(directory.path().join("b")).unwrap());
        let error = only_segment(directory.path()).unwrap_err();
        assert!(error.is::<Ambiguous>(), "{error}");
        assert!(
            error.to_string().ends_with(&format!("/a\n  {}/b", text::of_path(directory.path())))
        );
    }

    #[test]
    fn process_without_segment_is_told_apart_from_no_process() {
        let error = of_process(1 << 30).unwrap_err().to_string();
        assert!(error.starts_with("there is no process"), "{error}");
        let mut sleeper = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let found = of_process(sleeper.id());
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        let error = found.unwrap_err().to_string();
        assert!(error.contains("has no segment mapped; "), "{error}");
    }
}
