//! Where the segment is: a name, a process that uses it, or the only segment there is.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
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
    /// The file that was opened or found last. Errors do not change it.
    identity: Option<Identity>,
    /// Whether the caller has that file open.
    is_open: bool,
    replacements: u64,
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
        match pid_of(target) {
            Some(pid) => of_process(pid),
            None => Ok(Source::named(find::path_of(Path::new(target)))),
        }
    }

    fn named(path: PathBuf) -> Source {
        let name = text::of_path(&path);
        Source { name, path, pid: None, identity: None, is_open: false, replacements: 0 }
    }

    /// Opens the segment that is there now.
    ///
    /// # Errors
    ///
    /// That of `open`, which gets the path and returns the identity of the file that it has opened.
    pub fn open<T>(&mut self, open: impl FnOnce(&Path) -> Result<(T, Identity)>) -> Result<T> {
        self.is_open = false;
        let (opened, now) = open(&self.path)?;
        let is_other = self.identity.is_some_and(|last| last != now);
        // Another file may have got the number meanwhile.
        if let Some(pid) = self.pid.filter(|_| is_other) {
            bail!(closed(pid));
        }
        self.replacements += u64::from(is_other);
        self.identity = Some(now);
        self.is_open = true;
        Ok(opened)
    }

    /// Opens the segment if the caller has not the one that is there now, or if [it is lost].
    ///
    /// Returns `None` if the segment is the one that was opened last.
    ///
    /// # Errors
    ///
    /// The reason for which there is no segment now.
    ///
    /// [it is lost]: thiscpu::SegmentView::is_lost
    pub fn renew<T>(
        &mut self,
        is_lost: bool,
        open: impl FnOnce(&Path) -> Result<(T, Identity)>,
    ) -> Result<Option<T>, String> {
        let is_first = self.identity.is_none();
        match if is_first { Change::Replaced } else { self.change() } {
            // Somebody may copy another segment into this file.
            Change::Same if is_lost => match self.open(open) {
                Ok(new) => Ok(Some(new)),
                Err(_) => Err(SHORTENED.to_owned()),
            },
            Change::Same if self.is_open => Ok(None),
            Change::Gone(why) => Err(why),
            Change::Same | Change::Replaced => {
                self.open(open).map(Some).map_err(|error| format!("{error:#}"))
            }
        }
    }

    /// Opens the file again at the next look, because the caller has closed it.
    pub fn close(&mut self) {
        self.is_open = false;
    }

    /// Returns how often another file than the one before was opened.
    pub fn replacements(&self) -> u64 {
        self.replacements
    }

    /// Looks whether the file is still the one that was opened last.
    fn change(&mut self) -> Change {
        let now = find::identity(&self.path);
        match (&now, self.pid) {
            (Ok(now), _) if Some(*now) == self.identity => Change::Same,
            (_, Some(pid)) => self.change_of_process(pid, now.err()),
            (Ok(_), None) => Change::Replaced,
            (Err(error), None) if error.kind() == ErrorKind::NotFound => {
                Change::Gone(REMOVED.to_owned())
            }
            (Err(error), None) => Change::Gone(unreadable(error)),
        }
    }

    /// Looks for another way to the file of a process.
    ///
    /// Its descriptor is closed or not readable.
    fn change_of_process(&mut self, pid: u32, error: Option<io::Error>) -> Change {
        let found = find::in_process(pid).unwrap_or_default();
        let is_it = |path: &Path| find::identity(path).is_ok_and(|it| Some(it) == self.identity);
        if let Some(same) = found.into_iter().find(|it| is_it(&it.path)) {
            self.path = same.path;
            return Change::Same;
        }
        let has_ended = !Path::new(&format!("/proc/{pid}")).exists();
        Change::Gone(match error {
            Some(error) if error.kind() != ErrorKind::NotFound => unreadable(&error),
            _ if has_ended => format!("process {pid} has ended; give the ID of one that runs"),
            _ => closed(pid),
        })
    }
}

/// The reason for which the opened file cannot be read.
pub const SHORTENED: &str = "the segment's file was shortened; remove it, and restart its service";

const REMOVED: &str = "the segment was removed; restart its service";

fn closed(pid: u32) -> String {
    format!("process {pid} has closed the segment; give the ID of a process that uses it")
}

fn unreadable(error: &io::Error) -> String {
    format!("the segment cannot be looked at: {error}; run as a user who may read it")
}

/// Returns the process ID that a user gives. A sign makes it a name.
fn pid_of(target: &OsStr) -> Option<u32> {
    let text = target.to_str().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    text.parse().ok()
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
        Some(path) => Ok(Source::named(path)),
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
    // A descriptor's number may become another file's, so the first look wants this one.
    let identity = pid.and_then(|_| find::identity(&first.path).ok());
    Ok(Source { name: first.name, pid, identity, ..Source::named(first.path) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;
    use std::fs::{self, File};
    use std::os::fd::{AsRawFd as _, OwnedFd};
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
        assert_eq!(source.change(), Change::Gone(REMOVED.to_owned()));
        source.open(find::open).unwrap_err();
        assert_eq!(source.replacements(), 1);
    }

    #[test]
    fn file_is_opened_again_after_an_error_and_is_no_replacement() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = directory.path().join("shop");
        drop(Segment::create(&path).unwrap());
        let unnamed = Segment::anonymous().unwrap();
        let fd = unnamed.as_fd().unwrap().as_raw_fd();
        let id = std::process::id();
        let of_process = Source {
            path: PathBuf::from(format!("/proc/{id}/fd/{fd}")),
            pid: Some(id),
            ..Source::named(path.clone())
        };
        for mut source in [Source::named(path.clone()), of_process] {
            source.renew(false, |_| Err::<((), _), _>(anyhow!("transient"))).unwrap_err();
            assert!(source.renew(false, find::open).unwrap().is_some());
            assert!(source.renew(false, find::open).unwrap().is_none());
            source.close();
            source.renew(false, |_| Err::<((), _), _>(anyhow!("transient"))).unwrap_err();
            assert!(source.renew(false, find::open).unwrap().is_some());
            assert_eq!(source.replacements(), 0);
        }
    }

    #[test]
    fn process_has_closed_the_segment_only_if_no_way_leads_to_it() {
        let id = std::process::id();
        let unnamed = Segment::anonymous().unwrap();
        let number = |fd: &OwnedFd| PathBuf::from(format!("/proc/{id}/fd/{}", fd.as_raw_fd()));
        let own = unnamed.as_fd().unwrap().try_clone_to_owned().unwrap();
        let named = Source::named(number(&own));
        let mut source = Source { pid: Some(id), ..named };
        source.open(find::open).unwrap();
        // Its number is another file's, but the process has a second descriptor.
        let other = File::open("/dev/null").unwrap();
        source.path = PathBuf::from(format!("/proc/{id}/fd/{}", other.as_raw_fd()));
        assert_eq!(source.change(), Change::Same);
        assert_eq!(find::identity(&source.path).ok(), source.identity);
        drop((own, unnamed));
        source.path = PathBuf::from(format!("/proc/{id}/fd/{}", other.as_raw_fd()));
        assert_eq!(source.change(), Change::Gone(closed(id)));
        let why = source.renew(false, find::open).unwrap_err();
        assert!(why.contains("; give the ID of "), "{why}");
    }

    #[test]
    fn only_digits_are_a_process_id() {
        assert_eq!(pid_of(OsStr::new("7")), Some(7));
        for name in ["+7", "-7", "7a", "", " 7"] {
            assert_eq!(pid_of(OsStr::new(name)), None, "{name}");
        }
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
