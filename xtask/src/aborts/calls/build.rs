//! The binaries whose calls are recorded.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use xshell::{Shell, cmd};

use crate::aborts::{self, c_copies};
use crate::arch::Arch;
use crate::tools::{CROSS_GCC, Tool, are_here};
use crate::{cargo, vm};

/// A binary with hot calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binary {
    /// `thiscpu-calls`.
    Rust,
    /// [`SOURCE`], as a shared object.
    C,
    /// The preloaded malloc.
    Malloc,
}

/// The hot calls that C inlines.
const SOURCE: &str = "tools/calls/calls.c";

impl Binary {
    pub(super) const ALL: [Binary; 3] = [Binary::Rust, Binary::C, Binary::Malloc];

    /// Returns how the compiler's entry in the ELF section `.comment` begins.
    pub(super) fn compiler(self) -> &'static str {
        match self {
            Binary::Rust | Binary::Malloc => "rustc version ",
            Binary::C => "GCC: ",
        }
    }

    /// Builds the binary and returns its path; `None` if this machine lacks the compiler.
    pub(super) fn build(self, sh: &Shell, arch: Arch) -> Result<Option<PathBuf>> {
        let is_native = arch == Arch::of_this_machine();
        if arch == Arch::X86_64 && !is_native {
            println!("calls: skipped for {arch}, which only an x86-64 machine compiles");
            return Ok(None);
        }
        let compiler = match is_native {
            true => Tool { program: "gcc", package: "gcc libc6-dev" },
            false => CROSS_GCC,
        };
        if !are_here(sh, &format!("calls on {arch}"), &[compiler])? {
            return Ok(None);
        }
        match self {
            Binary::C => compile(sh, arch, compiler),
            Binary::Rust if is_native => aborts::build(sh, "thiscpu-calls", &["--release"], &[]),
            Binary::Rust => cross_build(sh, arch),
            Binary::Malloc => {
                let package = "thiscpu-malloc-preload";
                cmd!(sh, "cargo build --quiet --release --package {package}").quiet().run()?;
                Ok(cargo::target_directory(sh).join("release/libthiscpu_malloc.so"))
            }
        }
        .map(Some)
    }
}

/// Compiles the calls of C.
fn compile(sh: &Shell, arch: Arch, compiler: Tool) -> Result<PathBuf> {
    let directory = sh.current_dir().canonicalize()?.join("target/calls-in-c");
    sh.create_dir(&directory)?;
    let object = directory.join(format!("{arch}.so"));
    c_copies::compile(sh, compiler, &["-O2"], SOURCE, &object)?;
    Ok(object)
}

/// Builds the calls of Rust with the toolchain's standard library, or else with Debian's.
fn cross_build(sh: &Shell, arch: Arch) -> Result<PathBuf> {
    let target = arch.target();
    let mut flags = format!("-C linker={}", CROSS_GCC.program);
    let mut variables = Vec::new();
    let library = cmd!(sh, "rustc --print target-libdir --target {target}").quiet().read()?;
    if !sh.path_exists(library) {
        flags += &format!(" --sysroot={}", vm::sysroot(sh)?.display());
        variables.push(sh.push_env("RUSTC", vm::SYSROOT_COMPILER));
    }
    variables.push(sh.push_env("RUSTFLAGS", flags));
    let build = "build --quiet --release --package thiscpu-calls".split(' ');
    let build = cmd!(sh, "cargo {build...} --target {target}");
    cargo::executables(build)?.pop().context("cargo has built no program")
}
