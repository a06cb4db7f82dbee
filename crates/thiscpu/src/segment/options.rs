//! Creating and opening segments.

use std::path::Path;

use super::attached::Segment;
use super::file::error::{SegmentError, SegmentErrorKind};
use super::file::layout::{BYTES_MAX, LANES_MAX, Layout, PARTICIPANTS_MAX, SERIES_MAX};
use super::file::mapping::{Access, Mapping, open_path, system, with_c_path};
use crate::sys::Host;
use crate::sys::machine::Machine as _;
use crate::sys::shared_file::{self, SharedFile};
use crate::sys::startup;

/// How often others may create and remove a segment before an attempt to open it gives up.
const RACES_MAX: usize = 100;

/// What to do with a segment that exists; see [`SegmentOptions::open_or_create`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// Attach to it, and go on with its counts.
    Keep,
    /// Replace it with a new one, at one instant. Processes that are attached keep the old one.
    ///
    /// The call fails, and the file stays, if it is not a segment, cannot be opened, or belongs to
    /// an untrusted user. Damaged segments, and those of other versions, are replaced.
    Replace,
}

/// Options for creating and opening a segment.
///
/// ```
/// # fn main() -> Result<(), thiscpu::SegmentError> {
/// let segment = thiscpu::Segment::options().max_bytes(64 << 20).anonymous()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SegmentOptions {
    lanes: Option<u32>,
    participants: u32,
    max_bytes: Option<u64>,
    series: u32,
    mode: u32,
    owner: Option<u32>,
}

impl Default for SegmentOptions {
    fn default() -> Self {
        let (lanes, max_bytes, owner) = (None, None, None);
        SegmentOptions { lanes, participants: 64, max_bytes, series: 0, mode: 0o600, owner }
    }
}

impl SegmentOptions {
    /// Sets the number of lanes of a new segment: copies of each object, to be used in parallel.
    ///
    /// The default is one for each CPU that the machine can have. The range is 1 to 16,384.
    pub fn lanes(&mut self, lanes: u32) -> &mut Self {
        self.lanes = Some(lanes);
        self
    }

    /// Sets how many processes can use budgets of a new segment at once.
    ///
    /// The default is 64. The range is 1 to 1,024; the number is rounded up to a multiple of 8.
    /// Each participant takes 576 bytes of the segment, and 16 in each lane for each
    /// [budget](crate::SharedBudget). Counters need no participants.
    pub fn participants(&mut self, participants: u32) -> &mut Self {
        self.participants = participants;
        self
    }

    /// Sets the size that a new segment can reach, in bytes.
    ///
    /// A segment takes memory as objects are made: first a page in each lane and an index, then 64
    /// bytes or a little more for a counter, and 32 or 64 in each lane. The default, 2 MiB and 512
    /// KiB for each lane, has room for about ten thousand counters. The range begins at 128 KiB and
    /// 64 KiB for each lane, or higher with more than 96 participants. It ends at 1 TiB.
    ///
    /// A program that locks its memory with `mlockall` takes the whole size at once.
    pub fn max_bytes(&mut self, bytes: u64) -> &mut Self {
        self.max_bytes = Some(bytes);
        self
    }

    /// Gives a new segment a [registry](crate::SharedRegistry) with room for this many series.
    ///
    /// The default is 0: no registry. The range ends at 4,194,304. There is room for as many
    /// families too. The registry comes on top of [`max_bytes`](SegmentOptions::max_bytes).
    ///
    /// | part | bytes for each series | takes memory |
    /// |---|---|---|
    /// | index | 32 to 56 | when the segment is created |
    /// | record of a series or family | 64, 128, 192, 256, 384, 512 and so on | when it is made |
    /// | counts | 32 in each lane | when it is made |
    ///
    /// A record has 24 bytes, 8 for each label, and the values, each rounded up to 8. The segment
    /// has 128 bytes of records for each series, and for 64 more. Longer records fill it earlier,
    /// and then take room from objects with names, whose records lie there too.
    ///
    /// A segment that exists keeps what it was created with:
    /// [`open_or_create`](SegmentOptions::open_or_create) adds no registry to it, and makes an
    /// existing one no larger. Versions of this library without registries refuse the segment.
    ///
    /// A registry of 100,000 series with two short labels takes 5 MB of index, 6.4 MB of records,
    /// and 3.2 MB in each lane.
    pub fn series(&mut self, series: u32) -> &mut Self {
        self.series = series;
        self
    }

