//! The copies that C compilers make of the sections in `thiscpu_sections.h`.

use std::path::PathBuf;

use anyhow::Result;
use xshell::{Shell, cmd};

use crate::tools::{Tool, are_here};

/// A program that uses all of them.
const SOURCE: &str = "crates/thiscpu-capi/tests/capi/programs/inlined.c";
const INCLUDE: &str = "crates/thiscpu-capi/include";

/// Compilers for either architecture, their packages, and their options.
const COMPILERS: [(&str, &str, &[&str]); 4] = [
    ("gcc", "gcc", &[]),
    ("clang", "clang", &[]),
    ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu libc6-dev-arm64-cross", &[]),
    ("clang", "clang", &["--target=aarch64-linux-gnu"]),
];

/// Compiles shared objects with these copies, optimized and unoptimized.
///
/// Linking them does not need the library.
pub(super) fn objects(sh: &Shell) -> Result<Vec<PathBuf>> {
    let directory = sh.current_dir().canonicalize()?.join("target/aborts-in-c");
    sh.create_dir(&directory)?;
    let mut objects = Vec::new();
    for (number, (program, package, options)) in COMPILERS.into_iter().enumerate() {
        if !are_here(sh, "copies in C", &[Tool { program, package }])? {
            continue;
        }
        for level in ["-O0", "-Os", "-O2"] {
            let object = directory.join(format!("{number}-{program}{level}.so"));
            let flags = "-std=c11 -D_GNU_SOURCE -shared -fPIC -nostdlib".split(' ');
            cmd!(sh, "{program} {options...} {level} {flags...} -I {INCLUDE} {SOURCE} -o {object}")
                .quiet()
                .run()?;
            objects.push(object);
        }
    }
    Ok(objects)
}
