//! Segments by name, by process and by directory.

use std::collections::BTreeSet;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use thiscpu::{Segment, SegmentError, SegmentErrorKind, SegmentView};

use crate::text;

/// The directory of segments whose name has no slash.
pub const DIRECTORY: &str = "/dev/shm";

/// The most entries of a directory among which a file is looked for.
const ENTRIES_MAX: usize = 10_000;

/// A file's device and inode, which no other file has while it exists.
pub type Identity = (u64, u64);

/// Returns the path of a segment that a user names: in [`DIRECTORY`], unless it has a slash.
pub fn path_of(name: &Path) -> PathBuf {
    match name.components().count() == 1 && !name.to_string_lossy().contains('/') {
        true => Path::new(DIRECTORY).join(name),
        false => name.to_owned(),
    }
}

/// Returns the identity of the file at a path.
///
/// # Errors
///
/// If there is no such file.
pub fn identity(path: &Path) -> io::Result<Identity> {
    fs::metadata(path).map(|file| identity_of(&file))
}

fn identity_of(file: &Metadata) -> Identity {
    (file.dev(), file.ino())
}

/// Opens a segment to read it, and returns the identity of its file too.
///
/// A path below `/proc` may lead to a file without a name.
///
/// # Errors
///
/// If there is none, if it is damaged or of another version, or if the process may not read it.
pub fn open(path: &Path) -> Result<(SegmentView, Identity)> {
    let opened = open_kind(path, false).and_then(|file| {
        // Of the descriptor: another file may take the name at any time.
        let identity = identity_of(&file.metadata().map_err(|error| system(&error))?);
        let view = SegmentView::from_fd(file.into()).map_err(|error| error.kind().clone())?;
        Ok((view, identity))
    });
    opened.map_err(|kind| anyhow!("cannot open {}: {}", text::of_path(path), reason_of(&kind)))
}

/// Attaches to a segment, to read exact values of it; returns the identity of its file too.
///
/// The segment's owner must be this process's user or root, and no others may write to it. A path
/// below `/proc` may lead to a file without a name, whose owner is not checked.
///
/// # Errors
///
/// Those of [`open`], and if the process may not write to the segment.
pub fn attach(path: &Path) -> Result<(Segment, Identity)> {
    let kind_of = |error: SegmentError| error.kind().clone();
    let segment = match path.starts_with("/proc") {
        false => Segment::open(path).map_err(kind_of),
        true => {
            open_kind(path, true).and_then(|file| Segment::from_fd(file.into()).map_err(kind_of))
        }
    };
    let identified = segment.and_then(|segment| {
        let fd = segment.as_fd().map_err(kind_of)?.try_clone_to_owned();
        let file = fd.and_then(|fd| File::from(fd).metadata());
        Ok((segment, identity_of(&file.map_err(|error| system(&error))?)))
    });
    identified.map_err(|kind| {
        let reason = match kind {
            SegmentErrorKind::ForeignOwner { owner } => format!(
                "user {owner} owns it, and could change what it says; run as that user, or only \
                 read it"
            ),
            SegmentErrorKind::WritableByOthers { mode } => format!(
                "its mode {mode:o} lets other users change what it says; change the mode with \
                 chmod, or only read it"
            ),
            kind => reason_of(&kind),
        };
        anyhow!("cannot attach {}: {reason}", text::of_path(path))
    })
}

/// Returns why a segment cannot be read, and what its reader can do.
pub fn reason(error: &SegmentError) -> String {
    reason_of(error.kind())
}

fn reason_of(kind: &SegmentErrorKind) -> String {
    match kind {
        SegmentErrorKind::System { errno: libc::ENOENT, .. } => {
            "there is no such file; check the path, or list segments with `thiscpu segment ls`"
                .to_owned()
        }
        SegmentErrorKind::System { errno: libc::EISDIR, .. } => {
            "it is a directory; give the path of a file, or list its segments with `thiscpu \
             segment ls`"
                .to_owned()
        }
        kind => kind.to_string(),
    }
}

