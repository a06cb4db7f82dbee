//! The newest mimalloc, as a library to preload: Debian's is some years old.
//!
//! The source is that of the crate by which the benchmark has it, as its version is there. It is compiled as mimalloc's own
//! build compiles its shared library where nothing is asked for: with those flags, which are for any processor on x86-64, and for
//! such as have atomic instructions (ARMv8.1) on arm64.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use xshell::{Shell, cmd};

/// The library and its version, built if it was not yet.
pub(super) fn build(sh: &Shell) -> Result<(PathBuf, String)> {
    let source = source(sh)?;
    let version = version(&source)?;
    let directory = sh.create_dir("target/peers")?.canonicalize()?;
    let library = directory.join(format!("libmimalloc-{version}-{:016x}.so", digest(&flags())));
    if !library.exists() {
        compile(sh, &source, &library)?;
    }
    Ok((library, version))
}

/// What the compiler is told, but for where things are.
fn flags() -> Vec<&'static str> {
    let optimized = ["-O3", "-DNDEBUG", "-DMI_BUILD_RELEASE"];
    let shared = ["-shared", "-fPIC", "-DMI_SHARED_LIB", "-DMI_SHARED_LIB_EXPORT"];
    let preloaded = ["-DMI_MALLOC_OVERRIDE", "-fno-builtin-malloc", "-fvisibility=hidden"];
    let others = ["-ftls-model=initial-exec", "-w"];
    let processor = cfg!(target_arch = "aarch64").then_some("-march=armv8.1-a");
    [&optimized[..], &shared, &preloaded, &others].concat().into_iter().chain(processor).collect()
}

/// A library that other flags have made has another name.
fn digest(flags: &[&str]) -> u64 {
    let mut hasher = DefaultHasher::new();
    flags.hash(&mut hasher);
    hasher.finish()
}

/// Where cargo has the source, which it downloads if need be.
fn source(sh: &Shell) -> Result<PathBuf> {
    // Looked for by another process: see `results` about why this one has to stay small.
    let find = format!(
        r#"cargo metadata --quiet --format-version 1 --features thiscpu-bench/other-allocators --filter-platform {}-unknown-linux-gnu \
           | grep -o '"manifest_path":"[^"]*/libmimalloc-sys-[^"]*'"#,
        std::env::consts::ARCH
    );
    let found = cmd!(sh, "sh -c {find}").quiet().read();
    let found = found.context("cargo knows of no libmimalloc-sys")?;
    let manifest = found.lines().next().and_then(|line| line.split('"').next_back());
    let manifest = Path::new(manifest.unwrap_or_default());
    let package = manifest.parent().with_context(|| format!("{found} is no path"))?;
    Ok(package.join("c_src/mimalloc/v3"))
}

fn version(source: &Path) -> Result<String> {
    let header = source.join("include/mimalloc.h");
    let text = fs::read_to_string(&header).with_context(|| header.display().to_string())?;
    version_in(&text).with_context(|| format!("{} does not say its version", header.display()))
}

/// The version that a header says: a number with two digits each for what comes after the first.
fn version_in(header: &str) -> Option<String> {
    let after = header.split("#define MI_MALLOC_VERSION").nth(1)?;
    let number: u32 = after.split_whitespace().next()?.parse().ok()?;
    Some(format!("{}.{}.{}", number / 10_000, number / 100 % 100, number % 100))
}

fn compile(sh: &Shell, source: &Path, library: &Path) -> Result<()> {
    let (include, all) = (source.join("include"), source.join("src/static.c"));
    let flags = flags();
    // Under another name until it is whole.
    let partly = library.with_extension("part");
    cmd!(sh, "cc {flags...}")
        .args(["-I".as_ref(), include.as_os_str(), all.as_os_str()])
        .args(["-o".as_ref(), partly.as_os_str(), "-lpthread".as_ref()])
        .quiet()
        .run()
        .with_context(|| format!("cannot compile {}", all.display()))?;
    Ok(fs::rename(partly, library)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_says_its_version() {
        let header = "#pragma once\n#define MI_MALLOC_VERSION 30302   // major + minor + patch\n";
        assert_eq!(version_in(header).as_deref(), Some("3.3.2"));
        assert_eq!(version_in("#define MI_MALLOC_VERSION soon"), None);
        assert_eq!(version_in(""), None);
    }
}
