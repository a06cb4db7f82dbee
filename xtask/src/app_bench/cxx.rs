//! g++: compiles a file whose functions instantiate templates of the standard library.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::Result;
use thiscpu_test_support::random::Random;

use super::measure::Cost;
use super::run::{Parts, Run, Scale};
use crate::tools::Tool;

const GXX: &str = "/usr/bin/g++";

pub(super) const PARTS: Parts =
    Parts { tools: &[Tool { program: GXX, package: "g++" }], prepare, run };

const HEAD: &str = "\
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

template <int Depth> struct Chain {
    static long of(long a) { return (a ^ Depth) * 31 + Chain<Depth - 1>::of(a >> 1); }
};
template <> struct Chain<0> {
    static long of(long a) { return a; }
};

long first(const std::map<std::string, long> &rows) {
    return rows.empty() ? Chain<40>::of(1) : rows.begin()->second;
}
";

fn prepare(inputs: &Path, scale: Scale) -> Result<()> {
    let mut random = Random(7);
    let mut source = BufWriter::new(File::create(inputs.join("large.cc"))?);
    source.write_all(HEAD.as_bytes())?;
    for number in 0..scale.of(0, 3) {
        unit(&mut source, number, &mut random)?;
    }
    Ok(source.flush()?)
}

/// Writes a type, and a function that uses containers and algorithms of that type.
fn unit(source: &mut impl Write, number: u32, random: &mut Random) -> Result<()> {
    let (field, other) = (random.word(), random.word());
    let [depth, limit] = [20 + random.below(60), random.below(1_000)];
    let compared = random.one_of(&["<", ">"]);
    Ok(write!(
        source,
        "
struct Item{number} {{
    long f_{field}; std::string s_{other}; std::shared_ptr<Item{number}> next;
    bool operator<(const Item{number} &it) const {{ return f_{field} {compared} it.f_{field}; }}
}};

long f{number}(std::vector<Item{number}> items, long a) {{
    std::map<Item{number}, std::vector<std::string>> rows;
    std::vector<std::function<long(long)>> steps;
    std::variant<long, std::string, Item{number}> found = a;
    for (auto &item : items) {{
        rows[item].push_back(item.s_{other} + std::to_string(a));
        steps.emplace_back([item](long b) {{ return b * item.f_{field} + Chain<{depth}>::of(b); }});
        if (item.f_{field} == {limit}) found = item;
        else if (item.next) found = item.next->s_{other};
    }}
    std::stable_sort(items.begin(), items.end());
    std::sort(items.rbegin(), items.rend(), [](const auto &one, const auto &two) {{
        return one.s_{other} < two.s_{other};
    }});
    for (auto &[item, texts] : rows)
        for (auto &text : texts) a += text.size() ^ item.f_{field};
    for (auto &step : steps) a = step(a);
    return std::visit([a](const auto &it) {{ return long(sizeof it) + a; }}, found);
}}
"
    )?)
}

fn run(run: &Run) -> Result<Cost> {
    let mut gxx = run.command(GXX)?;
    gxx.args(["-std=c++17", "-O1", "-frandom-seed=1", "-c", "-o"]);
    gxx.arg(run.results().join("large.o"));
    // The source comes from standard input, because its path would be part of the result.
    run.measure(gxx.args(["-x", "c++", "-"]).stdin(run.input("large.cc")?))
}