    /// Sets the permission bits of a new file, and whether others may write to an existing one.
    ///
    /// The default is 0600: a file that its group or others may write is refused. The process's
    /// `umask` has no effect.
    pub fn mode(&mut self, mode: u32) -> &mut Self {
        self.mode = mode & 0o777;
        self
    }

    /// Names another user whose files are trusted, besides this process's own and root's.
    pub fn owner(&mut self, user: u32) -> &mut Self {
        self.owner = Some(user);
        self
    }

    /// Creates a segment without a name.
    ///
    /// Children inherit it. Another program gets it by its [descriptor](Segment::as_fd).
    ///
    /// # Errors
    ///
    /// If an option is out of its range, or the system has no memory or descriptor left.
    pub fn anonymous(&self) -> Result<Segment, SegmentError> {
        let layout = self.layout(None)?;
        let failed = |errno| SegmentError::new(None, system("create", errno));
        let file = SharedFile::anonymous(c"thiscpu-segment").map_err(failed)?;
        Mapping::create(file, None, layout).map(Segment::new)
    }

    /// Creates a segment at a path where nothing is.
    ///
    /// # Errors
    ///
    /// If something is there, an option is out of its range, the directory's file system cannot
    /// hold segments, or the system has no memory or descriptor left.
    pub fn create(&self, path: impl AsRef<Path>) -> Result<Segment, SegmentError> {
        let path = path.as_ref();
        // The file gets its name when it is complete, so nobody finds half a segment.
        let mapping = self.create_unnamed(path)?;
        with_c_path(path, |name| {
            let failed = |errno| SegmentError::new(Some(path), system("create", errno));
            mapping.file.link(name).map_err(failed)
        })?;
        Ok(Segment::new(mapping))
    }

