//! The programs: what each needs, reads and does.

use std::path::Path;

use anyhow::Result;
use clap::ValueEnum;

use super::measure::Cost;
use super::run::{Run, Scale};
use super::{gcc, git, redis, scripts, xz};
use crate::tools::Tool;

/// A program and what it is made to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Program {
    /// Objects of every kind, as Python allocates them by itself
    Python3,
    /// The same, each object from malloc; not in means, which have each program once
    Python3Malloc,
    /// Compiles a large file of C
    Gcc,
    /// Commits, shows, packs and reads some thousand files
    Git,
    /// Fills, indexes, joins and changes tables
    Sqlite3,
    /// A server under redis-benchmark; Debian links it with jemalloc, so its `system` is that
    Redis,
    /// Compresses by two threads, and decompresses
    Xz,
    /// Hashes, lists, sorts, regular expressions
    Perl,
}

impl Program {
    /// Those that means are over: each program once, and each as people use it.
    pub(super) const COUNTED: [Program; 7] = [
        Program::Python3,
        Program::Gcc,
        Program::Git,
        Program::Sqlite3,
        Program::Redis,
        Program::Xz,
        Program::Perl,
    ];

    /// What has to be here. Debian's own, by their paths: another of the same name may come first.
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

    /// What has to be known to read its figures.
    pub(super) fn remark(self) -> Option<&'static str> {
        let remark = "the server's own CPU time and memory; Debian links it with jemalloc, so its `system` is that";
        (self == Program::Redis).then_some(remark)
    }

    /// Writes what its runs read into `inputs`, an empty directory.
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

    /// Does it all once.
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

impl std::fmt::Display for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Program::Python3 => "python3",
            Program::Python3Malloc => "python3-malloc",
            Program::Gcc => "gcc",
            Program::Git => "git",
            Program::Sqlite3 => "sqlite3",
            Program::Redis => "redis",
            Program::Xz => "xz",
            Program::Perl => "perl",
        })
    }
}