/// Opens a regular file, or returns why it cannot be a segment.
fn open_kind(path: &Path, is_written: bool) -> Result<File, SegmentErrorKind> {
    match open_regular(path, is_written) {
        Ok(file) => Ok(file),
        Err(error) if error.raw_os_error().is_some() => Err(system(&error)),
        Err(_) if path.is_dir() => Err(system(&io::Error::from_raw_os_error(libc::EISDIR))),
        Err(_) => Err(SegmentErrorKind::NotASegment),
    }
}

/// Returns why a file could not be opened.
fn system(error: &io::Error) -> SegmentErrorKind {
    SegmentErrorKind::System { action: "open", errno: error.raw_os_error().unwrap_or(libc::EIO) }
}

/// Opens a regular file, and never waits for the writer of a pipe.
fn open_regular(path: &Path, is_written: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(is_written).custom_flags(libc::O_NONBLOCK);
    let file = options.open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is not a regular file")),
    }
}

/// Returns whether a file is a segment, or was one before it was damaged.
fn is_segment(path: &Path) -> bool {
    let Ok(file) = open_regular(path, false) else { return false };
    match SegmentView::from_fd(file.into()) {
        Ok(_) => true,
        Err(error) => {
            let kind = error.kind();
            !matches!(kind, SegmentErrorKind::NotASegment | SegmentErrorKind::System { .. })
        }
    }
}

/// Returns the paths of the segments in a directory, in order; links are not followed.
///
/// # Errors
///
/// If the directory cannot be read.
pub fn in_directory(directory: &Path) -> Result<Vec<PathBuf>> {
    let name = text::of_path(directory);
    let entries = fs::read_dir(directory).with_context(|| format!("cannot list {name}"))?;
    let files = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|it| it.is_file()));
    let mut paths: Vec<_> = files.map(|file| file.path()).filter(|path| is_segment(path)).collect();
    paths.sort();
    Ok(paths)
}

/// A file that a process has mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedFile {
    /// The first and the last address, as the names of `/proc/PID/map_files` have them.
    pub range: String,
    /// Whether writes are shared with other processes.
    pub is_shared: bool,
    /// The numbers of its device in hexadecimal, such as `00:1a`.
    pub device: String,
    /// Its inode.
    pub inode: u64,
    /// Its path, or a description.
    pub path: String,
}

/// Returns the files that a process has mapped, by the text of its `/proc/PID/maps`.
pub fn mapped_files(maps: &str) -> impl Iterator<Item = MappedFile> {
    maps.lines().filter_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let mut fields = rest.splitn(4, ' ');
        let (modes, _offset, device) = (fields.next()?, fields.next()?, fields.next()?);
        let last = fields.next()?;
        let (inode, path) = last.split_once(' ').unwrap_or((last, ""));
        let inode = inode.parse().ok().filter(|&inode| inode != 0)?;
        let path = path.trim_start().to_owned();
        let (range, device) = (range.to_owned(), device.to_owned());
        Some(MappedFile { range, is_shared: modes.ends_with('s'), device, inode, path })
    })
}

/// Returns the numbers of a file's device as `/proc/PID/maps` shows them.
pub fn device_of(file: &Metadata) -> String {
    format!("{:02x}:{:02x}", libc::major(file.dev()), libc::minor(file.dev()))
}

/// A segment that a process uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InProcess {
    /// A path by which this process can open it.
    pub path: PathBuf,
    /// Its name for people.
    pub name: String,
}

/// Returns the segments that a process has mapped.
///
/// # Errors
///
/// If there is no such process, or this one may not look into it.
pub fn in_process(pid: u32) -> Result<Vec<InProcess>> {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let maps = match fs::read(process.join("maps")) {
        Ok(maps) => String::from_utf8_lossy(&maps).into_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            bail!("there is no process {pid}; give the ID of one that runs, or a segment's path")
        }
        Err(error) => bail!("cannot look into process {pid}: {error}; run as its user"),
    };
    let mut seen = BTreeSet::new();
    let shared = mapped_files(&maps).filter(|file| file.is_shared);
    let once = shared.filter(|file| seen.insert((file.device.clone(), file.inode)));
    let mut found = Vec::new();
    for file in once {
        let Some(path) = reachable(&process, &file).filter(|path| is_segment(path)) else {
            continue;
        };
        let name = match path.starts_with("/proc") {
            true => format!("{} of process {pid}", text::escaped(&file.path)),
            false => text::of_path(&path),
        };
        found.push(InProcess { path, name });
    }
    Ok(found)
}

