//! Folded stacks, a line each, and the flame graph of them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::raw::Sample;
use crate::stacks::Stacks;

/// Returns a line for each stack with bytes, outermost function first.
pub(crate) fn lines(stacks: &Stacks<'_>, bytes: impl Fn(&Sample) -> u64) -> String {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for named in &stacks.samples {
        let mut names: Vec<&str> =
            stacks.functions(named).map(|function| &*function.name).collect();
        names.reverse();
        // Semicolons separate the names.
        let names: Vec<String> = names.iter().map(|name| name.replace(';', ":")).collect();
        let stack = if names.is_empty() { "(unknown)".to_owned() } else { names.join(";") };
        let sum = sums.entry(stack).or_default();
        *sum = sum.saturating_add(bytes(named.sample));
    }
    let mut text = String::new();
    for (stack, bytes) in sums.into_iter().filter(|(_, bytes)| *bytes > 0) {
        // A string accepts all text.
        let _ = writeln!(text, "{stack} {bytes}");
    }
    text
}

/// Draws a flame graph.
#[cfg(feature = "svg")]
pub(crate) fn svg(stacks: &Stacks<'_>, bytes: impl Fn(&Sample) -> u64) -> anyhow::Result<Vec<u8>> {
    use anyhow::{Context as _, ensure};
    use inferno::flamegraph::{Options, from_lines};

    let lines = lines(stacks, bytes);
    ensure!(!lines.is_empty(), "there is nothing to draw: no block was sampled");
    let mut options = Options::default();
    options.title = "Heap".to_owned();
    options.count_name = "bytes".to_owned();
    let mut drawing = Vec::new();
    from_lines(&mut options, lines.lines(), &mut drawing).context("cannot draw a flame graph")?;
    Ok(drawing)
}
