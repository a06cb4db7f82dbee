//! rustc: compiles a crate of structs, closures and iterators, with several threads of LLVM.
//!
//! Debian's rustc uses the malloc of the C library. That of rustup brings its own allocator, which
//! no preloaded library replaces.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::Result;
use thiscpu_test_support::random::Random;

use super::measure::Cost;
use super::run::{Parts, Run, Scale};
use crate::tools::Tool;

const RUSTC: &str = "/usr/bin/rustc";

pub(super) const PARTS: Parts =
    Parts { tools: &[Tool { program: RUSTC, package: "rustc-web" }], prepare, run };

const HEAD: &str = "\
#![allow(unused)]
use std::collections::BTreeMap;

pub trait Weigh { fn weigh(&self, by: u64) -> u64; }
";

fn prepare(inputs: &Path, scale: Scale) -> Result<()> {
    let mut random = Random(8);
    let mut source = BufWriter::new(File::create(inputs.join("large.rs"))?);
    source.write_all(HEAD.as_bytes())?;
    for number in 0..scale.of(2, 12) {
        unit(&mut source, number, &mut random)?;
    }
    // Its code takes a second, whatever it is used for.
    if scale == Scale::Full {
        tree(&mut source)?;
    }
    Ok(source.flush()?)
}

/// Writes a type, and functions that use iterators, closures and matches on that type.
fn unit(source: &mut impl Write, number: u32, random: &mut Random) -> Result<()> {
    let (field, other) = (random.word(), random.word());
    let [factor, limit] = [1 + random.below(50), random.below(1_000)];
    let operator = random.one_of(&["^", "|", "&"]);
    Ok(write!(
        source,
        "
#[derive(Clone, Debug, PartialEq)]
pub enum Item{number} {{
    One(u64, String),
    Many {{ f_{field}: Vec<u32>, f_{other}: Option<Box<Item{number}>> }},
}}

impl Weigh for Item{number} {{
    fn weigh(&self, by: u64) -> u64 {{
        match self {{
            Item{number}::One({limit}, _) => by,
            Item{number}::One(value, text) => (value {operator} by) + text.len() as u64,
            Item{number}::Many {{ f_{field}: all, f_{other}: None }} => all.len() as u64 * {factor},
            Item{number}::Many {{ f_{field}: all, f_{other}: Some(next) }} => {{
                let some = all.iter().map(|&it| u64::from(it)).filter(|it| it % {factor} != 1);
                some.sum::<u64>() + next.weigh(by + 1)
            }}
        }}
    }}
}}

type Items{number} = Vec<Item{number}>;

pub fn f{number}(items: &mut Items{number}, others: &[Box<dyn Weigh>], by: u64) -> Option<u64> {{
    let weights: Vec<u64> = items.iter().map(|item| item.weigh(by)).collect();
    let least = weights.iter().copied().filter(|&it| it > {limit}).min()?;
    items.retain(|item| item.weigh(least) % {factor} == 0);
    let first = items.first().cloned();
    items.extend(first);
    others.iter().zip(&weights).map(|(other, &weight)| other.weigh(weight)).max()
}}
"
    )?)
}

fn tree(source: &mut impl Write) -> Result<()> {
    let text = "
pub fn table(items: &[Item0]) -> BTreeMap<String, Vec<u64>> {
    let mut rows = BTreeMap::new();
    for (place, item) in items.iter().enumerate() {
        let row: &mut Vec<u64> = rows.entry(format!(\"{item:?}\")).or_default();
        row.push(item.weigh(place as u64));
    }
    rows
}
";
    Ok(source.write_all(text.as_bytes())?)
}

fn run(run: &Run) -> Result<Cost> {
    let mut rustc = run.command(RUSTC)?;
    rustc.args(["--edition=2021", "--crate-type=lib", "--crate-name=large", "-O"]);
    rustc.args(["-Ccodegen-units=8", "-o"]).arg(run.results().join("liblarge.rlib"));
    // The working directory would be part of the result.
    rustc.arg(format!("--remap-path-prefix={}=run", run.directory.display()));
    run.measure(rustc.arg("-").stdin(run.input("large.rs")?))
}
