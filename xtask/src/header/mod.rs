//! The C headers: that of the functions, made from their words and types, and that of the sections, made from templates.

mod aarch64;
mod sections;
mod x86_64;

pub(crate) use sections::{COUNT as SECTIONS_IN_C, may_be_constant};

use std::path::Path;

use anyhow::{Context, Result, bail};
use cbindgen::{Builder, Config};

const CRATE: &str = "crates/thiscpu-capi";
const HEADER: &str = "include/thiscpu.h";
const SECTIONS_HEADER: &str = "include/thiscpu_sections.h";
/// In the order in which a reader meets them.
const SOURCES: [&str; 9] =
    ["status", "tier", "counter", "budget", "ledger", "cache", "word", "pair", "stack"];

/// Makes the C headers anew.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only looks whether the headers are those that would be made
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<()> {
    for (name, made) in [(HEADER, make(root)?), (SECTIONS_HEADER, sections::make(root)?)] {
        let path = root.join(CRATE).join(name);
        if !arguments.check {
            std::fs::write(&path, made).with_context(|| format!("writing {}", path.display()))?;
            continue;
        }
        if std::fs::read_to_string(&path).unwrap_or_default() != made {
            bail!(
                "{} is not what its sources say; make it anew: cargo xtask header",
                path.display()
            );
        }
    }
    Ok(())
}

fn make(root: &Path) -> Result<String> {
    let here = root.join(CRATE);
    let config = Config::from_file(here.join("cbindgen.toml")).map_err(anyhow::Error::msg)?;
    let builder = Builder::new().with_config(config);
    let source = |name: &&str| here.join("src").join(name).with_extension("rs");
    let builder = SOURCES.iter().map(source).fold(builder, |builder, file| builder.with_src(file));
    let mut made = Vec::new();
    builder.generate().context("the functions for C")?.write(&mut made);
    Ok(String::from_utf8(made)?.replace("@VERSION@", env!("CARGO_PKG_VERSION")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_what_its_sources_say() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        run(root, &Arguments { check: true }).unwrap();
    }

    #[test]
    fn every_source_is_in_it() {
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
