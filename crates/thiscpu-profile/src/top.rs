//! The functions that allocate most.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;

use crate::raw::Sample;
use crate::stacks::Stacks;

/// Returns a table of the `count` functions that allocated most bytes themselves.
pub(crate) fn list(stacks: &Stacks<'_>, bytes: impl Fn(&Sample) -> u64, count: usize) -> String {
    // For each function, the bytes of itself, and of itself and the functions that it calls.
    let mut sums: HashMap<&str, [u64; 2]> = HashMap::new();
    let mut total: u64 = 0;
    let add = |sum: &mut u64, bytes: u64| *sum = sum.saturating_add(bytes);
    for named in &stacks.samples {
        let bytes = bytes(named.sample);
        add(&mut total, bytes);
        let mut names = stacks.functions(named).map(|function| &*function.name).peekable();
        add(&mut sums.entry(names.peek().unwrap_or(&"(unknown)")).or_default()[0], bytes);
        // A recursive function counts once.
        for name in names.collect::<BTreeSet<_>>() {
            add(&mut sums.entry(name).or_default()[1], bytes);
        }
    }
    let mut rows: Vec<_> = sums.into_iter().collect();
    rows.sort_unstable_by_key(|&(name, [own, all])| (u64::MAX - own, u64::MAX - all, name));
    let mut text = format!("{:>15} {:>7} {:>15} {:>7}\n", "bytes", "", "with callees", "");
    let percent = |part: u64| format!("{:.1} %", 100.0 * part as f64 / total.max(1) as f64);
    for (name, [own, all]) in rows.into_iter().take(count) {
        let (own_share, all_share) = (percent(own), percent(all));
        // A string accepts all text.
        let _ = writeln!(text, "{own:>15} {own_share:>7} {all:>15} {all_share:>7}  {name}");
    }
    let _ = writeln!(text, "{total:>15} bytes in all");
    text
}
