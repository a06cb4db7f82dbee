//! The binaries whose calls are recorded.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use xshell::{Shell, cmd};

use crate::arch::Arch;
use crate::tools::{self, Tool};
use crate::{aborts, cargo, vm};

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

const CROSS_COMPILER: Tool = Tool {
    program: "aarch64-linux-gnu-gcc",
    package: "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
};

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
            false => CROSS_COMPILER,
        };
        if !tools::are_here(sh, &format!("calls on {arch}"), &[compiler])? {
            return Ok(None);
        }
        match self {
            Binary::C => compile(sh, arch, compiler.program),
            Binary::Rust if is_native => aborts::build(sh, "thiscpu-calls", &["--release"], &[]),
            Binary::Rust => cross_build(sh, arch, compiler.program),
            Binary::Malloc => {
                let package = "thiscpu-malloc-preload";
                cmd!(sh, "cargo build --quiet --release --package {package}").quiet().run()?;
                Ok(cargo::target_directory(sh).join("release/libthiscpu_malloc.so"))
            }
        }
        .map(Some)
    }
}

/// Compiles the calls of C. Linking them does not need the library.
fn compile(sh: &Shell, arch: Arch, compiler: &str) -> Result<PathBuf> {
    let directory = sh.current_dir().canonicalize()?.join("target/calls-in-c");
    sh.create_dir(&directory)?;
    let object = directory.join(format!("{arch}.so"));
    let include = "crates/thiscpu-capi/include";
    let flags = "-std=c11 -D_GNU_SOURCE -O2 -shared -fPIC -nostdlib".split(' ');
    cmd!(sh, "{compiler} {flags...} -I {include} {SOURCE} -o {object}").quiet().run()?;
    Ok(object)
}

/// Builds the calls of Rust with the toolchain's standard library, or else with Debian's.
fn cross_build(sh: &Shell, arch: Arch, linker: &str) -> Result<PathBuf> {
    let target = arch.target();
    let mut flags = format!("-C linker={linker}");
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
