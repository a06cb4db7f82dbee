//! `cargo xtask header`: the C headers.
//!
//! `thiscpu.h` is made from the signatures and comments of its functions, and `thiscpu_sections.h`
//! from templates.

mod aarch64;
mod assembly;
mod operands;
mod sections;
mod x86_64;

pub(crate) use sections::{COUNT as SECTIONS_IN_C, maybe_constant};

use std::path::Path;

use anyhow::{Context, Result, ensure};
use cbindgen::{Builder, Config};

const CRATE: &str = "crates/thiscpu-capi";
const HEADER: &str = "include/thiscpu.h";
const SECTIONS_HEADER: &str = "include/thiscpu_sections.h";
/// In the order in which a reader meets them.
const SOURCES: [&str; 16] = [
    "status",
    "last_error",
    "tier",
    "degradation",
    "counter",
    "counters",
    "sum_all",
    "budget",
    "lease",
    "acquire",
    "reserve",
    "ledger",
    "cache",
    "word",
    "pair",
    "stack",
    "vfork",
];

/// Write the C headers.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only check that the headers are up to date
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<()> {
    for (name, made) in [(HEADER, make(root)?), (SECTIONS_HEADER, assembly::make(root)?)] {
        let path = root.join(CRATE).join(name);
        if !arguments.check {
            std::fs::write(&path, made).with_context(|| format!("writing {}", path.display()))?;
            continue;
        }
        ensure!(
            std::fs::read_to_string(&path).unwrap_or_default() == made,
            "{} differs from its sources; run `cargo xtask header`",
            path.display()
        );
    }
    Ok(())
}

fn make(root: &Path) -> Result<String> {
    let package = root.join(CRATE);
    let config = Config::from_file(package.join("cbindgen.toml")).map_err(anyhow::Error::msg)?;
    let builder = Builder::new().with_config(config);
    let source = |name: &&str| package.join("src").join(name).with_extension("rs");
    let builder = SOURCES.iter().map(source).fold(builder, |builder, file| builder.with_src(file));
    let mut made = Vec::new();
    builder.generate().context("generating thiscpu.h")?.write(&mut made);
    Ok(String::from_utf8(made)?.replace("@VERSION@", env!("CARGO_PKG_VERSION")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_up_to_date() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        run(root, &Arguments { check: true }).unwrap();
    }

    #[test]
    fn header_has_every_source() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let sources = std::fs::read_dir(root.join(CRATE).join("src")).unwrap();
        let mut names: Vec<_> = sources
            .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
            .filter(|name| !["lib", "ffi", "inline_abi"].contains(&name.as_str()))
            .collect();
        names.sort();
        let mut known = SOURCES;
        known.sort();
        assert_eq!(names, known);
    }
}