/// Returns a path by which this process can open a file that another one has mapped.
///
/// The name comes first, because a segment that replaces this one will have it.
fn reachable(process: &Path, file: &MappedFile) -> Option<PathBuf> {
    let is_it = |path: &PathBuf| {
        let found = fs::metadata(path);
        found.is_ok_and(|it| it.ino() == file.inode && device_of(&it) == file.device)
    };
    let named = PathBuf::from(&file.path);
    // Its creator has made it without a name, and has mapped it so. The name came later, in the
    // same directory.
    let beside = named.parent().filter(|_| file.path.starts_with('/')).map(fs::read_dir);
    let beside = beside.into_iter().flatten().flatten().flatten().map(|entry| entry.path());
    // In the process's own mount namespace, the name may be another file's.
    let below_root = process.join("root").join(file.path.trim_start_matches('/'));
    let descriptors = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    let descriptors = descriptors.map(|entry| entry.path());
    // The last way needs privileges. Its names have no leading zeros, as the ranges have.
    let by_range = process.join("map_files").join(without_zeros(&file.range));
    let named = [named].into_iter().chain(beside.take(ENTRIES_MAX)).chain([below_root]);
    named.chain(descriptors).chain([by_range]).find(is_it)
}

fn without_zeros(range: &str) -> String {
    let ends = range.split('-').map(|end| end.trim_start_matches('0'));
    ends.collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_slash_lie_in_shared_memory() {
        assert_eq!(path_of(Path::new("shop")), Path::new("/dev/shm/shop"));
        assert_eq!(path_of(Path::new("./shop")), Path::new("./shop"));
        assert_eq!(path_of(Path::new("/run/shop")), Path::new("/run/shop"));
    }

    #[test]
    fn maps_are_parsed() {
        let maps = "00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/a b\n\
            7f01-7f02 rw-p 00000000 00:00 0 \n\
            7ffe0000-7fff0000 rw-s 00000000 00:01 1026    /memfd:thiscpu (deleted)\n";
        let files: Vec<_> = mapped_files(maps).collect();
        assert_eq!(files.len(), 2, "{files:?}");
        assert_eq!((files[0].is_shared, &*files[0].path), (false, "/usr/bin/a b"));
        assert_eq!((files[1].is_shared, files[1].inode), (true, 1026));
        assert_eq!((&*files[1].device, &*files[1].path), ("00:01", "/memfd:thiscpu (deleted)"));
        assert_eq!(without_zeros(&files[0].range), "400000-452000");
    }

    #[test]
    fn segments_of_process_are_found_with_and_without_name() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = directory.path().join("named");
        let named = Segment::create(&path).unwrap();
        let unnamed = Segment::anonymous().unwrap();
        unnamed.counter("requests").unwrap().add(7);
        let fd = unnamed.as_fd().unwrap().try_clone_to_owned().unwrap();
        let of_unnamed = identity_of(&File::from(fd).metadata().unwrap());
        // Other tests use segments in this process too.
        let found = in_process(std::process::id()).unwrap();
        assert_eq!(found.iter().filter(|it| it.path == path).count(), 1, "{found:?}");
        let others: Vec<_> =
            found.iter().filter(|it| identity(&it.path).ok() == Some(of_unnamed)).collect();
        assert_eq!(others.len(), 1, "{found:?}");
        let other = others[0];
        let (view, identity_of_view) = open(&other.path).unwrap();
        assert_eq!(view.counter("requests").unwrap().bounds().low, 7);
        let (attached, identity_of_attached) = attach(&other.path).unwrap();
        assert_eq!(identity_of_view, identity_of_attached);
        assert_eq!(attached.counter("requests").unwrap().sum(), 7);
        assert_eq!(in_directory(directory.path()).unwrap(), [path]);
        drop((named, unnamed));
    }

    #[test]
    fn missing_process_is_an_error_that_says_so() {
        // No process has this ID: it is above the highest one.
        let error = in_process(1 << 30).unwrap_err().to_string();
        assert!(error.starts_with("there is no process 1073741824; give "), "{error}");
    }
}
