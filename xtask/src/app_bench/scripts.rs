//! Interpreters, each with a script in `scripts/`.

use std::fs;
use std::path::Path;

use anyhow::Result;

use super::measure::Cost;
use super::run::{Parts, Run, Scale};
use crate::tools::Tool;

const PYTHON_PATH: &str = "/usr/bin/python3";
const PERL_PATH: &str = "/usr/bin/perl";
const SQLITE_PATH: &str = "/usr/bin/sqlite3";

pub(super) const PYTHON: Parts = Parts {
    tools: &[Tool { program: PYTHON_PATH, package: "python3" }],
    prepare: |inputs, _| {
        Ok(fs::write(inputs.join("objects.py"), include_str!("scripts/objects.py"))?)
    },
    run: |run| run_python(run, "default"),
};
pub(super) const PYTHON_MALLOC: Parts = Parts { run: |run| run_python(run, "malloc"), ..PYTHON };
pub(super) const PERL: Parts = Parts {
    tools: &[Tool { program: PERL_PATH, package: "perl" }],
    prepare: |inputs, _| Ok(fs::write(inputs.join("texts.pl"), include_str!("scripts/texts.pl"))?),
    run: run_perl,
};
pub(super) const SQLITE: Parts = Parts {
    tools: &[Tool { program: SQLITE_PATH, package: "sqlite3" }],
    prepare: prepare_sqlite,
    run: run_sqlite,
};

/// Runs Python with one of its own allocators.
///
/// The default one cuts small objects from larger blocks.
fn run_python(run: &Run, allocator: &str) -> Result<Cost> {
    let count = run.scale.of(1_000, 40_000).to_string();
    let mut python = run.command(PYTHON_PATH)?;
    // Without other installed packages, and with one order of sets.
    python.args(["-S", "-B"]).env("PYTHONHASHSEED", "0").env("PYTHONMALLOC", allocator);
    run.measure(python.arg(run.inputs.join("objects.py")).arg(count))
}

fn run_perl(run: &Run) -> Result<Cost> {
    let count = run.scale.of(1_000, 25_000).to_string();
    // Without these seeds, each run of Perl iterates over hashes in another order.
    let mut perl = run.command(PERL_PATH)?;
    perl.env("PERL_HASH_SEED", "0").env("PERL_PERTURB_KEYS", "0");
    run.measure(perl.arg(run.inputs.join("texts.pl")).arg(count))
}

fn prepare_sqlite(inputs: &Path, scale: Scale) -> Result<()> {
    let rows = scale.of(2_000, 120_000).to_string();
    let script = include_str!("scripts/tables.sql").replace("SCALE", &rows);
    Ok(fs::write(inputs.join("tables.sql"), script)?)
}

/// Runs the script. The database is a result too.
fn run_sqlite(run: &Run) -> Result<Cost> {
    let mut sqlite = run.command(SQLITE_PATH)?;
    sqlite.args(["-batch", "-bail"]).arg(run.results().join("database"));
    run.measure(sqlite.stdin(run.input("tables.sql")?))
}
