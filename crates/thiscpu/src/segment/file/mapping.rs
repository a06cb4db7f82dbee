//! A segment in this process: its file, its mapping, and memory from it.

use core::mem::size_of;
use std::ffi::CStr;
use std::path::{Path, PathBuf};

use super::error::{SegmentError, SegmentErrorKind};
use super::layout::{CELL_BYTES, Header, Layout};
use crate::sys::atomic::{AtomicU64, Ordering::Relaxed};
use crate::sys::bus_error::Watch;
use crate::sys::errno;
use crate::sys::shared_file::{self, SharedFile, Status};

/// Everything in the shared area begins at a multiple of this, a cache line.
pub(in crate::segment) const SHARED_UNIT: u64 = 64;

/// The last word of a segment with series. A file that was cut off has another word.
const END_MARK: u64 = u64::from_le_bytes(*b"\xe7cpu end");
/// What one system call of `ensure` covers at least: the smallest page.
const SMALL_PAGE: u64 = 4096;
/// The most memory beyond the needed that one step takes, of the area or of each lane.
const MORE_MAX: u64 = 256 << 10;

/// The accesses that a process has to a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::segment) enum Access {
    Read,
    ReadAndWrite,
}

/// An attached segment. Its memory stays mapped until this is dropped.
#[derive(Debug)]
pub(in crate::segment) struct Mapping {
    // Dropped before `mapped`, which keeps the inode: its number is not another file's meanwhile.
    pub(in crate::segment) file: SharedFile,
    pub(in crate::segment) path: Option<PathBuf>,
    mapped: Mapped,
    pub(in crate::segment) layout: Layout,
    access: Access,
    /// The parts of the shared area, and of each lane, that this process knows to have memory.
    shared_ready: AtomicU64,
    lanes_ready: AtomicU64,
    cells_ready: AtomicU64,
    /// Whether the end mark is in memory, so that a load of it takes none.
    has_end_mark: bool,
}

/// Mapped memory that is unmapped when dropped.
#[derive(Debug)]
struct Mapped {
    base: usize,
    len: usize,
    /// Unless nobody can shorten the file.
    watch: Option<Watch>,
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // Another mapping may get this address.
        self.watch = None;
        // SAFETY: `Mapping::map` has mapped the range. Addresses in it are used only as long as the
        // `Mapping` lives, which handles keep alive.
        unsafe { shared_file::unmap(self.base, self.len) };
    }
}

impl Mapping {
    /// Lays out a new file, and maps it.
    pub(in crate::segment) fn create(
        file: SharedFile,
        path: Option<&Path>,
        layout: Layout,
    ) -> Result<Mapping, SegmentError> {
        let failed = |errno| SegmentError::new(path, system("create", errno));
        file.set_len(layout.len()).map_err(failed)?;
        if path.is_none() {
            file.forbid_shrinking().map_err(failed)?;
        }
        let mapping = Mapping::map(file, path, Access::ReadAndWrite, layout).map_err(failed)?;
        if layout.series != 0 {
            // Before anybody relies on the mark.
            mapping.ensure_end().map_err(failed)?;
            mapping.end_mark().store(END_MARK, Relaxed);
        }
        mapping.header().publish(&layout, shared_file::nonce());
        Ok(mapping)
    }

    /// Maps a segment that somebody has created, after a check of its sizes.
    ///
    /// Without write access, the caller makes no call that writes.
    pub(in crate::segment) fn attach(
        file: SharedFile,
        path: Option<&Path>,
        access: Access,
    ) -> Result<Mapping, SegmentError> {
        let error = |kind| SegmentError::new(path, kind);
        let failed = |errno| error(system("attach to", errno));
        let status = file.status().map_err(failed)?;
        check_kind(&status, "attach to").map_err(error)?;
        // Read, not mapped: a hole of a file on a full file system reads as zeros, but an access to
        // it would end the process.
        let mut words = [0; size_of::<Header>() / 8];
        if !file.read_start(&mut words).map_err(failed)? {
            return Err(error(SegmentErrorKind::NotASegment));
        }
        let layout = Header::from_words(words).check(status.len).map_err(error)?;
        Mapping::map(file, path, access, layout).map_err(failed)
    }

