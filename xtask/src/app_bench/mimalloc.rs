//! The newest mimalloc as a library to preload; Debian's is some years old.
//!
//! The source is in the crate that the benchmark uses. It is compiled with the default flags of
//! mimalloc's own build of its shared library: for any x86-64 processor, and for arm64 processors
//! with atomic instructions (ARMv8.1).

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use xshell::{Shell, cmd};

/// Returns the library and its version; builds it unless it exists.
pub(super) fn build(sh: &Shell) -> Result<(PathBuf, String)> {
    let source = source(sh)?;
    let version = version(&source)?;
    let directory = sh.create_dir("target/peers")?.canonicalize()?;
    // The library's name changes with the flags.
    let mut digest = DefaultHasher::new();
    flags().hash(&mut digest);
    let name = format!("libmimalloc-{version}-{:016x}.so", digest.finish());
    let library = directory.join(name);
    if !library.exists() {
        compile(sh, &source, &library)?;
    }
    Ok((library, version))
}

/// Returns the compiler's flags, without paths.
fn flags() -> Vec<&'static str> {
    let optimized = ["-O3", "-DNDEBUG", "-DMI_BUILD_RELEASE"];
    let shared = ["-shared", "-fPIC", "-DMI_SHARED_LIB", "-DMI_SHARED_LIB_EXPORT"];
    let preloaded = ["-DMI_MALLOC_OVERRIDE", "-fno-builtin-malloc", "-fvisibility=hidden"];
    let others = ["-ftls-model=initial-exec", "-w"];
    let processor = cfg!(target_arch = "aarch64").then_some("-march=armv8.1-a");
    [&optimized[..], &shared, &preloaded, &others].concat().into_iter().chain(processor).collect()
}

/// Returns the directory of the source, which cargo downloads if necessary.
fn source(sh: &Shell) -> Result<PathBuf> {
    // Another process searches, because this one must stay small; `results` explains why.
    let metadata =
        "cargo metadata --quiet --format-version 1 --features thiscpu-bench/other-allocators";
    let find = format!(
        r#"{metadata} --filter-platform {}-unknown-linux-gnu \
           | grep -o '"manifest_path":"[^"]*/libmimalloc-sys-[^"]*'"#,
        std::env::consts::ARCH
    );
    let found = cmd!(sh, "sh -c {find}").quiet().read();
    let found = found.context("cargo metadata has no libmimalloc-sys")?;
    let manifest = found.lines().next().and_then(|line| line.split('"').next_back());
    let manifest = Path::new(manifest.unwrap_or_default());
    let package = manifest.parent().with_context(|| format!("not a path: {found}"))?;
    Ok(package.join("c_src/mimalloc/v3"))
}

fn version(source: &Path) -> Result<String> {
    let header = source.join("include/mimalloc.h");
    let text = fs::read_to_string(&header).with_context(|| header.display().to_string())?;
    version_in(&text).with_context(|| format!("{} defines no MI_MALLOC_VERSION", header.display()))
}

/// Returns the version in a header.
///
/// It is a number with two digits each for the minor version and the patch.
fn version_in(header: &str) -> Option<String> {
    let after = header.split("#define MI_MALLOC_VERSION").nth(1)?;
    let number: u32 = after.split_whitespace().next()?.parse().ok()?;
    Some(format!("{}.{}.{}", number / 10_000, number / 100 % 100, number % 100))
}

fn compile(sh: &Shell, source: &Path, library: &Path) -> Result<()> {
    let (include, all) = (source.join("include"), source.join("src/static.c"));
    let flags = flags();
    // It gets its name when it is complete.
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
    fn version_is_read_from_the_header() {
        let header = "#pragma once\n#define MI_MALLOC_VERSION 30302   // major + minor + patch\n";
        assert_eq!(version_in(header).as_deref(), Some("3.3.2"));
        assert_eq!(version_in("#define MI_MALLOC_VERSION soon"), None);
        assert_eq!(version_in(""), None);
    }
}
