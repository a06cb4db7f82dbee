//! `cargo xtask header`: the C headers.
//!
//! `thiscpu.h` and `thiscpu_metrics.h` are made from the signatures and comments of their
//! functions, and `thiscpu_sections.h` from templates.

mod aarch64;
mod assembly;
mod operands;
mod sections;
mod x86_64;

pub(crate) use sections::{COUNT as SECTIONS_IN_C, maybe_constant};

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use cbindgen::{Builder, Config};

const SECTIONS_HEADER: &str = "crates/thiscpu-capi/include/thiscpu_sections.h";

/// A header that is made from the sources of a crate.
struct Header {
    package: &'static str,
    name: &'static str,
    /// In the order in which a reader meets them.
    sources: &'static [&'static str],
}

const HEADERS: [Header; 2] = [
    Header {
        package: "crates/thiscpu-capi",
        name: "include/thiscpu.h",
        sources: &[
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
            "rate",
            "ledger",
            "cache",
            "constructed",
            "prefill",
            "word",
            "pair",
            "stack",
            "segment",
            "shared_counter",
            "shared_counters",
            "segment_view",
            "shared_budget",
            "shared_lease",
            "shared_acquire",
            "vfork",
        ],
    },
    Header {
        package: "crates/thiscpu-metrics-capi",
        name: "include/thiscpu_metrics.h",
        sources: &[
            "status",
            "last_error",
            "labels",
            "registry",
            "counter",
            "gauge",
            "histogram",
            "removal",
            "show",
            "endpoint",
        ],
    },
];

/// Write the C headers.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only check that the headers are up to date
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<()> {
    let mut all = vec![(PathBuf::from(SECTIONS_HEADER), assembly::make(root)?)];
    for header in &HEADERS {
        all.push((Path::new(header.package).join(header.name), make(root, header)?));
    }
    for (path, made) in all {
        let path = root.join(path);
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

fn make(root: &Path, header: &Header) -> Result<String> {
    let package = root.join(header.package);
    let config = Config::from_file(package.join("cbindgen.toml")).map_err(anyhow::Error::msg)?;
    let builder = Builder::new().with_config(config);
    let source = |name: &&str| package.join("src").join(name).with_extension("rs");
    let builder =
        header.sources.iter().map(source).fold(builder, |builder, file| builder.with_src(file));
    let mut made = Vec::new();
    builder.generate().with_context(|| header.name.to_owned())?.write(&mut made);
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
    fn headers_have_every_source() {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        for header in &HEADERS {
            let sources = std::fs::read_dir(root.join(header.package).join("src")).unwrap();
            let stem = |path: PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
            let names = sources.map(|entry| stem(entry.unwrap().path()));
            let others = ["lib", "ffi", "inline_abi"];
            let mut names: Vec<_> = names.filter(|name| !others.contains(&&**name)).collect();
            names.sort();
            let mut known = header.sources.to_vec();
            known.sort();
            assert_eq!(names, known);
        }
    }
}