    fn map(
        file: SharedFile,
        path: Option<&Path>,
        access: Access,
        layout: Layout,
    ) -> Result<Mapping, i32> {
        let len = layout.len() as usize;
        let is_writable = access == Access::ReadAndWrite;
        let base = file.map(len, is_writable)?;
        // SAFETY: the mapping is this value's own, which drops the watch before it unmaps it. All
        // accesses are atomic, and make no assumption about what other processes have written.
        let watch = file.can_shrink().then(|| unsafe { Watch::new(base, len, is_writable) });
        let mut mapping = Mapping {
            file,
            path: path.map(Path::to_owned),
            mapped: Mapped { base, len, watch: watch.flatten() },
            layout,
            access,
            shared_ready: AtomicU64::new(0),
            lanes_ready: AtomicU64::new(0),
            cells_ready: AtomicU64::new(0),
            has_end_mark: false,
        };
        // The header and the index, of which this process may access every part.
        mapping.ensure(0, layout.shared_at())?;
        // A copy has a hole there. If the file system is full then, the length is asked for.
        mapping.has_end_mark = is_writable && layout.series != 0 && mapping.ensure_end().is_ok();
        Ok(mapping)
    }

    /// Gives the end of the file memory, where the end mark is.
    fn ensure_end(&self) -> Result<(), i32> {
        self.ensure(self.layout.len() - SMALL_PAGE, SMALL_PAGE)
    }

    fn end_mark(&self) -> &AtomicU64 {
        // SAFETY: the mapping has the length of the layout, a multiple of a page. So its last word
        // is inside and aligned. It belongs to no cell: `Layout::lane_cell_bytes` has a word more
        // than the cells of a lane, and the last lane ends at the end of the mapping. All accesses
        // to it are atomic.
        unsafe { &*((self.mapped.base + self.mapped.len - 8) as *const AtomicU64) }
    }

    pub(in crate::segment) fn error(&self, kind: SegmentErrorKind) -> SegmentError {
        SegmentError::new(self.path.as_deref(), kind)
    }

    /// Returns whether a part of the file was missing at an access, or at [`check_length`].
    ///
    /// [`check_length`]: Self::check_length
    pub(in crate::segment) fn is_lost(&self) -> bool {
        self.mapped.watch.as_ref().is_some_and(Watch::is_lost)
    }

    /// Returns an error if somebody has shortened the file, as far as its descriptor tells.
    pub(in crate::segment) fn check_length(&self) -> Result<(), SegmentErrorKind> {
        let _errno = errno::save();
        let is_short = self.file.status().is_ok_and(|status| status.len < self.layout.len());
        if let Some(watch) = self.mapped.watch.as_ref().filter(|_| is_short) {
            watch.lose();
        }
        if is_short || self.is_lost() { Err(SegmentErrorKind::Lost) } else { Ok(()) }
    }

    /// Returns an error if somebody has shortened the file, usually without a system call.
    ///
    /// The kernel zeroes what is cut off a page, and an access to a page that is gone loses the
    /// segment. So the end mark is there only if all of the file is.
    #[inline]
    pub(in crate::segment) fn check_end(&self) -> Result<(), SegmentErrorKind> {
        // Relaxed: the mark orders nothing.
        let is_whole = self.has_end_mark && self.end_mark().load(Relaxed) == END_MARK;
        if is_whole && !self.is_lost() { Ok(()) } else { self.check_length() }
    }

    pub(in crate::segment) fn header(&self) -> &Header {
        // SAFETY: the mapping is longer than a header, aligned to a page, and lives as long as this
        // value. All fields are atomics, so whatever other processes write there is a value.
        unsafe { &*(self.mapped.base as *const Header) }
    }

    /// Returns words of the file, which all participants access as atomics only.
    pub(in crate::segment) fn words(&self, at: u64, count: u64) -> Option<&[AtomicU64]> {
        let end = at.checked_add(count.checked_mul(size_of::<u64>() as u64)?)?;
        if end > self.layout.len() || !at.is_multiple_of(8) {
            return None;
        }
        let first = (self.mapped.base + at as usize) as *const AtomicU64;
        // SAFETY: the range lies in the mapping, which lives as long as this value, and is aligned.
        // All of this library's accesses to it are atomic, and of whole words.
        Some(unsafe { core::slice::from_raw_parts(first, count as usize) })
    }

