//! A segment in this process: its file, its mapping, and memory from it.

use core::mem::size_of;
use std::ffi::CStr;
use std::path::{Path, PathBuf};

use super::error::{SegmentError, SegmentErrorKind};
use super::layout::{Area, Header, Layout, PAGE};
use crate::sys::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use crate::sys::shared_file::{self, SharedFile};

/// The accesses that a process has to a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    ReadAndWrite,
}

/// An attached segment. Its memory stays mapped until this is dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    pub(super) file: SharedFile,
    pub(super) path: Option<PathBuf>,
    base: usize,
    pub(super) layout: Layout,
}

/// Returns the address of a mapping that is unmapped when dropped.
struct Unchecked {
    base: usize,
    len: usize,
}

impl Drop for Unchecked {
    fn drop(&mut self) {
        // SAFETY: `Mapping::map` has mapped the range, and hands nobody an address in it before
        // this value is forgotten.
        unsafe { shared_file::unmap(self.base, self.len) };
    }
}

impl Mapping {
    /// Lays out a new file, and maps it.
    pub(super) fn create(
        file: SharedFile,
        path: Option<&Path>,
        layout: Layout,
    ) -> Result<Mapping, SegmentError> {
        let failed = |errno| SegmentError::new(path, system("create", errno));
        file.set_len(layout.len()).map_err(failed)?;
        // Memory for the header and the index, whose entries any participant may write.
        file.allocate(0, layout.shared_at()).map_err(failed)?;
        let mapping = Mapping::map(file, path, Access::ReadAndWrite, |_| Ok(layout))?;
        mapping.header().publish(&layout, shared_file::nonce());
        Ok(mapping)
    }

    /// Maps a segment that somebody has created, after a check of its sizes.
    ///
    /// Without write access, the caller makes no call that writes.
    pub(super) fn attach(
        file: SharedFile,
        path: Option<&Path>,
        access: Access,
    ) -> Result<Mapping, SegmentError> {
        Mapping::map(file, path, access, |(header, len)| header.check(len))
    }

    fn map(
        file: SharedFile,
        path: Option<&Path>,
        access: Access,
        layout: impl FnOnce((&Header, u64)) -> Result<Layout, SegmentErrorKind>,
    ) -> Result<Mapping, SegmentError> {
        let error = |kind| SegmentError::new(path, kind);
        let failed = |errno| error(system("map", errno));
        let len = file.status().map_err(failed)?.len;
        if len < PAGE || len > isize::MAX as u64 {
            return Err(error(SegmentErrorKind::NotASegment));
        }
        let base = file.map(len as usize, access == Access::ReadAndWrite).map_err(failed)?;
        let mapped = Unchecked { base, len: len as usize };
        // SAFETY: the mapping is longer than a header, and aligned to a page. All fields are
        // atomics, so whatever other processes write there is a value.
        let header = unsafe { &*(base as *const Header) };
        let layout = layout((header, len)).map_err(error)?;
        core::mem::forget(mapped);
        Ok(Mapping { file, path: path.map(Path::to_owned), base, layout })
    }

    pub(super) fn error(&self, kind: SegmentErrorKind) -> SegmentError {
        SegmentError::new(self.path.as_deref(), kind)
    }

    fn header(&self) -> &Header {
        // SAFETY: the mapping is longer than a header and lives as long as this value; all fields
        // are atomics.
        unsafe { &*(self.base as *const Header) }
    }

    /// Returns the address of `bytes` bytes at an offset of the file, or `None` beyond its end.
    ///
    /// The address is a multiple of `align` if the offset is one.
    fn address(&self, at: u64, bytes: u64) -> Option<usize> {
        let is_inside = at.checked_add(bytes)? <= self.layout.len();
        is_inside.then(|| self.base + at as usize)
    }

    /// Returns words of the file, which all participants access as atomics only.
    pub(super) fn words(&self, at: u64, count: u64) -> Option<&[AtomicU64]> {
        let address = self.address(at, count.checked_mul(size_of::<u64>() as u64)?)?;
        // SAFETY: the range lies in the mapping, which lives as long as this value, and is aligned
        // if `at` is. All of this library's accesses to it are atomic, and of whole words.
        at.is_multiple_of(8).then(|| unsafe {
            core::slice::from_raw_parts(address as *const AtomicU64, count as usize)
        })
    }

