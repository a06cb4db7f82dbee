//! The copies that C compilers make of the sections in `thiscpu_sections.h`.

use std::path::{Path, PathBuf};

use anyhow::Result;
use xshell::{Shell, cmd};

use crate::tools::{CROSS_GCC, Tool, are_here};

/// A program that uses all of them.
const SOURCE: &str = "crates/thiscpu-capi/tests/capi/programs/inlined.c";
const INCLUDE: &str = "crates/thiscpu-capi/include";

const GCC: Tool = Tool { program: "gcc", package: "gcc" };
const CLANG: Tool = Tool { program: "clang", package: "clang" };

/// Compilers for either architecture, and their options.
const COMPILERS: [(Tool, &[&str]); 4] =
    [(GCC, &[]), (CLANG, &[]), (CROSS_GCC, &[]), (CLANG, &["--target=aarch64-linux-gnu"])];

/// Compiles shared objects with these copies, optimized and unoptimized.
pub(super) fn objects(sh: &Shell) -> Result<Vec<PathBuf>> {
    let directory = sh.current_dir().canonicalize()?.join("target/aborts-in-c");
    sh.create_dir(&directory)?;
    let mut objects = Vec::new();
    for (number, (compiler, options)) in COMPILERS.into_iter().enumerate() {
        if !are_here(sh, "copies in C", &[compiler])? {
            continue;
        }
        for level in ["-O0", "-Os", "-O2"] {
            let object = directory.join(format!("{number}-{}{level}.so", compiler.program));
            compile(sh, compiler, &[options, &[level]].concat(), SOURCE, &object)?;
            objects.push(object);
        }
    }
    Ok(objects)
}

/// Compiles a shared object. Linking it does not need the library.
pub(super) fn compile(
    sh: &Shell,
    Tool { program, .. }: Tool,
    options: &[&str],
    source: &str,
    object: &Path,
) -> Result<()> {
    let flags = "-std=c11 -D_GNU_SOURCE -shared -fPIC -nostdlib".split(' ');
    let compile = cmd!(sh, "{program} {options...} {flags...} -I {INCLUDE} {source} -o {object}");
    Ok(compile.quiet().run()?)
}