    /// Returns the address of some bytes in lane 0, if there are as many in every lane.
    pub(in crate::segment) fn in_lanes(&self, at: u64, bytes: u64) -> Option<usize> {
        let is_inside = at.checked_add(bytes)? <= self.layout.lane_bytes && at.is_multiple_of(16);
        is_inside.then(|| self.mapped.base + (self.layout.lanes_at() + at) as usize)
    }

    /// Returns the address of some bytes before the lanes, if they lie there.
    pub(in crate::segment) fn in_shared(&self, at: u64, bytes: u64) -> Option<usize> {
        let is_inside = at.checked_add(bytes)? <= self.layout.lanes_at();
        is_inside.then(|| self.before_lanes(at))
    }

    /// Returns the address of a place before the lanes.
    #[inline(always)]
    pub(in crate::segment) fn before_lanes(&self, at: u64) -> usize {
        self.mapped.base + at as usize
    }

    /// Takes zeroed bytes of the shared area, which nobody else gets, and returns their offset.
    pub(in crate::segment) fn take_shared(&self, bytes: u64) -> Result<u64, SegmentErrorKind> {
        let used = &self.header().shared_used;
        let at = take(used, SHARED_UNIT, bytes, self.layout.shared_bytes, |end| {
            self.ensure_shared(end)
        })?;
        Ok(self.layout.shared_at() + at)
    }

    /// Takes zeroed bytes of every lane, and returns their offset from a lane's beginning.
    ///
    /// It is a multiple of `unit`.
    pub(in crate::segment) fn take_in_lanes(
        &self,
        bytes: u64,
        unit: u64,
    ) -> Result<u64, SegmentErrorKind> {
        let used = &self.header().lane_used;
        take(used, unit, bytes, self.layout.lane_bytes, |end| self.ensure_in_lanes(end))
    }

    /// Returns whether the start of the shared area has been taken by records, or has memory.
    #[inline]
    pub(in crate::segment) fn is_shared_used(&self, end: u64) -> bool {
        // Relaxed, both: a thread that has acquired a record knows that its bytes were taken.
        let has_memory =
            self.access == Access::ReadAndWrite && end <= self.shared_ready.load(Relaxed);
        has_memory || end <= self.header().shared_used.load(Relaxed)
    }

    /// Gives the start of the shared area memory, so that no access to it can fail.
    pub(in crate::segment) fn ensure_shared(&self, end: u64) -> Result<(), SegmentErrorKind> {
        self.ensure_area(&self.shared_ready, end, self.layout.shared_bytes, |from, bytes| {
            self.ensure(self.layout.shared_at() + from, bytes)
        })
    }

    /// Gives the start of every lane memory, so that no access to it can fail.
    pub(in crate::segment) fn ensure_in_lanes(&self, end: u64) -> Result<(), SegmentErrorKind> {
        self.ensure_area(&self.lanes_ready, end, self.layout.lane_bytes, |from, bytes| {
            (0..self.layout.lanes).try_for_each(|lane| {
                self.ensure(self.layout.lanes_at() + lane * self.layout.lane_bytes + from, bytes)
            })
        })
    }

    /// Returns the address of cell 0 in lane 0.
    pub(in crate::segment) fn cells(&self) -> usize {
        self.mapped.base + self.layout.cells_at() as usize
    }

    /// Gives the first cells of every lane memory, so that no access to them can fail.
    pub(in crate::segment) fn ensure_cells(&self, count: u64) -> Result<(), SegmentErrorKind> {
        let (end, max) = (CELL_BYTES * count, self.layout.lane_cell_bytes());
        self.ensure_area(&self.cells_ready, end, max, |from, bytes| {
            (0..self.layout.lanes)
                .try_for_each(|lane| self.ensure(self.layout.cells_at() + lane * max + from, bytes))
        })
    }

