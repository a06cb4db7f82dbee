//! The allocators, and how they are preloaded.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use object::{Object as _, ObjectSymbol as _, ReadCache};
use xshell::{Shell, cmd};

use super::mimalloc;
use crate::arguments::display_as_argument;
use crate::{cargo, tools};

/// An allocator that can be requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Choice {
    /// The C library's; preloads nothing
    System,
    /// mimalloc 3, built from the source in the crate libmimalloc-sys
    Mimalloc3,
    /// mimalloc 2, Debian's libmimalloc2.0
    Mimalloc2,
    /// Debian's libjemalloc2
    Jemalloc,
    /// thiscpu-malloc
    Thiscpu,
    /// thiscpu-malloc with THISCPU_MALLOC=harden
    ThiscpuHardened,
    /// thiscpu-malloc with a heap profile at the default interval
    ThiscpuProfiled,
}

pub(super) struct Allocator {
    pub(super) choice: Choice,
    /// The preloaded library.
    pub(super) library: Option<PathBuf>,
    /// The version of a third-party allocator.
    pub(super) version: Option<String>,
}

impl Allocator {
    /// The allocator with which all results are compared.
    pub(super) const SYSTEM: Allocator =
        Allocator { choice: Choice::System, library: None, version: None };

    /// Finds or builds an allocator. Prints why and returns `None` if it is missing.
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
            Choice::Thiscpu | Choice::ThiscpuHardened | Choice::ThiscpuProfiled => {
                Some((build(sh)?, String::new()))
            }
        };
        let Some((library, version)) = found else { return Ok(None) };
        ensure!(
            !library.to_string_lossy().contains([' ', ':']),
            "cannot preload {}: LD_PRELOAD splits names at spaces and colons; move the repository",
            library.display()
        );
        // Without a malloc to preload, programs would run on the system's allocator.
        ensure!(has_malloc(&library)?, "{choice}: {} defines no malloc", library.display());
        let version = (!version.is_empty()).then_some(version);
        Ok(Some(Allocator { choice, library: Some(library), version }))
    }

    /// Returns the environment variables of a process that runs on this allocator.
    pub(super) fn variables(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let setting = match self.choice {
            Choice::ThiscpuHardened => Some("harden"),
            // Profiles are made and written, but not kept.
            Choice::ThiscpuProfiled => Some("profile=/dev/null"),
            _ => None,
        };
        let preload = self.library.as_deref().map(|library| ("LD_PRELOAD", library));
        preload.into_iter().chain(setting.map(|setting| ("THISCPU_MALLOC", Path::new(setting))))
    }
}

display_as_argument!(Choice);

/// Returns a library of a Debian package, and the package's version.
///
/// The library is the file whose path contains `part`.
fn of_package(
    sh: &Shell,
    choice: Choice,
    package: &str,
    part: &str,
) -> Result<Option<(PathBuf, String)>> {
    let files = cmd!(sh, "dpkg -L {package}").quiet().ignore_stderr().ignore_status().read();
    let files = files.unwrap_or_default();
    let Some(library) = files.lines().find(|file| file.contains(part)) else {
        tools::skip(&format!("app-bench: {choice}"), part.trim_start_matches('/'), package)?;
        return Ok(None);
    };
    let format = "--showformat=${Version}";
    let version = cmd!(sh, "dpkg-query --show {format} {package}").quiet().read()?;
    Ok(Some((library.into(), version)))
}

fn build(sh: &Shell) -> Result<PathBuf> {
    cmd!(sh, "cargo build --release --quiet --package thiscpu-malloc-preload").quiet().run()?;
    let library = cargo::target_directory(sh).join("release/libthiscpu_malloc.so");
    library.canonicalize().with_context(|| format!("cargo has not built {}", library.display()))
}

fn has_malloc(library: &Path) -> Result<bool> {
    let name = || library.display().to_string();
    // Reads the file in parts, because this process must stay small; `results` explains why.
    let data = ReadCache::new(File::open(library).with_context(name)?);
    let file = object::File::parse(&data).with_context(name)?;
    Ok(file.dynamic_symbols().any(|symbol| symbol.is_definition() && symbol.name() == Ok("malloc")))
}
