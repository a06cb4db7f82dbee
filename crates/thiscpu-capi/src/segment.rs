//! Segments.

use std::ffi::{OsStr, c_char};
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use thiscpu::{Existing, Segment, SegmentError, SegmentOptions};

use crate::ffi::{create, deref, destroy, text, write};
use crate::last_error::refused;
use crate::status::Status;

/// Memory that processes share, and the objects in it. Rust: `Segment`.
///
/// A segment is a file on a tmpfs, such as /dev/shm, or a file without a name that children
/// inherit. A process may be killed at any instruction. The others go on without waiting,
/// and keep everything that it has counted.
///
/// - Threads: any number may call all functions at once, except `thiscpu_segment_close`.
/// - Lifetime: until `thiscpu_segment_close`. Each object that was opened in it keeps it attached.
/// - Signal handlers: `_is_lost`.
/// - After `fork`: the child shares the segment with its parent, and all objects in it.
/// - After `exec`: the program attaches again, by path or by descriptor.
/// - Trust: a process that may write to the file can falsify values. It cannot make others access
///   memory outside the segment.
/// - SIGBUS: the first attach of a file that somebody could shorten installs a handler. If a part
///   of the file is missing at an access, the process goes on with zeroed memory of its own, and
///   `thiscpu_segment_is_lost` says so. All other signals go to the program's previous action.
pub struct ThiscpuSegment(pub(crate) Segment);

/// Options of a segment. A field that is 0 has its default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ThiscpuSegmentOptions {
    /// The size that a new segment can reach, in bytes.
    ///
    /// At least 128 KiB and 64 KiB for each lane, or more with over 96 participants. At most 1 TiB.
    /// The default is 2 MiB and 512 KiB for each lane. Memory is taken as objects are made: 64
    /// bytes or more for a counter, by the length of its name, and 32 or 64 in each lane.
    pub max_bytes: u64,
    /// The lanes of a new segment: copies of each object, to be used in parallel; 1 to 16,384.
    ///
    /// The default is one for each CPU that the machine can have.
    pub lanes: u32,
    /// The processes that can use budgets of a new segment at once; 1 to 1,024.
    ///
    /// The default is 64. The number is rounded up to a multiple of 8.
    pub participants: u32,
    /// The permission bits of a new file, and whether others may write to an existing one.
    ///
    /// The default is 0600. The `umask` has no effect.
    pub mode: u32,
    /// A user whose files are trusted, besides this process's own user and root.
    pub owner: u32,
    /// The number of series that a new segment's registry has room for; up to 4,194,304.
    ///
    /// The default is no registry. It comes on top of `max_bytes`: 32 to 56 bytes for each series
    /// at once, then 64 bytes or more for a series that is made, and 32 in each lane.
    pub series: u32,
}

/// Returns the options that a caller in C passes.
///
/// # Safety
///
/// `options` is null, misaligned, or points to options.
unsafe fn options_of(options: *const ThiscpuSegmentOptions) -> Result<SegmentOptions, Status> {
    let mut all = Segment::options();
    if options.is_null() {
        return Ok(all);
    }
    // SAFETY: the caller guarantees that the pointer is misaligned or leads to options.
    let &ThiscpuSegmentOptions { max_bytes, lanes, participants, mode, owner, series } =
        unsafe { deref(options) }?;
    if max_bytes != 0 {
        all.max_bytes(max_bytes);
    }
    if lanes != 0 {
        all.lanes(lanes);
    }
    if participants != 0 {
        all.participants(participants);
    }
    if mode != 0 {
        all.mode(mode);
    }
    if owner != 0 {
        all.owner(owner);
    }
    all.series(series);
    Ok(all)
}

/// Returns the path that a caller in C passes.
///
/// # Safety
///
/// `path` is null, or a string that lives for `'a`.
pub(crate) unsafe fn path_of<'a>(path: *const c_char) -> Result<&'a Path, Status> {
    // SAFETY: the caller guarantees that `path` is null or a string.
    let path = unsafe { text(path) }?;
    Ok(Path::new(OsStr::from_bytes(path.to_bytes())))
}

/// Duplicates the descriptor that a caller in C passes.
pub(crate) fn duplicate(fd: i32) -> Result<OwnedFd, Status> {
    let failed = |errno| refused("open a segment by a descriptor", errno);
    if fd < 0 {
        return Err(failed(libc::EBADF));
    }
    // SAFETY: -1 was excluded. The descriptor is used in this call only, which fails if it is not
    // open.
    let own = unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned();
    own.map_err(|error| failed(error.raw_os_error().unwrap_or(0)))
}

/// Makes a segment of a path and options, and stores its handle in `*segment`.
///
/// # Safety
///
/// `path` is null or a string, `options` is null or valid, and `segment` is null or valid for
/// writes.
unsafe fn at_path(
    path: *const c_char,
    options: *const ThiscpuSegmentOptions,
    segment: *mut *mut ThiscpuSegment,
    make: impl FnOnce(&SegmentOptions, &Path) -> Result<Segment, SegmentError>,
) -> Status {
    let new = || {
        thiscpu::tier()?;
        // SAFETY: the caller guarantees that both are null or valid.
        let (path, options) = unsafe { (path_of(path)?, options_of(options)?) };
        Ok(ThiscpuSegment(make(&options, path)?))
    };
    // SAFETY: the caller guarantees that `segment` is null or valid for writes.
    unsafe { create(segment, new) }
}

