//! The C header, made from the words and types of the functions that it declares.

use std::path::Path;

use anyhow::{Context, Result, bail};
use cbindgen::{Builder, Config};

const CRATE: &str = "crates/thiscpu-capi";
const HEADER: &str = "include/thiscpu.h";
/// In the order in which a reader meets them.
const SOURCES: [&str; 9] =
    ["status", "tier", "counter", "budget", "ledger", "cache", "words", "pairs", "lists"];

/// Makes the C header anew.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only looks whether the header is the one that would be made
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<()> {
    let path = root.join(CRATE).join(HEADER);
    let made = make(root)?;
    if !arguments.check {
        return std::fs::write(&path, made).with_context(|| format!("writing {}", path.display()));
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    if there != made {
        bail!("{} is not what its sources say; make it anew: cargo xtask header", path.display());
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
            .filter(|name| !["lib", "border"].contains(&name.as_str()))
            .collect();
        names.sort();
        let mut known = SOURCES;
        known.sort();
        assert_eq!(names, known);
    }
}
