//! xz: compresses some megabytes of text with two threads, and decompresses them.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use anyhow::Result;
use thiscpu_test_support::random::Random;

use super::measure::Cost;
use super::run::{Parts, Run, Scale};
use crate::tools::Tool;

const XZ: &str = "/usr/bin/xz";

pub(super) const PARTS: Parts =
    Parts { tools: &[Tool { program: XZ, package: "xz-utils" }], prepare, run };

/// Writes text of repeated words, with numbers between them that are not repeated.
fn prepare(inputs: &Path, scale: Scale) -> Result<()> {
    let mut random = Random(3);
    let words: Vec<String> = (0..2_000).map(|_| random.word()).collect();
    let mut text = BufWriter::new(File::create(inputs.join("text"))?);
    for line in 0..scale.of(4_000, 100_000) {
        write!(text, "{line} {}", random.below(1 << 40))?;
        for _ in 0..random.below(12) {
            // Small numbers are more frequent, as some words are in a language.
            let place = random.below(2_000) * random.below(2_000) / 2_000;
            write!(text, " {}", words[place as usize])?;
        }
        writeln!(text)?;
    }
    Ok(text.into_inner()?.sync_data()?)
}

/// Runs xz. Blocks are small enough for both threads to have some.
fn run(run: &Run) -> Result<Cost> {
    let mut compress = run.command(XZ)?;
    compress.args(["-T2", "-3", "--block-size=1MiB", "--stdout"]);
    let packed = File::create(run.results().join("text.xz"))?;
    let compressed = run.measure(compress.stdin(run.input("text")?).stdout(packed))?;
    let mut decompress = run.command(XZ)?;
    decompress.args(["-T2", "--decompress", "--stdout"]).arg(run.results().join("text.xz"));
    Ok(compressed + run.measure(&mut decompress)?)
}
