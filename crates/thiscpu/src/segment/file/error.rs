//! The error of segments.

use std::fmt;
use std::path::{Path, PathBuf};

/// An error of a segment; its message says what failed, why, and what to do.
///
/// A call that fails makes no object and no file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentError {
    path: Option<PathBuf>,
    kind: SegmentErrorKind,
}

/// Why a call of a segment failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SegmentErrorKind {
    /// The system refused a call.
    System {
        /// What the call was to do, such as "open".
        action: &'static str,
        /// The error number.
        errno: i32,
    },
    /// The file is not a segment: it does not begin as one does.
    NotASegment,
    /// A machine of the other byte order created the segment.
    ForeignByteOrder,
    /// Another version of this library created the segment.
    OtherFormat {
        /// The number of the segment's format.
        found: u64,
        /// The number that this version uses.
        known: u64,
    },
    /// A newer version of this library created the segment, with features that must be known.
    UnknownFeatures {
        /// The bits of these features.
        unknown: u64,
    },
    /// A field of the segment has a value that this library never writes.
    Damaged {
        /// The field.
        field: &'static str,
    },
    /// The file has another length than the segment's header says.
    ///
    /// It was shortened or extended, is a copy of a part, or a size in its header is damaged.
    WrongLength {
        /// The length that the header says, in bytes.
        expected: u64,
        /// The length of the file, in bytes.
        found: u64,
    },
    /// Another user owns the file, and could change what it says.
    ForeignOwner {
        /// The user who owns it.
        owner: u32,
    },
    /// More users may write to the file than the options allow.
    WritableByOthers {
        /// Its permission bits.
        mode: u32,
    },
    /// An option is out of its range.
    OptionOutOfRange {
        /// The option.
        option: &'static str,
        /// The lowest value.
        min: u64,
        /// The highest value.
        max: u64,
    },
    /// A name of an object is empty, longer than 200 bytes, or has a control character.
    InvalidName,
    /// The object of this name is of another kind, or has another number of counters.
    OtherKind,
    /// A view of the segment found no object of this name.
    NoSuchObject,
    /// The segment has no room for another object.
    Full,
    /// The segment was created without a registry.
    NoRegistry,
    /// A name, a label or a value of a series is not allowed.
    InvalidSeries {
        /// The part that is not allowed, with the reason and advice.
        reason: String,
    },
    /// The registry has a family of this name, with another type or other labels.
    OtherFamily(Box<FamilyConflict>),
    /// The registry has no room for another family or series.
    RegistryFull,
    /// A part of the file is gone, and what it held is lost.
    Lost,
    /// As many processes as possible use budgets of the segment.
    TooManyParticipants {
        /// How many can use them at once.
        participants: u64,
    },
    /// The file cannot be opened again, for the lock that shows that this process lives.
    CannotReopen {
        /// The error number.
        errno: i32,
    },
    /// The process used budgets for the first time in a [`vfork_scope`](crate::vfork_scope).
    InVforkScope,
}

/// A family that has the name of a requested one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FamilyConflict {
    /// The name of both.
    pub name: String,
    /// Whether it is a family of counters. Later versions can have other types.
    pub is_counter: bool,
    /// The names of its labels.
    pub labels: Vec<String>,
    /// The process that registered it, which may have ended.
    pub pid: u32,
    /// The beginning of that process's program name.
    pub program: String,
}

impl SegmentError {
    pub(in crate::segment) fn new(path: Option<&Path>, kind: SegmentErrorKind) -> SegmentError {
        SegmentError { path: path.map(Path::to_owned), kind }
    }

    pub(in crate::segment) fn into_kind(self) -> SegmentErrorKind {
        self.kind
    }

    fn is_errno(&self, wanted: i32) -> bool {
        matches!(self.kind, SegmentErrorKind::System { errno, .. } if errno == wanted)
    }

    /// Returns whether the call failed because there is no such file.
    pub(in crate::segment) fn is_missing(&self) -> bool {
        self.is_errno(libc::ENOENT)
    }

    /// Returns whether the call failed because there already is such a file.
    pub(in crate::segment) fn is_present(&self) -> bool {
        self.is_errno(libc::EEXIST)
    }