    /// Attaches to the segment at a path.
    ///
    /// # Errors
    ///
    /// If there is none, if the file is not a segment of this version, is damaged, or belongs to
    /// others than the options allow, or if the system has no memory or descriptor left.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Segment, SegmentError> {
        let path = path.as_ref();
        let error = |kind| SegmentError::new(Some(path), kind);
        startup::tier_or_best();
        let file = open_path(path, Access::ReadAndWrite)?;
        let status = file.status().map_err(|errno| error(system("open", errno)))?;
        let trusted = [Some(shared_file::user()), Some(0), self.owner];
        if !trusted.contains(&Some(status.owner)) {
            return Err(error(SegmentErrorKind::ForeignOwner { owner: status.owner }));
        }
        if status.mode & 0o022 & !self.mode != 0 {
            return Err(error(SegmentErrorKind::WritableByOthers { mode: status.mode }));
        }
        Mapping::attach(file, Some(path), Access::ReadAndWrite).map(Segment::new)
    }

    /// Attaches to the segment at a path, or creates it.
    ///
    /// Several processes may call this at once: with [`Existing::Keep`] all get one segment. It
    /// keeps the sizes that it was created with, also if these options differ.
    ///
    /// # Errors
    ///
    /// As [`open`](SegmentOptions::open) and [`create`](SegmentOptions::create).
    pub fn open_or_create(
        &self,
        path: impl AsRef<Path>,
        existing: Existing,
    ) -> Result<Segment, SegmentError> {
        let path = path.as_ref();
        if existing == Existing::Replace {
            return self.replace(path);
        }
        let mut last = system("open", libc::EAGAIN);
        for _ in 0..RACES_MAX {
            match self.open(path) {
                Err(error) if error.is_missing() => {}
                result => return result,
            }
            match self.create(path) {
                // Another process has created it since.
                Err(error) if error.is_present() => last = error.into_kind(),
                result => return result,
            }
        }
        Err(SegmentError::new(Some(path), last))
    }

    /// Puts a new segment in the place of the one at a path.
    fn replace(&self, path: &Path) -> Result<Segment, SegmentError> {
        match self.open(path) {
            // A file that is no segment, or another user's, is here by mistake.
            Err(error) if error.forbids_replacement() => return Err(error),
            _ => {}
        }
        let failed = |errno| SegmentError::new(Some(path), system("replace", errno));
        let mapping = self.create_unnamed(path)?;
        // A name beside it, because only a rename replaces a file at one instant.
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{:016x}.new", shared_file::nonce()));
        let beside = path.with_file_name(name);
        with_c_path(&beside, |beside| {
            mapping.file.link(beside).map_err(failed)?;
            with_c_path(path, |path| {
                SharedFile::rename(beside, path).map_err(|errno| {
                    let _ = SharedFile::unlink(beside);
                    failed(errno)
                })
            })
        })?;
        Ok(Segment::new(mapping))
    }

    /// Creates a complete segment in the directory of a path, without a name.
    fn create_unnamed(&self, path: &Path) -> Result<Mapping, SegmentError> {
        let layout = self.layout(Some(path))?;
        let failed = |errno| SegmentError::new(Some(path), system("create", errno));
        let directory = path.parent().filter(|it| !it.as_os_str().is_empty());
        let file = with_c_path(directory.unwrap_or(Path::new(".")), |directory| {
            SharedFile::unnamed_in(directory, self.mode).map_err(failed)
        })?;
        Mapping::create(file, Some(path), layout)
    }

    /// Lays out a new segment, and starts the library up.
    fn layout(&self, path: Option<&Path>) -> Result<Layout, SegmentError> {
        let checked = |option, value: u64, min, max| match (min..=max).contains(&value) {
            true => Ok(value),
            false => {
                let kind = SegmentErrorKind::OptionOutOfRange { option, min, max };
                Err(SegmentError::new(path, kind))
            }
        };
        startup::tier_or_best();
        let lanes = self.lanes.map_or_else(|| Host::cpus() as u64, u64::from);
        let lanes = checked("lanes", lanes, 1, LANES_MAX)?;
        let participants = u64::from(self.participants);
        let participants = checked("participants", participants, 1, PARTICIPANTS_MAX)?;
        let smallest = Layout::smallest(lanes, participants);
        let max_bytes = self.max_bytes.unwrap_or((2 << 20) + (lanes << 19));
        let max_bytes = checked("max_bytes", max_bytes, smallest.len(), BYTES_MAX)?;
        let series = checked("series", u64::from(self.series), 0, SERIES_MAX)?;
        let layout = Layout::with_max_bytes(smallest, max_bytes).with_series(series);
        // Entries of a registry lead to records below 1 TiB.
        layout.check().map_err(|_| {
            let kind = SegmentErrorKind::OptionOutOfRange {
                option: "max_bytes",
                min: smallest.len(),
                max: BYTES_MAX / 2,
            };
            SegmentError::new(path, kind)
        })?;
        Ok(layout)
    }
}

impl Segment {
    /// Returns the default options.
    pub fn options() -> SegmentOptions {
        SegmentOptions::default()
    }

    /// Creates a segment at a path, as [`SegmentOptions::create`] does by default.
    ///
    /// # Errors
    ///
    /// As [`SegmentOptions::create`].
    pub fn create(path: impl AsRef<Path>) -> Result<Segment, SegmentError> {
        Segment::options().create(path)
    }

    /// Attaches to the segment at a path, as [`SegmentOptions::open`] does by default.
    ///
    /// # Errors
    ///
    /// As [`SegmentOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Segment, SegmentError> {
        Segment::options().open(path)
    }

    /// Creates a segment without a name, as [`SegmentOptions::anonymous`] does by default.
    ///
    /// # Errors
    ///
    /// As [`SegmentOptions::anonymous`].
    pub fn anonymous() -> Result<Segment, SegmentError> {
        Segment::options().anonymous()
    }
}
