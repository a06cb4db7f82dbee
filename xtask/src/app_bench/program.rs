//! The programs: what each needs and reads, and what it runs.

use clap::ValueEnum;

use super::run::Parts;
use super::{cxx, gcc, git, java, postgres, redis, rust, scripts, xz};
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
    /// Compile a file of C++ that uses many templates
    Gxx,
    /// Compile a crate with Debian's rustc, whose LLVM has several threads
    Rustc,
    /// Commit, show, pack and read some thousand files
    Git,
    /// Fill, index, join and change tables
    Sqlite3,
    /// Serve redis-benchmark; Debian links the server with jemalloc, so its `system` is jemalloc
    Redis,
    /// Serve pgbench, new connections and a script of queries
    Postgres,
    /// Compile and run classes, with one thread and with eight
    Java,
    /// Use buffers, archives, maps and JSON
    Node,
    /// Use arrays, objects, JSON and regular expressions, from PHP's own allocator
    Php,
    /// Use arrays, objects, JSON and regular expressions, each from malloc; not part of means
    PhpMalloc,
    /// Compress with two threads, and decompress
    Xz,
    /// Use hashes, lists, sorts and regular expressions
    Perl,
}

display_as_argument!(Program);

impl Program {
    /// The programs in means: each program once, as people use it.
    pub(super) const COUNTED: [Program; 13] = [
        Program::Python3,
        Program::Gcc,
        Program::Gxx,
        Program::Rustc,
        Program::Git,
        Program::Sqlite3,
        Program::Redis,
        Program::Postgres,
        Program::Java,
        Program::Node,
        Program::Php,
        Program::Xz,
        Program::Perl,
    ];

    pub(super) fn parts(self) -> Parts {
        match self {
            Program::Python3 => scripts::PYTHON,
            Program::Python3Malloc => scripts::PYTHON_MALLOC,
            Program::Gcc => gcc::PARTS,
            Program::Gxx => cxx::PARTS,
            Program::Rustc => rust::PARTS,
            Program::Git => git::PARTS,
            Program::Sqlite3 => scripts::SQLITE,
            Program::Redis => redis::PARTS,
            Program::Postgres => postgres::PARTS,
            Program::Java => java::PARTS,
            Program::Node => scripts::NODE,
            Program::Php => scripts::PHP,
            Program::PhpMalloc => scripts::PHP_MALLOC,
            Program::Xz => xz::PARTS,
            Program::Perl => scripts::PERL,
        }
    }

    /// Returns what a reader of its figures must know.
    pub(super) fn remark(self) -> Option<&'static str> {
        match self {
            Program::Redis => Some(
                "CPU time and memory of the server; Debian links it with jemalloc, so its \
                 `system` is jemalloc",
            ),
            Program::Postgres => Some("CPU time of all of the server's processes"),
            _ => None,
        }
    }
}