    /// Returns whether a file that could not be opened for this reason must not be removed.
    pub(in crate::segment) fn forbids_replacement(&self) -> bool {
        match self.kind {
            SegmentErrorKind::System { errno, .. } => errno != libc::ENOENT,
            SegmentErrorKind::NotASegment | SegmentErrorKind::ForeignOwner { .. } => true,
            _ => false,
        }
    }

    /// Returns why the call failed.
    pub fn kind(&self) -> &SegmentErrorKind {
        &self.kind
    }

    /// Returns the path of the segment, if it has one.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }
}

impl fmt::Display for SegmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = match self.kind {
            SegmentErrorKind::System { action, .. } => action,
            SegmentErrorKind::InvalidName
            | SegmentErrorKind::OtherKind
            | SegmentErrorKind::NoSuchObject
            | SegmentErrorKind::Full => "find or make an object in",
            SegmentErrorKind::OptionOutOfRange { option: "limit", .. } => "make a budget in",
            SegmentErrorKind::NoRegistry => "use the registry of",
            SegmentErrorKind::InvalidSeries { .. }
            | SegmentErrorKind::OtherFamily(_)
            | SegmentErrorKind::RegistryFull => "register a series in",
            SegmentErrorKind::OptionOutOfRange { .. } => "create",
            SegmentErrorKind::Lost => "use",
            SegmentErrorKind::TooManyParticipants { .. }
            | SegmentErrorKind::CannotReopen { .. }
            | SegmentErrorKind::InVforkScope => "use budgets of",
            _ => "attach to",
        };
        match &self.path {
            Some(path) => write!(f, "cannot {action} segment {}: ", path.display())?,
            None => write!(f, "cannot {action} a segment without a name: ")?,
        }
        match (&self.path, &self.kind) {
            // No path would help: the system makes no memory files for this process.
            (None, &SegmentErrorKind::System { action: "create", errno })
                if matches!(errno, libc::EACCES | libc::EPERM) =>
            {
                let why = std::io::Error::from_raw_os_error(errno);
                write!(f, "{why}; let the sandbox of this process allow `memfd_create`")
            }
            (_, kind) => kind.fmt(f),
        }
    }
}

impl fmt::Display for SegmentErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            // The system's words are about levels of links.
            SegmentErrorKind::System { errno: libc::ELOOP, .. } => f.write_str(
                "it is a symbolic link, or its path has a loop of them; give the path of the file \
                 itself",
            ),
            SegmentErrorKind::System { action, errno } => {
                write!(f, "{}; {}", std::io::Error::from_raw_os_error(errno), advice(action, errno))
            }
            SegmentErrorKind::NotASegment => f.write_str("it is not a segment; check the path"),
            SegmentErrorKind::ForeignByteOrder => f.write_str(
                "a machine of the other byte order made it; remove it, and create it on this one",
            ),
            SegmentErrorKind::OtherFormat { found, known } => write!(
                f,
                "it has format {found}, and this version of thiscpu knows format {known}; use the \
                 version that made it, or remove it after all its processes have ended"
            ),
            SegmentErrorKind::UnknownFeatures { unknown } => write!(
                f,
                "it has features {unknown:#x}, which this version of thiscpu does not know; use \
                 the version that made it, or remove it after all its processes have ended"
            ),
            SegmentErrorKind::Damaged { field } => {
                write!(f, "its {field} is damaged; remove it after all its processes have ended")
            }
            SegmentErrorKind::WrongLength { expected, found } => write!(
                f,
                "its header says {expected} bytes, but the file has {found}; copy it again if it \
                 is a copy, or remove it after all its processes have ended"
            ),
            SegmentErrorKind::ForeignOwner { owner } => write!(
                f,
                "user {owner} owns it; name that user in the options if you trust it, or remove \
                 the file"
            ),
            SegmentErrorKind::WritableByOthers { mode } => write!(
                f,
                "its mode {mode:o} lets more users write than the options allow; allow the mode in \
                 the options, or change it with chmod"
            ),
            SegmentErrorKind::OptionOutOfRange { option, min, max } => {
                write!(f, "{option} is out of range; use {min} to {max}")
            }
            SegmentErrorKind::InvalidName => f.write_str(
                "the object's name is not valid; use 1 to 200 bytes without control characters",
            ),
            SegmentErrorKind::OtherKind => f.write_str(
                "the object of this name is of another kind or size; use another name, or the \
                 kind and size that it was made with",
            ),
            SegmentErrorKind::NoSuchObject => f.write_str(
                "no object has this name; wait until a process that can write has made it",
            ),
            SegmentErrorKind::Full => {
                f.write_str("it has no room for another object; create it with more `max_bytes`")
            }
            SegmentErrorKind::NoRegistry => {
                f.write_str("it was created without one; create it with a number of `series`")
            }
            SegmentErrorKind::InvalidSeries { ref reason } => f.write_str(reason),
            SegmentErrorKind::OtherFamily(ref family) => {
                let FamilyConflict { name, is_counter, labels, pid, program } = &**family;
                let kind = if *is_counter { "counters" } else { "another type" };
                write!(
                    f,
                    "the family {name:?} exists, of {kind} with the labels {labels:?}, registered \
                     by process {pid} ({program:?}); use its type and labels, or another name"
                )
            }
            SegmentErrorKind::RegistryFull => f.write_str(
                "its registry has no room for it; create the segment with more `series`, or with \
                 more `max_bytes` if values are long",
            ),
            SegmentErrorKind::Lost => f.write_str(
                "somebody has shortened its file, or the file system is full; remove it after all \
                 its processes have ended, and create it again",
            ),
            SegmentErrorKind::TooManyParticipants { participants } => write!(
                f,
                "{participants} processes use them already; let one end, or create the segment \
                 with more `participants`"
            ),
            SegmentErrorKind::CannotReopen { errno } => write!(
                f,
                "its file cannot be opened again: {}; mount /proc, and let this process read and \
                 write the file",
                std::io::Error::from_raw_os_error(errno)
            ),
            SegmentErrorKind::InVforkScope => f.write_str(
                "this process has not used them yet, and may be a child of vfork; use a budget \
                 before the vfork",
            ),
        }
    }
}

