//! Segments of tests: files that are removed, images of them, and memory of several processes.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};

use thiscpu::{Segment, SegmentError, SegmentOptions};

use super::fork;
use super::process::memory_file;

/// A path on a tmpfs where nothing is; a file that is made there goes when this is dropped.
pub(crate) struct Place(PathBuf);

impl Place {
    pub(crate) fn new() -> Place {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let shared = Path::new("/dev/shm");
        let directory = if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() };
        let number = NUMBER.fetch_add(1, SeqCst);
        let place = Place(directory.join(format!("thiscpu-test-{}-{number}", std::process::id())));
        // A process that was killed may have left one, if it had this number.
        let _ = std::fs::remove_file(&place);
        place
    }
}

impl AsRef<Path> for Place {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl std::ops::Deref for Place {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// Returns options for a small segment, with two lanes.
pub(crate) fn small() -> SegmentOptions {
    let mut options = Segment::options();
    options.max_bytes(1 << 20).lanes(2);
    options
}

/// Returns options for the smallest segment with two lanes.
///
/// Tests that step through calls use it. Calls look at each entry of the index, and this index is
/// short.
pub(crate) fn smallest() -> SegmentOptions {
    let mut options = small();
    options.max_bytes(256 << 10);
    options
}

/// Returns a new segment without a name.
pub(crate) fn small_segment() -> Segment {
    small().anonymous().expect("a segment")
}

/// Returns the file of a segment.
pub(crate) fn file_of(segment: &Segment) -> File {
    segment.as_fd().expect("a descriptor").try_clone_to_owned().expect("a duplicate").into()
}

/// Returns all bytes of a segment.
pub(crate) fn image_of(segment: &Segment) -> Vec<u8> {
    let file = file_of(segment);
    let mut bytes = vec![0; file.metadata().expect("a file").len() as usize];
    file.read_exact_at(&mut bytes, 0).expect("its length");
    bytes
}

/// Returns a file in memory with these bytes, and with holes for zeros.
pub(crate) fn file_with(bytes: &[u8]) -> File {
    const PAGE: usize = 4096;
    let file = memory_file();
    file.set_len(bytes.len() as u64).expect("memory");
    for (number, page) in bytes.chunks(PAGE).enumerate() {
        if *page != [0; PAGE][..page.len()] {
            file.write_all_at(page, (number * PAGE) as u64).expect("memory");
        }
    }
    file
}

/// Attaches to a copy of a segment.
pub(crate) fn attach(image: &[u8]) -> Result<Segment, SegmentError> {
    Segment::from_fd(file_with(image).into())
}

/// Words that this process shares with its children.
pub(crate) fn shared_words() -> &'static [AtomicU64; 512] {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping of zeros, which stays for the rest of the process's life and is as long
    // as the words. Zeros are valid atomics.
    unsafe {
        let words = libc::mmap(std::ptr::null_mut(), 4096, access, flags, -1, 0);
        assert_ne!(words, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        &*words.cast()
    }
}

/// Processes that are killed when this is dropped, after a panic too.
#[derive(Default)]
pub(crate) struct Processes(Vec<i32>);

impl Processes {
    /// Takes over a child that was forked elsewhere.
    pub(crate) fn of(child: i32) -> Processes {
        Processes(vec![child])
    }

    /// Starts `count` processes that run `body` with their number.
    pub(crate) fn start(count: usize, body: impl Fn(usize)) -> Processes {
        Processes((0..count).map(|number| fork::start(|| body(number))).collect())
    }

    /// Waits until all have ended, and panics if one has failed.
    #[track_caller]
    pub(crate) fn finish(mut self) {
        for child in std::mem::take(&mut self.0) {
            fork::finish(child).unwrap_or_else(|error| panic!("{error}"));
        }
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for &child in &self.0 {
            fork::kill(child);
        }
    }
}

/// Runs `body` in `count` processes that start it together, and waits for them.
#[track_caller]
pub(crate) fn in_processes(count: usize, body: impl Fn(usize)) {
    let arrived = &shared_words()[0];
    Processes::start(count, |number| {
        arrived.fetch_add(1, SeqCst);
        while arrived.load(SeqCst) < count as u64 {
            std::thread::yield_now();
        }
        body(number);
    })
    .finish();
}
