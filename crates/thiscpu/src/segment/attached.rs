//! An attached segment.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use super::counter::{SharedCounter, SharedCounters};
use super::file::error::SegmentError;
use super::file::mapping::{Access, Mapping, system};
use super::file::objects::Objects;
use super::member::Member;
use crate::sys::shared_file::SharedFile;
use crate::sys::startup;

/// Memory that processes share, and the objects in it.
///
/// A segment is a file on a tmpfs, such as `/dev/shm`, or a file without a name that children
/// inherit. Each object in it has a name. A process that attaches gets a handle of an object by
/// that name, and whichever process asks first makes the object.
///
/// A process may be killed at any instruction: the other processes go on without waiting, and keep
/// everything that it has counted.
///
/// # Life
///
/// - A clone of a segment, and each handle of an object, keeps the segment attached.
/// - Children of `fork` have what their parent attached, and use it without further calls. A child
///   that executes another program attaches again, by path or by descriptor.
/// - A named segment stays until somebody removes its file; attached processes keep it after that.
///   A service that restarts chooses whether it goes on with the old counts: see [`Existing`].
/// - A segment never shrinks, and objects stay in it.
/// - A program that closes descriptors of others, as daemons do, closes the segment's too. Its
///   memory stays attached, and can still grow on Linux 5.14 and later.
/// - systemd removes files of a user in `/dev/shm` when the user's last session ends
///   (`RemoveIPC`), unless it is a system user. Containers often limit `/dev/shm` to 64 MiB. Any
///   other tmpfs serves as well.
///
/// # Trust
///
/// A process that can write to a segment can falsify its values. It cannot make another process
/// access memory outside its mapping. By default, files are created with mode 0600. Files that
/// others may write are refused, and files of users other than this process's own and root; see
/// [`mode`] and [`owner`].
///
/// Nobody can shorten a segment that [`Segment::anonymous`] has made. Any user who may write to
/// another file can shorten it. A process that then accesses the missing part goes on with zeroed
/// memory of its own, and [`is_lost`] says so. For this, the first attach of such a file installs a
/// handler of SIGBUS. Each SIGBUS that has another cause goes to the handler that the program had
/// before, or to the default action. If the program installs a handler later, that handler must
/// pass on signals that it does not expect. Otherwise it decides how such an access ends. If a
/// thread blocks SIGBUS, such an access ends the process: the kernel calls no handler then.
///
/// [`Existing`]: crate::Existing
/// [`is_lost`]: Segment::is_lost
/// [`mode`]: crate::SegmentOptions::mode
/// [`owner`]: crate::SegmentOptions::owner
///
/// ```
/// # fn main() -> Result<(), thiscpu::SegmentError> {
/// # let path = std::env::temp_dir().join(format!("thiscpu-doc-{}", std::process::id()));
/// use thiscpu::{Existing, Segment};
///
/// // In each worker:
/// let segment = Segment::options().open_or_create(&path, Existing::Keep)?;
/// segment.counter("requests")?.inc();
///
/// // In another process:
/// let requests = Segment::open(&path)?.counter("requests")?;
/// assert_eq!(requests.sum(), 1);
/// # std::fs::remove_file(&path).unwrap();
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Segment(Arc<Member>);

impl Segment {
    pub(super) fn new(mapping: Mapping) -> Segment {
        Segment(Arc::new(Member::new(mapping)))
    }

    pub(super) fn member(&self) -> &Arc<Member> {
        &self.0
    }

    pub(super) fn mapping(&self) -> &Arc<Mapping> {
        &self.0.mapping
    }

    /// Attaches to the segment of a descriptor that another process passed on.
    ///
    /// The descriptor may be of a segment with a name or without one. Its owner and mode are not
    /// checked: the process that passed it on vouches for it.
    ///
    /// # Errors
    ///
    /// If it is not a segment of this version, is damaged, or cannot be mapped for writing.
    pub fn from_fd(fd: OwnedFd) -> Result<Segment, SegmentError> {
        startup::tier_or_best();
        let failed = |errno| SegmentError::new(None, system("open", errno));
        let file = SharedFile::from_fd(fd).map_err(failed)?;
        Mapping::attach(file, None, Access::ReadAndWrite).map(Segment::new)
    }

    /// Returns the counter of a name, and makes it if there is none.
    ///
    /// # Errors
    ///
    /// If the name is not valid or belongs to another kind of object, if the segment is full or
    /// damaged, or if the system has no memory.
    pub fn counter(&self, name: &str) -> Result<SharedCounter, SegmentError> {
        SharedCounter::find_or_make(self.mapping(), name)
    }

    /// Returns the counters of a name that are read together, and makes them if there are none.
    ///
    /// `N` is 1 to 4,096; other numbers do not compile.
    ///
    /// # Errors
    ///
    /// As [`counter`](Segment::counter); a group of another size is another kind of object.
    pub fn counters<const N: usize>(&self, name: &str) -> Result<SharedCounters<N>, SegmentError> {
        SharedCounters::find_or_make(self.mapping(), name)
    }

    /// Returns an iterator over the objects in the segment.
    ///
    /// The order has no meaning. Costs a load for each entry of the index, which has at least 512,
    /// and an allocation for each name. Waits for nobody.
    ///
    /// ```
    /// # fn main() -> Result<(), thiscpu::SegmentError> {
    /// use thiscpu::ObjectKind;
    ///
    /// let segment = thiscpu::Segment::anonymous()?;
    /// segment.counter("requests")?;
    /// for object in segment.objects() {
    ///     let object = object?;
    ///     assert_eq!((object.name(), object.kind()), ("requests", ObjectKind::Counter));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn objects(&self) -> Objects<'_> {
        Objects::new(self.mapping())
    }

    /// Returns whether a part of the file is gone, because somebody has shortened it.
    ///
    /// Then zeroed memory of this process replaces the segment. Calls on handles go on there,
    /// without a crash, but other processes do not see what they count. New handles are refused.
    /// Costs a system call.
    pub fn is_lost(&self) -> bool {
        self.mapping().check_length().is_err()
    }

    /// Returns the path that the segment was created or opened with, if it has a name.
    pub fn path(&self) -> Option<&Path> {
        self.mapping().path.as_deref()
    }

    /// Returns the number of lanes.
    pub fn lanes(&self) -> u32 {
        self.mapping().layout.lanes as u32
    }

    /// Returns the descriptor of the file, to be passed to another process.
    ///
    /// It is closed on exec, unless the program clears that flag of a duplicate.
    ///
    /// # Errors
    ///
    /// If the program has closed the descriptor, which belongs to this library.
    pub fn as_fd(&self) -> Result<BorrowedFd<'_>, SegmentError> {
        match self.mapping().file.own_fd() {
            // SAFETY: the descriptor is open, and stays so while this segment lives, unless the
            // program closes descriptors that are not its own.
            Ok(fd) => Ok(unsafe { BorrowedFd::borrow_raw(fd) }),
            Err(errno) => Err(self.mapping().error(system("pass on", errno))),
        }
    }
}