/// Returns what to do if the system refused an action with an error number.
fn advice(action: &str, errno: i32) -> &'static str {
    match (action, errno) {
        ("create" | "replace", libc::ENOENT | libc::ENOTDIR) => {
            "check the path: it must lead into a directory of a tmpfs, such as /dev/shm"
        }
        ("create" | "replace", libc::EACCES | libc::EPERM) => {
            "give a path in a directory in which this user may create files"
        }
        (_, libc::ENOENT) => "check the path, or create the segment first",
        (_, libc::ENOTDIR | libc::EINVAL | libc::ENAMETOOLONG) => "check the path",
        (_, libc::EEXIST) => "open it, or remove it",
        (_, libc::EACCES | libc::EPERM) => "run as its owner, or change its mode",
        (_, libc::ENOSPC | libc::EDQUOT) => {
            "make room on its file system, or enlarge the file system"
        }
        (_, libc::EFBIG) => "raise the limit on file sizes (`ulimit -f`), or lower `max_bytes`",
        (_, libc::ENOMEM) => "raise the limit on address space (`ulimit -v`), or lower `max_bytes`",
        (_, libc::EMFILE | libc::ENFILE) => "raise the limit on open files (`ulimit -n`)",
        (_, libc::EOPNOTSUPP | libc::EROFS) => "put it on a tmpfs, such as /dev/shm",
        (_, libc::EISDIR) => "give the path of a file, in a directory of a tmpfs such as /dev/shm",
        (_, libc::EBADF) => "do not close descriptors that belong to this library",
        _ => "see the documentation of segments",
    }
}

impl std::error::Error for SegmentError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_without_a_name_gets_no_advice_about_a_path() {
        for errno in [libc::EPERM, libc::EACCES] {
            let kind = SegmentErrorKind::System { action: "create", errno };
            let said = SegmentError::new(None, kind.clone()).to_string();
            assert!(said.starts_with("cannot create a segment without a name: "), "{said}");
            assert!(said.contains("`memfd_create`") && !said.contains("path"), "{said}");
            let said = SegmentError::new(Some(Path::new("/a")), kind).to_string();
            assert!(
                said.ends_with("; give a path in a directory in which this user may create files")
            );
        }
    }
}