    /// Gives the start of an area memory.
    ///
    /// Each process does so itself: a copy of a segment has holes, and others may write anything.
    fn ensure_area(
        &self,
        ready: &AtomicU64,
        end: u64,
        max: u64,
        ensure: impl Fn(u64, u64) -> Result<(), i32>,
    ) -> Result<(), SegmentErrorKind> {
        // Relaxed, both: the number says what this process has asked of the kernel, and other
        // threads that ask again do no harm.
        let before = ready.load(Relaxed);
        if end <= before {
            return Ok(());
        }
        let exact = end.next_multiple_of(SMALL_PAGE).min(max);
        ensure(before, exact - before).map_err(|errno| system("extend", errno))?;
        // More than that, so that the number of calls stays small. It need not fit.
        let more = (before / 4).min(MORE_MAX).next_multiple_of(SMALL_PAGE);
        let until = (before + more).clamp(exact, max);
        let has_more = until > exact && ensure(exact, until - exact).is_ok();
        let until = if has_more { until } else { exact };
        ready.fetch_max(until, Relaxed);
        Ok(())
    }

    /// Gives a range memory, unless this process only reads.
    fn ensure(&self, at: u64, bytes: u64) -> Result<(), i32> {
        if self.access == Access::Read {
            return Ok(());
        }
        let _errno = errno::save();
        match self.file.allocate(at, bytes) {
            // The program has closed the descriptor.
            Err(libc::EBADF) => {
                // SAFETY: callers pass ranges inside the file, all of which is mapped for writing.
                unsafe { shared_file::populate(self.mapped.base + at as usize, bytes as usize) }
            }
            result => result,
        }
    }
}

/// Takes bytes of an area in multiples of `unit`, and returns their offset.
///
/// The area has `max` bytes. Fails before anything is taken. A process that dies after this has
/// taken bytes that nobody will use.
fn take(
    used: &AtomicU64,
    unit: u64,
    bytes: u64,
    max: u64,
    ensure: impl Fn(u64) -> Result<(), SegmentErrorKind>,
) -> Result<u64, SegmentErrorKind> {
    // Relaxed, all: the offset is a number, and the memory behind it is zeros that nobody has
    // written. The exchange that publishes an object there orders its contents.
    let mut before = used.load(Relaxed);
    loop {
        // A multiple, even if somebody has damaged the word.
        let at = before.checked_next_multiple_of(unit).ok_or(SegmentErrorKind::Full)?;
        let end = at.checked_add(bytes.next_multiple_of(unit)).filter(|&end| end <= max);
        let end = end.ok_or(SegmentErrorKind::Full)?;
        ensure(end)?;
        match used.compare_exchange(before, end, Relaxed, Relaxed) {
            Ok(_) => return Ok(at),
            Err(now) => before = now,
        }
    }
}

pub(in crate::segment) fn system(action: &'static str, errno: i32) -> SegmentErrorKind {
    SegmentErrorKind::System { action, errno }
}

/// Opens the file of a segment.
pub(in crate::segment) fn open_path(
    path: &Path,
    access: Access,
) -> Result<SharedFile, SegmentError> {
    let error = |errno| SegmentError::new(Some(path), system("open", errno));
    let file = with_c_path(path, |path| {
        SharedFile::open(path, access == Access::ReadAndWrite).map_err(error)
    })?;
    let status = file.status().map_err(error)?;
    check_kind(&status, "open").map_err(|kind| SegmentError::new(Some(path), kind))?;
    Ok(file)
}

/// Returns an error if a file is a directory, a pipe or the like.
fn check_kind(status: &Status, action: &'static str) -> Result<(), SegmentErrorKind> {
    match status.kind {
        libc::S_IFREG => Ok(()),
        libc::S_IFDIR => Err(system(action, libc::EISDIR)),
        _ => Err(SegmentErrorKind::NotASegment),
    }
}

/// Returns a path for the system, which ends with a zero byte.
pub(in crate::segment) fn with_c_path<R>(
    path: &Path,
    call: impl FnOnce(&CStr) -> Result<R, SegmentError>,
) -> Result<R, SegmentError> {
    use std::os::unix::ffi::OsStrExt as _;
    let Ok(text) = std::ffi::CString::new(path.as_os_str().as_bytes()) else {
        return Err(SegmentError::new(Some(path), system("find", libc::EINVAL)));
    };
    call(&text)
}
