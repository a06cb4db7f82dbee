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
const NODE_PATH: &str = "/usr/bin/node";
const PHP_PATH: &str = "/usr/bin/php";

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
pub(super) const NODE: Parts = Parts {
    tools: &[Tool { program: NODE_PATH, package: "nodejs" }],
    prepare: |inputs, _| {
        Ok(fs::write(inputs.join("buffers.js"), include_str!("scripts/buffers.js"))?)
    },
    run: run_node,
};
pub(super) const PHP: Parts = Parts {
    tools: &[Tool { program: PHP_PATH, package: "php-cli" }],
    prepare: |inputs, _| {
        Ok(fs::write(inputs.join("pages.php"), include_str!("scripts/pages.php"))?)
    },
    run: |run| run_php(run, "1"),
};
pub(super) const PHP_MALLOC: Parts = Parts { run: |run| run_php(run, "0"), ..PHP };

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

fn run_node(run: &Run) -> Result<Cost> {
    let count = run.scale.of(500, 20_000).to_string();
    let mut node = run.command(NODE_PATH)?;
    run.measure(node.arg(run.inputs.join("buffers.js")).arg(count))
}

/// Runs PHP with its own allocator if `own` is 1, or without it if `own` is 0.
///
/// Its own allocator takes 2 MiB at a time from the system.
fn run_php(run: &Run, own: &str) -> Result<Cost> {
    let count = run.scale.of(1_000, 20_000).to_string();
    let mut php = run.command(PHP_PATH)?;
    // Without the machine's settings, which may limit memory.
    php.args(["-n", "-d", "memory_limit=-1"]).env("USE_ZEND_ALLOC", own);
    run.measure(php.arg(run.inputs.join("pages.php")).arg(count))
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
