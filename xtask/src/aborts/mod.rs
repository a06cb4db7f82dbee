//! `cargo xtask aborts`: every section is aborted at each of its instructions and yet happens once, and
//! every inlined copy of it in what is shipped is the section that was looked at.

mod aarch64;
mod binary;
mod code;
mod image;
mod in_c;
mod template;
mod x86_64;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use xshell::{Shell, cmd};

use binary::Checked;
pub(crate) use image::Architecture;
pub(crate) use template::path as template_of;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only the sections whose names contain this, and of binaries only the one that drives them
    #[arg(default_value = "")]
    filter: String,
    /// Only one half: drive the sections, or look at binaries
    #[arg(long, value_enum)]
    only: Option<Half>,
    /// Looks at these binaries, of either architecture, in place of those it would build
    #[arg(long, value_name = "PATH")]
    binary: Vec<PathBuf>,
    /// Takes what is there for right, and writes the templates anew; look at the difference
    #[arg(long)]
    bless: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Half {
    Drive,
    Binary,
}

/// The sections that are in what is shipped and not in what drives them, each with the reason.
const NOT_DRIVEN: [&str; 1] = [
    // Not the library's: a yardstick of `thiscpu-bench`, which restarts itself.
    "bench::section",
];

pub(crate) fn run(sh: &Shell, arguments: &Arguments) -> Result<()> {
    let filter = &*arguments.filter;
    let whole = filter.is_empty() && arguments.only.is_none();
    if !arguments.binary.is_empty() {
        return look(sh, &arguments.binary, filter, arguments.bless).map(drop);
    }
    let driver = build(sh, "thiscpu-aborts", &["--release", "--features", "c"], &[])?;
    if arguments.only != Some(Half::Binary) && !arguments.bless {
        drive(sh, &driver, filter)?;
    }
    if arguments.only == Some(Half::Drive) {
        return Ok(());
    }
    let mut binaries = vec![driver];
    if whole || arguments.bless {
        binaries.push(build(sh, "thiscpu-bench", &["--release"], &[])?);
    }
    if whole {
        binaries.extend(linked_differently(sh)?);
    }
    let checked = look(sh, &binaries, filter, arguments.bless)?;
    if whole && !arguments.bless {
        complete(sh, &checked)?;
        for checked in look(sh, &in_c::objects(sh)?, "", false)? {
            let sections = checked.copies.len();
            ensure!(sections == crate::header::SECTIONS_IN_C, "FAILED it has {sections} sections");
        }
    }
    Ok(())
}

/// Builds a package's program and says where it is.
fn build(sh: &Shell, package: &str, flags: &[&str], env: &[(&str, &str)]) -> Result<PathBuf> {
    let messages =
        cmd!(sh, "cargo build --quiet --package {package} --message-format json {flags...}")
            .envs(env.iter().copied())
            .quiet()
            .read()
            .with_context(|| format!("{package} cannot be built"))?;
    // One message a line; the program's is the only one that names an executable.
    let (_, rest) =
        messages.rsplit_once("\"executable\":\"").context("cargo names no executable")?;
    let (path, _) = rest.split_once('"').context("cargo names no executable")?;
    Ok(PathBuf::from(path))
}

fn drive(sh: &Shell, driver: &Path, filter: &str) -> Result<()> {
    let output = cmd!(sh, "{driver} {filter}").quiet().ignore_status().output()?;
    print!("{}", String::from_utf8_lossy(&output.stdout));
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    match output.status.code() {
        Some(0) => Ok(()),
        Some(2) => bail!("no section can be driven on this machine; it says above why"),
        _ => bail!("a section did not happen exactly once, or nothing drives it"),
    }
}

/// The driver in builds where the linker has much to drop, by the linkers there are: names and
/// descriptors must be dropped together.
fn linked_differently(sh: &Shell) -> Result<Vec<PathBuf>> {
    let mut binaries = vec![build(sh, "thiscpu-aborts", &["--features", "c"], &[])?];
    if cfg!(target_arch = "x86_64") {
        // Rust's own linker is the default there; without it, it is the C compiler's.
        let env = [
            ("RUSTFLAGS", "-C linker-features=-lld"),
            ("CARGO_TARGET_DIR", "target/aborts-other-linker"),
        ];
        binaries.push(build(sh, "thiscpu-aborts", &["--features", "c"], &env)?);
    }
    Ok(binaries)
}

fn look(sh: &Shell, binaries: &[PathBuf], filter: &str, bless: bool) -> Result<Vec<Checked>> {
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
            checked.architecture.name(),
            checked.boundaries,
            checked.wrong.len()
        );
        checked.wrong.iter().for_each(|wrong| println!("FAILED {wrong}"));
        all.push(checked);
    }
    ensure!(all.iter().all(|checked| checked.wrong.is_empty()), "a copy is not what it must be");
    ensure!(
        all.iter().any(|checked| !checked.copies.is_empty()),
        "no section is called `{filter}`"
    );
    Ok(all)
}

/// Nothing is shipped that is not driven, and no template is left of a section that is gone.
fn complete(sh: &Shell, checked: &[Checked]) -> Result<()> {
    let [driver, shipped, ..] = checked else { bail!("two binaries were to be looked at") };
    let undriven: BTreeSet<_> = shipped
        .copies
        .keys()
        .filter(|name| !driver.copies.contains_key(*name) && !NOT_DRIVEN.contains(&&***name))
        .collect();
    ensure!(undriven.is_empty(), "FAILED shipped, but nothing drives them: {undriven:?}");
    let stale = binary::stale(&sh.current_dir().canonicalize()?, checked)?;
    ensure!(stale.is_empty(), "FAILED no section is left that these are templates of: {stale:?}");
    Ok(())
}
