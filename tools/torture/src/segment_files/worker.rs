//! A worker process: it changes image after image, and uses each.

use std::fs::File;
use std::io;
use std::os::fd::FromRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use thiscpu_test_support::{child, slowdown};

use super::change::{Change, Changes};
use super::place::Place;
use super::plan::{Plan, WORKERS_MAX};
use super::user::{self, User};

/// The time after which an image counts as a hang. Usually one takes less than a millisecond.
const SECONDS_MAX: u32 = 30;
const PAGE: usize = 4096;

/// The progress of a worker, in memory that it shares with its parent.
///
/// Relaxed, all: each word has one writer, and leads to nothing else.
#[derive(Default)]
#[repr(C, align(64))]
pub(super) struct Tally {
    /// The number of the current image.
    image: AtomicU64,
    done: AtomicU64,
    /// Images with which each call succeeded.
    used: AtomicU64,
    /// Images to which the worker could not attach.
    refused: AtomicU64,
}

pub(super) struct Tallies(&'static [Tally; WORKERS_MAX]);

impl Tallies {
    pub(super) fn new() -> io::Result<Tallies> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let len = size_of::<[Tally; WORKERS_MAX]>();
        // SAFETY: a new mapping of zeros at an address that the kernel chooses.
        let address = unsafe { libc::mmap(null_mut(), len, access, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the mapping is aligned to a page and is as long as the array, whose fields are
        // all atomics of which zeros are values. It is never unmapped.
        Ok(Tallies(unsafe { &*address.cast::<[Tally; WORKERS_MAX]>() }))
    }

    fn sum(&self, word: fn(&Tally) -> &AtomicU64) -> u64 {
        self.0.iter().map(|tally| word(tally).load(Relaxed)).sum()
    }

    pub(super) fn images(&self) -> u64 {
        self.sum(|it| &it.done)
    }

    pub(super) fn used(&self) -> u64 {
        self.sum(|it| &it.used)
    }

    pub(super) fn refused(&self) -> u64 {
        self.sum(|it| &it.refused)
    }
}

/// A worker, as its parent sees it. It is killed when this is dropped.
pub(super) struct Worker {
    pid: i32,
    tally: &'static Tally,
    is_over: bool,
}

impl Worker {
    /// Forks a worker. It takes the image `number`, and from there one image for each worker.
    pub(super) fn start(
        number: u64,
        plan: &Plan,
        changes: &Changes<'_>,
        tallies: &Tallies,
    ) -> io::Result<Worker> {
        let tally = &tallies.0[number as usize];
        let pid = match child::try_fork()? {
            0 => child::exit_with(|| {
                work((number..plan.images).step_by(plan.processes() as usize), changes, tally);
                0
            }),
            pid => pid,
        };
        Ok(Worker { pid, tally, is_over: false })
    }

    /// Returns how the worker has ended, if it has.
    pub(super) fn ended(&mut self) -> Option<Result<(), String>> {
        let mut status = 0;
        // SAFETY: the status is a live local. The process is a child that was not waited for.
        self.is_over = unsafe { libc::waitpid(self.pid, &mut status, libc::WNOHANG) } == self.pid;
        self.is_over.then(|| match status {
            0 => Ok(()),
            _ if !libc::WIFSIGNALED(status) => Err("a call panicked".to_owned()),
            _ => Err(match libc::WTERMSIG(status) {
                libc::SIGALRM => "a call did not end".to_owned(),
                libc::SIGSEGV => "an access led outside the segment".to_owned(),
                signal => format!("signal {signal} ended the process"),
            }),
        })
    }

    /// Returns the number of the image that the worker was at last.
    pub(super) fn image(&self) -> u64 {
        self.tally.image.load(Relaxed)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if !self.is_over {
            // SAFETY: the process has not been waited for, so its number is not another one's.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
            child::wait(self.pid);
        }
    }
}

fn work(numbers: impl Iterator<Item = u64>, changes: &Changes<'_>, tally: &Tally) {
    // SAFETY: takes numbers; the run's end is the worker's.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    silence_standard_error();
    let file = memory_file().expect("memory");
    // Before the place is made, the library maps all memory that it maps once, also for errors.
    write(&file, &changes.images[0]);
    let mut first = User::attach(file.try_clone().expect("a duplicate").into()).expect("sound");
    first.find();
    first.use_all();
    first.detach();
    let place = Place::new(changes.images[0].len()).expect("address space");
    for number in numbers {
        tally.image.store(number, Relaxed);
        // SAFETY: takes a number; the signal ends this process.
        unsafe { libc::alarm(SECONDS_MAX * slowdown()) };
        let change = changes.nth(number);
        let result = use_changed(&file, &changes.images[change.image], &change, &place);
        let counted = match result {
            Some(true) => Some(&tally.used),
            Some(false) => None,
            None => Some(&tally.refused),
        };
        counted.into_iter().chain([&tally.done]).for_each(|it| _ = it.fetch_add(1, Relaxed));
    }
}

/// Uses an image with a change, and returns whether each call succeeded.
///
/// `None` if the library refused it.
fn use_changed(file: &File, image: &[u8], change: &Change, place: &Place) -> Option<bool> {
    write(file, image);
    if !change.is_late {
        apply(file, change);
    }
    let mut user = User::attach(file.try_clone().expect("a duplicate").into())?;
    assert!(place.is_taken(), "the segment is not between the guards");
    user.find();
    if change.is_late {
        apply(file, change);
    }
    user.use_all();
    user.find();
    user::look(file);
    Some(user.detach())
}

fn apply(file: &File, change: &Change) {
    for (at, bytes) in &change.bytes {
        file.write_all_at(bytes, *at as u64).expect("a byte");
    }
    if let Some(length) = change.length {
        file.set_len(length as u64).expect("a length");
    }
}

/// Makes a file of these bytes, with holes for zeros.
fn write(file: &File, bytes: &[u8]) {
    let set_len = |len: usize| file.set_len(len as u64).expect("a length");
    set_len(0);
    set_len(bytes.len());
    for (number, page) in bytes.chunks(PAGE).enumerate() {
        if *page != [0; PAGE][..page.len()] {
            file.write_all_at(page, (number * PAGE) as u64).expect("memory");
        }
    }
}

fn memory_file() -> io::Result<File> {
    // SAFETY: the name is a C string, and the call creates a new descriptor or fails.
    let fd = unsafe { libc::memfd_create(c"torture-image".as_ptr(), libc::MFD_CLOEXEC) };
    // SAFETY: the descriptor is new, so nobody else owns it.
    if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(unsafe { File::from_raw_fd(fd) }) }
}

/// Discards what the library reports: in thousands of images it finds units that nobody held.
fn silence_standard_error() {
    // SAFETY: the path is a C string, and the calls take descriptors of this process.
    unsafe {
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        libc::dup2(null, libc::STDERR_FILENO);
        libc::close(null);
    }
}
