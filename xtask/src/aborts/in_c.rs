//! The copies that C compilers make of the sections in `thiscpu_sections.h`.

use std::path::PathBuf;

use anyhow::Result;
use xshell::{Shell, cmd};

use crate::tools::{Tool, are_here};

/// A program that has all of them.
const SOURCE: &str = "crates/thiscpu-capi/tests/capi/programs/inlined.c";
const HEADERS: &str = "crates/thiscpu-capi/include";

/// What compiles it, for this architecture or for the other, and how.
const COMPILERS: [(&str, &str, &[&str]); 4] = [
    ("gcc", "gcc", &[]),
    ("clang", "clang", &[]),
    ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu libc6-dev-arm64-cross", &[]),
    ("clang", "clang", &["--target=aarch64-linux-gnu"]),
];

/// Shared objects with these copies, optimized and not: finished by the linker, which need not find the library for that.
pub(super) fn objects(sh: &Shell) -> Result<Vec<PathBuf>> {
    let here = sh.current_dir().canonicalize()?.join("target/aborts-in-c");
    sh.create_dir(&here)?;
    let mut objects = Vec::new();
    for (number, (program, package, options)) in COMPILERS.into_iter().enumerate() {
        if !are_here(sh, "copies in C", &[Tool { program, package }])? {
            continue;
        }
        for level in ["-O0", "-Os", "-O2"] {
            let object = here.join(format!("{number}-{program}{level}.so"));
            cmd!(sh, "{program} {options...} {level} -std=c11 -D_GNU_SOURCE -shared -fPIC -nostdlib -I {HEADERS} {SOURCE} -o {object}")
                .quiet()
                .run()?;
            objects.push(object);
        }
    }
    Ok(objects)
}
