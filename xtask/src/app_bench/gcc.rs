//! gcc: compiles a file of some hundred functions. Most of the cost is that of cc1, which it
//! starts.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::Result;
use thiscpu_test_support::random::Random;

use super::measure::Cost;
use super::run::{Parts, Run, Scale};
use crate::tools::Tool;

const GCC: &str = "/usr/bin/gcc";

pub(super) const PARTS: Parts =
    Parts { tools: &[Tool { program: GCC, package: "gcc" }], prepare, run };

const HEAD: &str = "\
struct item { long key; int kind; struct item *next; double weight; };
static long table[256];
";

fn prepare(inputs: &Path, scale: Scale) -> Result<()> {
    let mut random = Random(1);
    let mut source = BufWriter::new(File::create(inputs.join("large.c"))?);
    source.write_all(HEAD.as_bytes())?;
    for number in 0..scale.of(60, 600) {
        function(&mut source, number, &mut random)?;
    }
    Ok(source.flush()?)
}

/// Writes a function that calls an earlier one.
fn function(source: &mut impl Write, number: u32, random: &mut Random) -> Result<()> {
    writeln!(source, "long f{number}(struct item *item, long a, long b)\n{{")?;
    writeln!(source, "    long c = {};", random.below(1_000))?;
    for _ in 0..1 + random.below(2) {
        let (value, other) = (expression(random, 2), expression(random, 2));
        match random.below(5) {
            0 => writeln!(source, "    if ({value} > {other}) c += {other}; else c ^= a;")?,
            1 => writeln!(
                source,
                "    for (long i = 0; i < (b & 31); i++) c += table[i] * {value};"
            )?,
            2 => writeln!(
                source,
                "    while (item && item->key < {other}) {{ c -= {value}; item = item->next; }}"
            )?,
            3 => writeln!(
                source,
                "    switch ({value} & 3) {{ case 0: c++; break; case 1: c *= 3; break; \
                 default: c -= {other}; }}"
            )?,
            _ => writeln!(source, "    table[c & 255] = {value};")?,
        }
    }
    if number > 0 {
        let called = u64::from(number).saturating_sub(1 + random.below(50));
        writeln!(
            source,
            "    if (item) c += f{called}(item->next, c, {});",
            expression(random, 2)
        )?;
    }
    writeln!(source, "    return c;\n}}")?;
    Ok(())
}

fn expression(random: &mut Random, depth: u32) -> String {
    if depth == 0 || random.below(5) == 0 {
        return match random.below(3) {
            0 => format!("{}L", random.below(10_000)),
            _ => random.one_of(&["a", "b", "c"]).to_owned(),
        };
    }
    let operator = random.one_of(&["+", "-", "*", "^", "&", "|"]);
    format!("({} {operator} {})", expression(random, depth - 1), expression(random, depth - 1))
}

fn run(run: &Run) -> Result<Cost> {
    let mut gcc = run.command(GCC)?;
    gcc.args(["-O1", "-c", "-o"]).arg(run.results().join("large.o"));
    // The source comes from standard input, because its path would be part of the result.
    run.measure(gcc.args(["-x", "c", "-"]).stdin(run.input("large.c")?))
}