/// Creates a segment at a path where nothing is, and stores its handle in `*segment`.
///
/// - NULL: allowed for `options`, which then has the defaults.
/// - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `UNKNOWN_TIER`, `TIER_UNAVAILABLE`; `OUT_OF_RANGE`
///   for an option; `SYSTEM` with `errno`, such as `EEXIST`.
/// - Blocks: while the system takes memory for the file.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_segment_create(
    path: *const c_char,
    options: *const ThiscpuSegmentOptions,
    segment: *mut *mut ThiscpuSegment,
) -> Status {
    // SAFETY: the header requires that all pointers are null or valid.
    unsafe { at_path(path, options, segment, |options, path| options.create(path)) }
}

/// Attaches to the segment at a path, and stores its handle in `*segment`.
///
/// - NULL: allowed for `options`, which then has the defaults.
/// - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `UNKNOWN_TIER`, `TIER_UNAVAILABLE`,
///   `INVALID_SEGMENT`, `UNTRUSTED_SEGMENT`; `SYSTEM` with `errno`, such as `ENOENT`.
/// - Blocks: never for long.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_segment_open(
    path: *const c_char,
    options: *const ThiscpuSegmentOptions,
    segment: *mut *mut ThiscpuSegment,
) -> Status {
    // SAFETY: the header requires that all pointers are null or valid.
    unsafe { at_path(path, options, segment, |options, path| options.open(path)) }
}

/// Attaches to the segment at a path, or creates it; stores its handle in `*segment`.
///
/// Several processes may call this at once: without `replace` all get one segment. With `replace`
/// a new segment takes the place of one that exists. Processes that are attached keep the old one.
///
/// - NULL: allowed for `options`, which then has the defaults.
/// - Returns: as `thiscpu_segment_open` and `thiscpu_segment_create`.
/// - Blocks: while the system takes memory for the file.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_segment_open_or_create(
    path: *const c_char,
    replace: bool,
    options: *const ThiscpuSegmentOptions,
    segment: *mut *mut ThiscpuSegment,
) -> Status {
    let existing = if replace { Existing::Replace } else { Existing::Keep };
    // SAFETY: the header requires that all pointers are null or valid.
    unsafe {
        at_path(path, options, segment, |options, path| options.open_or_create(path, existing))
    }
}

/// Creates a segment without a name, and stores its handle in `*segment`.
///
/// Children of `fork` share it. Another program gets it by `thiscpu_segment_fd`.
///
/// - NULL: allowed for `options`, which then has the defaults.
/// - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `UNKNOWN_TIER`, `TIER_UNAVAILABLE`; `OUT_OF_RANGE`
///   for an option; `SYSTEM` with `errno`.
/// - Blocks: while the system takes memory for the file.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_segment_anonymous(
    options: *const ThiscpuSegmentOptions,
    segment: *mut *mut ThiscpuSegment,
) -> Status {
    let new = || {
        thiscpu::tier()?;
        // SAFETY: the header requires that `options` is null or valid.
        let options = unsafe { options_of(options) }?;
        Ok(ThiscpuSegment(options.anonymous()?))
    };
    // SAFETY: the header requires that `segment` is null or valid for writes.
    unsafe { create(segment, new) }
}

/// Attaches to the segment of a descriptor, and stores its handle in `*segment`.
///
/// The descriptor stays the caller's, and may be closed after this call. Owner and mode are not
/// checked: the process that passed it on vouches for it.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `UNKNOWN_TIER`, `TIER_UNAVAILABLE`,
///   `INVALID_SEGMENT`; `SYSTEM` with `errno`, such as `EBADF`.
/// - Blocks: never for long.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_segment_from_fd(
    fd: i32,
    segment: *mut *mut ThiscpuSegment,
) -> Status {
    let new = || {
        thiscpu::tier()?;
        Ok(ThiscpuSegment(Segment::from_fd(duplicate(fd)?)?))
    };
    // SAFETY: the header requires that `segment` is null or valid for writes.
    unsafe { create(segment, new) }
}

/// Closes a segment. No thread may use the handle during or after this call.
///
/// Objects that were opened in it stay usable. The file stays, if it has a name; see `unlink`.
///
/// - NULL: allowed; does nothing.
/// - Returns: `OK`.
/// - Blocks: never for long.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_segment_close(segment: *mut ThiscpuSegment) -> Status {
    // SAFETY: the header requires that the handle is null or live, and that no thread uses it any
    // more.
    unsafe { destroy(segment) }
}

/// Stores the descriptor of the file in `*fd`, to be passed to another process.
///
/// It stays the segment's: do not close it. It is closed on exec, unless the program clears that
/// flag of a duplicate.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`; `SYSTEM` with `EBADF` if the program has closed it.
/// - Blocks: never.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_segment_fd(segment: *mut ThiscpuSegment, fd: *mut i32) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `fd` null or valid for
    // writes.
    unsafe { write(segment, fd, |segment| Ok(segment.0.as_fd()?.as_raw_fd())) }
}

/// Stores in `*lost` whether a part of the file is gone, because somebody has shortened it.
///
/// Then zeroed memory of this process replaces the segment. Calls on handles go on there, without a
/// crash, and others do not see what they count. New handles are refused.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_segment_is_lost(
    segment: *mut ThiscpuSegment,
    lost: *mut bool,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `lost` null or valid for
    // writes.
    unsafe { write(segment, lost, |segment| Ok(segment.0.is_lost())) }
}

/// Stores the number of lanes in `*lanes`.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_segment_lanes(
    segment: *mut ThiscpuSegment,
    lanes: *mut u32,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `lanes` null or valid for
    // writes.
    unsafe { write(segment, lanes, |segment| Ok(segment.0.lanes())) }
}
