//! The programs that run in guests. They are linked statically, because a guest has no libraries.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use xshell::{Shell, cmd};

use super::apt::Apt;
use crate::arch::Arch;
use crate::cargo;
use crate::tools::CROSS_GCC;

/// Cargo's arguments.
const PROGRAMS: [&[&str]; 4] = [
    &["test", "--no-run", "--profile", "vm", "--package", "thiscpu", "--test", "guarantees"],
    &["build", "--profile", "vm", "--package", "thiscpu-cli"],
    &["build", "--profile", "vm", "--package", "thiscpu-torture"],
    // Other profiles leave copies of sections that are never called.
    &["build", "--release", "--package", "thiscpu-aborts", "--features", "c"],
];

/// Debian's compiler, which Debian's standard library needs.
pub(crate) const SYSROOT_COMPILER: &str = "/usr/bin/rustc";

/// Builds the programs and returns their paths, whose file names may end with a hash.
pub(crate) fn build(sh: &Shell, apt: &Apt, arch: Arch) -> Result<Vec<PathBuf>> {
    ensure!(
        cfg!(target_arch = "x86_64"),
        "vm needs an x86-64 machine to build the programs of guests"
    );
    let mut flags = "-C target-feature=+crt-static".to_owned();
    let mut variables = Vec::new();
    if arch == Arch::Aarch64 {
        let sysroot = sysroot(sh, apt)?;
        let linker = CROSS_GCC.program;
        flags += &format!(" -C linker={linker} --sysroot={}", sysroot.display());
        variables.push(sh.push_env("RUSTC", SYSROOT_COMPILER));
    }
    // With --target, cargo does not use the flags for build scripts.
    variables.push(sh.push_env("RUSTFLAGS", flags));
    variables.push(sh.push_env("CARGO_TARGET_DIR", format!("target/vm/build-{arch}")));
    eprintln!("building programs for {arch}");
    let mut programs = Vec::new();
    for wanted in PROGRAMS {
        let target = arch.target();
        programs
            .extend(cargo::executables(cmd!(sh, "cargo {wanted...} --quiet --target {target}"))?);
    }
    Ok(programs)
}

/// Returns the sysroot with Debian's standard library for arm64.
pub(super) fn sysroot(sh: &Shell, apt: &Apt) -> Result<PathBuf> {
    const PACKAGE: &str = "libstd-rust-web-dev";
    let format = "${Version}";
    let version = cmd!(sh, "dpkg-query --show --showformat {format} {PACKAGE}").quiet().read()?;
    let unpacked = apt.package(PACKAGE, Arch::Aarch64, Some(&version))?;
    let libraries = unpacked.join("usr/lib/rustlib");
    ensure!(
        sh.path_exists(libraries.join(Arch::Aarch64.target())),
        "{PACKAGE} {version} has no library in {}",
        libraries.display()
    );
    let link = sh.create_dir(unpacked.join("sysroot/lib"))?.join("rustlib");
    if !link.exists() {
        std::os::unix::fs::symlink(libraries, link).context("linking the standard library")?;
    }
    Ok(unpacked.join("sysroot"))
}