    /// Returns the address of some bytes in lane 0, if there are as many in every lane.
    pub(super) fn in_lanes(&self, at: u64, bytes: u64) -> Option<usize> {
        let is_inside = at.checked_add(bytes)? <= self.layout.lane_bytes && at.is_multiple_of(16);
        is_inside.then(|| self.base + (self.layout.lanes_at() + at) as usize)
    }

    /// Takes zeroed bytes of the shared area, which nobody else gets, and returns their offset.
    pub(super) fn take_shared(&self, bytes: u64) -> Result<u64, SegmentError> {
        let area = &self.header().shared;
        let ensure = |from, bytes| self.file.allocate(self.layout.shared_at() + from, bytes);
        self.take(area, bytes.next_multiple_of(64), self.layout.shared_bytes, ensure)
            .map(|at| self.layout.shared_at() + at)
    }

    /// Takes zeroed bytes of every lane, and returns their offset from a lane's beginning.
    pub(super) fn take_in_lanes(&self, bytes: u64) -> Result<u64, SegmentError> {
        let ensure = |from, bytes| {
            (0..self.layout.lanes).try_for_each(|lane| {
                let lane = self.layout.lanes_at() + lane * self.layout.lane_bytes;
                self.file.allocate(lane + from, bytes)
            })
        };
        self.take(&self.header().lane, bytes, self.layout.lane_bytes, ensure)
    }

    /// Takes bytes of an area, of which at most `max` exist.
    ///
    /// A process that dies in here has taken nothing, or bytes that nobody will use.
    fn take(
        &self,
        area: &Area,
        bytes: u64,
        max: u64,
        allocate: impl Fn(u64, u64) -> Result<(), i32>,
    ) -> Result<u64, SegmentError> {
        // Relaxed, all: the offset is a number, and the memory behind it is zeros that nobody has
        // written. Who publishes an object there orders its contents.
        let mut used = area.used.load(Relaxed);
        loop {
            let end = used.checked_add(bytes).filter(|&end| end <= max);
            let end = end.ok_or_else(|| self.error(SegmentErrorKind::Full))?;
            let allocated = area.allocated.load(Acquire);
            if end > allocated {
                // A quarter more each time, so that the number of calls stays small.
                let step = (allocated / 4).max(bytes).next_multiple_of(4096);
                let until = (allocated + step).max(end).min(max);
                allocate(allocated, until - allocated)
                    .map_err(|errno| self.error(system("extend", errno)))?;
                // Several processes may have done so at once. AcqRel: pairs with the Acquire above.
                area.allocated.fetch_max(until, AcqRel);
            }
            match area.used.compare_exchange(used, end, Relaxed, Relaxed) {
                Ok(_) => return Ok(used),
                Err(now) => used = now,
            }
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `map` has mapped the range. Handles keep this value alive while they use it.
        unsafe { shared_file::unmap(self.base, self.layout.len() as usize) };
    }
}

pub(super) fn system(action: &'static str, errno: i32) -> SegmentErrorKind {
    SegmentErrorKind::System { action, errno }
}

/// Opens the file of a segment.
pub(super) fn open_path(path: &Path, access: Access) -> Result<SharedFile, SegmentError> {
    let error = |errno| SegmentError::new(Some(path), system("open", errno));
    let file = with_c_path(path, |path| {
        SharedFile::open(path, access == Access::ReadAndWrite).map_err(error)
    })?;
    match file.status().map_err(error)?.is_regular {
        true => Ok(file),
        false => Err(SegmentError::new(Some(path), SegmentErrorKind::NotASegment)),
    }
}

/// Returns a path for the system, which ends with a zero byte.
pub(super) fn with_c_path<R>(
    path: &Path,
    call: impl FnOnce(&CStr) -> Result<R, SegmentError>,
) -> Result<R, SegmentError> {
    use std::os::unix::ffi::OsStrExt as _;
    let Ok(text) = std::ffi::CString::new(path.as_os_str().as_bytes()) else {
        return Err(SegmentError::new(Some(path), system("find", libc::EINVAL)));
    };
    call(&text)
}
