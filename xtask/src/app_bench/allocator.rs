//! The allocators that programs run on, and how a program comes to run on each.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use object::{Object as _, ObjectSymbol as _, ReadCache};
use xshell::{Shell, cmd};

use super::mimalloc;
use crate::{cargo, tools};

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Choice {
    /// Nothing is preloaded
    System,
    /// mimalloc 3, built from the source of the crate libmimalloc-sys
    Mimalloc3,
    /// mimalloc 2, Debian's libmimalloc2.0
    Mimalloc2,
    /// Debian's libjemalloc2
    Jemalloc,
    /// This project's
    Thiscpu,
    /// The same with THISCPU_MALLOC=harden
    ThiscpuHardened,
}

/// One that is here.
pub(super) struct Allocator {
    pub(super) choice: Choice,
    /// What is preloaded.
    pub(super) library: Option<PathBuf>,
    /// Which version that is, if it is one of somebody else's.
    pub(super) version: Option<String>,
}

impl Allocator {
    /// The one that all results are held against.
    pub(super) const SYSTEM: Allocator =
        Allocator { choice: Choice::System, library: None, version: None };

    /// Finds it, or builds it; none if it is missing, which is said.
    pub(super) fn find(sh: &Shell, choice: Choice) -> Result<Option<Allocator>> {
        let found = match choice {
            Choice::System => return Ok(Some(Allocator::SYSTEM)),
            Choice::Mimalloc3 => match mimalloc::build(sh) {
                Err(why) if !tools::in_ci() => {
                    eprintln!("skipped app-bench: {choice}: {why:#}");
                    None
                }
                built => Some(built?),
            },
            Choice::Mimalloc2 => of_package(sh, choice, "libmimalloc2.0", "/libmimalloc.so")?,
            Choice::Jemalloc => of_package(sh, choice, "libjemalloc2", "/libjemalloc.so")?,
            Choice::Thiscpu | Choice::ThiscpuHardened => Some((build(sh)?, String::new())),
        };
        let Some((library, version)) = found else { return Ok(None) };
        ensure!(
            !library.to_string_lossy().contains([' ', ':']),
            "{} cannot be preloaded, because LD_PRELOAD takes spaces and colons for ends of names",
            library.display()
        );
        // Programs would run on the system's, and be said to run on this.
        ensure!(has_malloc(&library)?, "{choice}: {} has no malloc to preload", library.display());
        let version = (!version.is_empty()).then_some(version);
        Ok(Some(Allocator { choice, library: Some(library), version }))
    }

    /// The variables of a process that is to run on it.
    pub(super) fn variables(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let harden = (self.choice == Choice::ThiscpuHardened)
            .then_some(("THISCPU_MALLOC", Path::new("harden")));
        let preload = self.library.as_deref().map(|library| ("LD_PRELOAD", library));
        preload.into_iter().chain(harden)
    }
}

impl std::fmt::Display for Choice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Choice::System => "system",
            Choice::Mimalloc3 => "mimalloc3",
            Choice::Mimalloc2 => "mimalloc2",
            Choice::Jemalloc => "jemalloc",
            Choice::Thiscpu => "thiscpu",
            Choice::ThiscpuHardened => "thiscpu-hardened",
        })
    }
}

/// The library of a Debian package whose path contains `part`, and the package's version.
fn of_package(
    sh: &Shell,
    what: Choice,
    package: &str,
    part: &str,
) -> Result<Option<(PathBuf, String)>> {
    let files = cmd!(sh, "dpkg -L {package}").quiet().ignore_stderr().ignore_status().read();
    let files = files.unwrap_or_default();
    let Some(library) = files.lines().find(|file| file.contains(part)) else {
        tools::skip(&format!("app-bench: {what}"), part.trim_start_matches('/'), package)?;
        return Ok(None);
    };
    let format = "--showformat=${Version}";
    let version = cmd!(sh, "dpkg-query --show {format} {package}").quiet().read()?;
    Ok(Some((library.into(), version)))
}

fn build(sh: &Shell) -> Result<PathBuf> {
    cmd!(sh, "cargo build --release --quiet --package thiscpu-malloc-preload").quiet().run()?;
    let library = cargo::target_directory(sh).join("release/libthiscpu_malloc.so");
    library.canonicalize().with_context(|| format!("cargo has built no {}", library.display()))
}

/// Whether preloading it changes what `malloc` a program gets.
fn has_malloc(library: &Path) -> Result<bool> {
    let name = || library.display().to_string();
    // Read in parts: see `results` about why this process has to stay small.
    let data = ReadCache::new(File::open(library).with_context(name)?);
    let file = object::File::parse(&data).with_context(name)?;
    Ok(file.dynamic_symbols().any(|symbol| symbol.is_definition() && symbol.name() == Ok("malloc")))
}
