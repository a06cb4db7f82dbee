//! The programs: what each needs and reads, and what it runs.

use clap::ValueEnum;

use super::run::Parts;
use super::{gcc, git, redis, scripts, xz};
use crate::arguments::display_as_argument;

/// A program and its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Program {
    /// Objects of every kind, from Python's own allocator for small objects
    Python3,
    /// Objects of every kind, each from malloc; not part of means
    Python3Malloc,
    /// Compile a large file of C
    Gcc,
    /// Commit, show, pack and read some thousand files
    Git,
    /// Fill, index, join and change tables
    Sqlite3,
    /// Serve redis-benchmark; Debian links the server with jemalloc, so its `system` is jemalloc
    Redis,
    /// Compress with two threads, and decompress
    Xz,
    /// Use hashes, lists, sorts and regular expressions
    Perl,
}

display_as_argument!(Program);

impl Program {
    /// The programs in means: each program once, as people use it.
    pub(super) const COUNTED: [Program; 7] = [
        Program::Python3,
        Program::Gcc,
        Program::Git,
        Program::Sqlite3,
        Program::Redis,
        Program::Xz,
        Program::Perl,
    ];

    pub(super) fn parts(self) -> Parts {
        match self {
            Program::Python3 => scripts::PYTHON,
            Program::Python3Malloc => scripts::PYTHON_MALLOC,
            Program::Gcc => gcc::PARTS,
            Program::Git => git::PARTS,
            Program::Sqlite3 => scripts::SQLITE,
            Program::Redis => redis::PARTS,
            Program::Xz => xz::PARTS,
            Program::Perl => scripts::PERL,
        }
    }

    /// Returns what a reader of its figures must know.
    pub(super) fn remark(self) -> Option<&'static str> {
        let remark = "CPU time and memory of the server; Debian links it with jemalloc, so its \
                      `system` is jemalloc";
        (self == Program::Redis).then_some(remark)
    }
}
