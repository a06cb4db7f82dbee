//! Interpreters, each with a script in `scripts/`.

use std::fs;
use std::path::Path;

use anyhow::Result;

use super::measure::Cost;
use super::run::{Run, Scale};
use crate::tools::Tool;

const PYTHON: &str = "/usr/bin/python3";
const PERL: &str = "/usr/bin/perl";
const SQLITE: &str = "/usr/bin/sqlite3";

pub(super) const PYTHON_TOOLS: [Tool; 1] = [Tool { program: PYTHON, package: "python3" }];
pub(super) const PERL_TOOLS: [Tool; 1] = [Tool { program: PERL, package: "perl" }];
pub(super) const SQLITE_TOOLS: [Tool; 1] = [Tool { program: SQLITE, package: "sqlite3" }];

pub(super) fn prepare_python(inputs: &Path) -> Result<()> {
    Ok(fs::write(inputs.join("objects.py"), include_str!("scripts/objects.py"))?)
}

/// Runs Python with one of its own allocators.
///
/// The default one cuts small objects from larger blocks.
pub(super) fn run_python(run: &Run, allocator: &str) -> Result<Cost> {
    let count = run.scale.of(1_000, 40_000).to_string();
    let mut python = run.command(PYTHON)?;
    // Without other installed packages, and with one order of sets.
    python.args(["-S", "-B"]).env("PYTHONHASHSEED", "0").env("PYTHONMALLOC", allocator);
    run.measure(python.arg(run.inputs.join("objects.py")).arg(count))
}

pub(super) fn prepare_perl(inputs: &Path) -> Result<()> {
    Ok(fs::write(inputs.join("texts.pl"), include_str!("scripts/texts.pl"))?)
}

pub(super) fn run_perl(run: &Run) -> Result<Cost> {
    let count = run.scale.of(1_000, 25_000).to_string();
    // Without these seeds, each run of Perl iterates over hashes in another order.
    let mut perl = run.command(PERL)?;
    perl.env("PERL_HASH_SEED", "0").env("PERL_PERTURB_KEYS", "0");
    run.measure(perl.arg(run.inputs.join("texts.pl")).arg(count))
}

pub(super) fn prepare_sqlite(inputs: &Path, scale: Scale) -> Result<()> {
    let rows = scale.of(2_000, 120_000).to_string();
    let script = include_str!("scripts/tables.sql").replace("SCALE", &rows);
    Ok(fs::write(inputs.join("tables.sql"), script)?)
}

/// Runs the script. The database is a result too.
pub(super) fn run_sqlite(run: &Run) -> Result<Cost> {
    let mut sqlite = run.command(SQLITE)?;
    sqlite.args(["-batch", "-bail"]).arg(run.results().join("database"));
    run.measure(sqlite.stdin(run.input("tables.sql")?))
}
