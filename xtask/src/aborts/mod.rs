//! `cargo xtask aborts`: abort every section at each of its instructions, and check its copies in
//! binaries.
//!
//! An aborted section must still happen exactly once. Every inlined copy in a shipped binary must
//! be the section that was driven, instruction for instruction. The hot calls must be those that
//! were recorded, from the first instruction to the return.

mod binary;
mod c_copies;
mod calls;
mod code;
mod compare;
mod decode;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use xshell::{Shell, cmd};

use self::binary::Checked;
use crate::cargo;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only the section of this name, or all whose names contain it; only the driver
    #[arg(default_value = "")]
    filter: String,
    /// Only one part: drive the sections, check binaries, or check whole hot calls
    #[arg(long, value_enum)]
    only: Option<Only>,
    /// Check these binaries, of either architecture, instead of building any
    #[arg(long, value_name = "PATH")]
    binary: Vec<PathBuf>,
    /// Write templates from the built binaries; read the difference afterwards
    #[arg(long)]
    bless: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Only {
    Drive,
    Binary,
    Calls,
}

/// The packages whose programs together contain all sections.
///
/// Only torture uses stacks and pairs.
const SHIPPED: [&str; 2] = ["thiscpu-bench", "thiscpu-torture"];

/// The sections of shipped binaries that the harness does not drive, each with the reason.
const NOT_DRIVEN: [&str; 1] = [
    // A yardstick of `thiscpu-bench`, which restarts itself. The library does not contain it.
    "bench::section",
];

pub(crate) fn run(sh: &Shell, arguments: &Arguments) -> Result<()> {
    let filter = &*arguments.filter;
    if arguments.only == Some(Only::Calls) {
        return calls::run(sh, filter, arguments.bless);
    }
    let whole = filter.is_empty() && arguments.only != Some(Only::Drive);
    if !arguments.binary.is_empty() {
        return check(sh, &arguments.binary, filter, arguments.bless).map(drop);
    }
    let driver = build(sh, "thiscpu-aborts", &["--release", "--features", "c"], &[])?;
    if arguments.only != Some(Only::Binary) && !arguments.bless {
        drive(sh, &driver, filter)?;
    }
    if arguments.only == Some(Only::Drive) {
        return Ok(());
    }
    let mut binaries = vec![driver];
    if whole || arguments.bless {
        for shipped in SHIPPED {
            binaries.push(build(sh, shipped, &["--release"], &[])?);
        }
    }
    if whole {
        binaries.extend(linked_differently(sh)?);
    }
    let checked = check(sh, &binaries, filter, arguments.bless)?;
    if whole && !arguments.bless {
        check_complete(sh, &checked)?;
        for checked in check(sh, &c_copies::objects(sh)?, "", false)? {
            let (sections, expected) = (checked.copies.len(), crate::header::SECTIONS_IN_C);
            ensure!(sections == expected, "FAILED C has {sections} sections, not {expected}");
        }
        calls::run(sh, "", false)?;
    }
    Ok(())
}

/// Builds a package's program and returns its path.
pub(crate) fn build(
    sh: &Shell,
    package: &str,
    flags: &[&str],
    env: &[(&str, &str)],
) -> Result<PathBuf> {
    let build = cmd!(sh, "cargo build --quiet --package {package} {flags...}");
    cargo::executables(build.envs(env.iter().copied()))?.pop().context("cargo has built no program")
}

fn drive(sh: &Shell, driver: &Path, filter: &str) -> Result<()> {
    let output = cmd!(sh, "{driver} {filter}").quiet().ignore_status().output()?;
    print!("{}", String::from_utf8_lossy(&output.stdout));
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    match output.status.code() {
        Some(0) => Ok(()),
        Some(2) => bail!("no section can be driven on this machine; the driver has printed why"),
        _ => bail!("a section did not happen exactly once, or no subject drives it"),
    }
}

/// Builds the driver unoptimized, with each linker there is.
///
/// Linkers must drop names and descriptors together.
fn linked_differently(sh: &Shell) -> Result<Vec<PathBuf>> {
    let mut binaries = vec![build(sh, "thiscpu-aborts", &["--features", "c"], &[])?];
    if cfg!(target_arch = "x86_64") {
        // Rust's own linker is the default on x86-64; this selects the C compiler's.
        let env = [
            ("RUSTFLAGS", "-C linker-features=-lld"),
            ("CARGO_TARGET_DIR", "target/aborts-other-linker"),
        ];
        binaries.push(build(sh, "thiscpu-aborts", &["--features", "c"], &env)?);
    }
    Ok(binaries)
}

fn check(sh: &Shell, binaries: &[PathBuf], filter: &str, bless: bool) -> Result<Vec<Checked>> {
    let root = sh.current_dir().canonicalize()?;
    if bless {
        for binary in binaries {
            let count = binary::bless(&root, binary, filter)?;
            println!("{}: {count} templates written", binary.display());
        }
    }
    let mut all = Vec::new();
    for binary in binaries {
        let checked = binary::check(&root, binary, filter)?;
        let (sections, copies) = (checked.copies.len(), checked.copies.values().sum::<usize>());
        println!(
            "{}: {}, {sections} sections, {copies} copies, {} boundaries, {} wrong",
            binary.strip_prefix(&root).unwrap_or(binary).display(),
            checked.arch,
            checked.boundaries,
            checked.wrong.len()
        );
        checked.wrong.iter().for_each(|wrong| println!("FAILED {wrong}"));
        all.push(checked);
    }
    ensure!(all.iter().all(|checked| checked.wrong.is_empty()), "a copy differs from its section");
    ensure!(
        all.iter().any(|checked| !checked.copies.is_empty()),
        "no section has a name that contains `{filter}`"
    );
    Ok(all)
}

/// Checks that every shipped section is driven, and that every template has a section.
fn check_complete(sh: &Shell, checked: &[Checked]) -> Result<()> {
    let [driver, others @ ..] = checked else { bail!("the driver is needed") };
    let is_driven =
        |name: &&String| driver.copies.contains_key(*name) || NOT_DRIVEN.contains(&&***name);
    let sections = others.iter().flat_map(|binary| binary.copies.keys());
    let undriven: BTreeSet<_> = sections.filter(|name| !is_driven(name)).collect();
    ensure!(undriven.is_empty(), "FAILED shipped sections that no subject drives: {undriven:?}");
    let stale = binary::stale(&sh.current_dir().canonicalize()?, checked)?;
    ensure!(stale.is_empty(), "FAILED templates without a section: {stale:?}");
    Ok(())
}
