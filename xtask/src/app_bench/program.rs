//! The programs: what each needs and reads, and what it runs.

use std::path::Path;

use anyhow::Result;
use clap::ValueEnum;

use super::measure::Cost;
use super::run::{Run, Scale};
use super::{gcc, git, redis, scripts, xz};
use crate::arguments::display_as_argument;
use crate::tools::Tool;

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

    /// Returns the tools that it needs: Debian's, by their paths, because PATH may have others.
    pub(super) fn tools(self) -> &'static [Tool] {
        match self {
            Program::Python3 | Program::Python3Malloc => &scripts::PYTHON_TOOLS,
            Program::Gcc => &gcc::TOOLS,
            Program::Git => &git::TOOLS,
            Program::Sqlite3 => &scripts::SQLITE_TOOLS,
            Program::Redis => &redis::TOOLS,
            Program::Xz => &xz::TOOLS,
            Program::Perl => &scripts::PERL_TOOLS,
        }
    }

    /// Returns what a reader of its figures must know.
    pub(super) fn remark(self) -> Option<&'static str> {
        let remark = "CPU time and memory of the server; Debian links it with jemalloc, so its \
                      `system` is jemalloc";
        (self == Program::Redis).then_some(remark)
    }

    /// Writes the inputs of its runs into an empty directory.
    pub(super) fn prepare(self, inputs: &Path, scale: Scale) -> Result<()> {
        match self {
            Program::Python3 | Program::Python3Malloc => scripts::prepare_python(inputs),
            Program::Gcc => gcc::prepare(inputs, scale),
            Program::Git => git::prepare(inputs, scale),
            Program::Sqlite3 => scripts::prepare_sqlite(inputs, scale),
            Program::Redis => Ok(()),
            Program::Xz => xz::prepare(inputs, scale),
            Program::Perl => scripts::prepare_perl(inputs),
        }
    }

    /// Runs it once.
    pub(super) fn run(self, run: &Run) -> Result<Cost> {
        match self {
            Program::Python3 => scripts::run_python(run, "default"),
            Program::Python3Malloc => scripts::run_python(run, "malloc"),
            Program::Gcc => gcc::run(run),
            Program::Git => git::run(run),
            Program::Sqlite3 => scripts::run_sqlite(run),
            Program::Redis => redis::run(run),
            Program::Xz => xz::run(run),
            Program::Perl => scripts::run_perl(run),
        }
    }
}
