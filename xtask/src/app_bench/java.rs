//! Java: compiles a program of many classes, and runs it with one thread and with eight.
//!
//! The virtual machine uses malloc for its compilers, classes and archives, and for direct buffers.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::Result;
use thiscpu_test_support::random::Random;

use super::measure::Cost;
use super::run::{Parts, Run, Scale};
use crate::tools::Tool;

const JAVA: &str = "/usr/bin/java";
const JAVAC: &str = "/usr/bin/javac";

pub(super) const PARTS: Parts = Parts {
    tools: &[
        Tool { program: JAVA, package: "openjdk-17-jdk-headless" },
        Tool { program: JAVAC, package: "openjdk-17-jdk-headless" },
    ],
    prepare,
    run,
};

/// Options of each virtual machine: one thread for collection, and no file in /tmp.
const OPTIONS: [&str; 2] = ["-XX:+UseSerialGC", "-XX:-UsePerfData"];

const SOURCES: [&str; 2] = ["Work.java", "Units.java"];

fn prepare(inputs: &Path, scale: Scale) -> Result<()> {
    fs::write(inputs.join(SOURCES[0]), include_str!("scripts/Work.java"))?;
    let mut random = Random(9);
    let mut units = BufWriter::new(File::create(inputs.join(SOURCES[1]))?);
    let count = scale.of(1, 12);
    writeln!(units, "interface Units {{ int COUNT = {count}; }}")?;
    for number in 0..count {
        unit(&mut units, number, &mut random)?;
    }
    Ok(units.flush()?)
}

/// Writes a class.
fn unit(source: &mut impl Write, number: u32, random: &mut Random) -> Result<()> {
    let (field, method) = (random.word(), random.word());
    let [turns, factor] = [1 + random.below(20), random.below(1_000)];
    let operator = random.one_of(&["^", "+", "|"]);
    Ok(write!(
        source,
        "
final class Unit{number} {{
    private final java.util.Map<String, Long> f_{field} = new java.util.TreeMap<>();

    private long m_{method}(String key, long a) {{
        return f_{field}.merge(key, a, (one, two) -> (one {operator} two) * {factor});
    }}

    long value(long a) {{
        long b = {factor};
        for (int turn = 0; turn < {turns}; turn++) {{
            b = b * 31 + m_{method}(\"{method}\" + (turn & 7), a);
            a = switch ((int) b & 3) {{ case 0 -> a + b; case 1 -> a ^ turn; default -> a - 1; }};
        }}
        return f_{field}.values().stream().mapToLong(it -> it).reduce(b, (x, y) -> x {operator} y);
    }}
}}
"
    )?)
}

fn run(run: &Run) -> Result<Cost> {
    let mut javac = run.command(JAVAC)?;
    javac.args(OPTIONS.map(|option| format!("-J{option}")));
    javac.arg("-d").arg(run.results().join("classes"));
    let mut cost = run.measure(javac.args(SOURCES.map(|source| run.inputs.join(source))))?;
    let threads = match run.scale {
        Scale::Quick => &["8"][..],
        Scale::Full => &["1", "8"],
    };
    for threads in threads {
        let mut java = run.command(JAVA)?;
        java.args(OPTIONS).args(["-Xmx128m", "-cp"]).arg(run.results().join("classes"));
        java.args(["Work", threads, &run.scale.of(50, 800).to_string()]);
        cost = cost + run.measure(&mut java)?;
    }
    Ok(cost)
}
