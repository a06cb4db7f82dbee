//! The table of Rust and C in docs/c.md, compared with both public interfaces.
//!
//! Each public item of the crates, and each function and type of the C headers, is in exactly one
//! row. A row without C says why.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use regex::Regex;
use xshell::Shell;

use super::modules::Crate;

const PAGE: &str = "docs/c.md";
/// The heading above the tables. Below it, each heading names a crate.
const HEADING: &str = "Rust and C";
const CRATES: [&str; 3] = ["thiscpu", "thiscpu-malloc", "thiscpu-metrics"];
const HEADERS: [&str; 3] = [
    "crates/thiscpu-capi/include/thiscpu.h",
    "crates/thiscpu-malloc-preload/include/thiscpu_malloc.h",
    "crates/thiscpu-metrics-capi/include/thiscpu_metrics.h",
];
const CPP_HEADER: &str = "crates/thiscpu-capi/include/thiscpu.hpp";

/// What the tables must name: in Rust each item with its crate, and the names in C.
struct Interfaces {
    rust: BTreeSet<String>,
    c: BTreeSet<String>,
    classes: BTreeSet<String>,
}

/// A row of a table.
#[derive(Debug, Default)]
struct Row {
    line: usize,
    krate: String,
    /// The code in the first two cells.
    rust: Vec<String>,
    c: Vec<String>,
    /// Whether the second cell, and the third, has any text.
    has_c: bool,
    has_reason: bool,
}

pub(super) fn check(sh: &Shell) -> Result<Vec<String>> {
    if !sh.path_exists(PAGE) {
        return Ok(Vec::new());
    }
    let mut rust = BTreeSet::new();
    for krate in CRATES {
        let root = sh.current_dir().join("crates").join(krate).join("src/lib.rs");
        let public = Crate::parse(&root).with_context(|| krate.to_owned())?.public();
        rust.extend(public.iter().map(|path| format!("{path} of {krate}")));
    }
    let mut c = BTreeSet::new();
    for header in HEADERS {
        c.extend(declared(&sh.read_file(Path::new(header))?));
    }
    let classes = captures(r"(?m)^(?:template <[^>]*> )?class (\w+)", &sh.read_file(CPP_HEADER)?);
    let interfaces = Interfaces { rust, c, classes };
    Ok(compare(&sh.read_file(PAGE)?, &interfaces))
}

/// Returns the functions and types that a C header declares.
fn declared(header: &str) -> BTreeSet<String> {
    let functions = captures(r"(?m)^(?:[a-z][^(\n]*\b)?(thiscpu_\w+)\(", header);
    let types = captures(r"(?m)^typedef (?:struct|enum) (?:\w+\(\d+\) )?(thiscpu_\w+)", header);
    let unnamed = captures(r"(?m)^\} (thiscpu_\w+);", header);
    &(&functions | &types) | &unnamed
}

fn captures(pattern: &str, text: &str) -> BTreeSet<String> {
    let pattern = Regex::new(pattern).expect("a valid pattern");
    pattern.captures_iter(text).map(|found| found[1].to_owned()).collect()
}

/// Returns one line for each difference between the tables of a page and the interfaces.
fn compare(page: &str, interfaces: &Interfaces) -> Vec<String> {
    let mut findings = Vec::new();
    let (mut rust, mut c) = (BTreeMap::new(), BTreeMap::new());
    for row in rows(page) {
        let mut find = |finding: String| findings.push(format!("{PAGE}:{}: {finding}", row.line));
        for name in &row.rust {
            let name = format!("{name} of {}", row.krate);
            match interfaces.rust.contains(&name) {
                true => *rust.entry(name).or_insert(0) += 1,
                false => find(format!("`{name}` is not public in Rust")),
            }
        }
        for name in row.c.iter().filter(|name| name.starts_with("thiscpu")) {
            match name.strip_prefix("thiscpu::") {
                Some(class) if interfaces.classes.contains(class) => {}
                None if interfaces.c.contains(name) => *c.entry(name.clone()).or_insert(0) += 1,
                _ => find(format!("no header of C or C++ declares `{name}`")),
            }
        }
        if row.rust.is_empty() && row.c.is_empty() {
            find("the row names nothing".to_owned());
        }
        if !row.has_c && !row.has_reason {
            find("the row has neither C nor a reason".to_owned());
        }
    }
    for (all, counts) in [(&interfaces.rust, &rust), (&interfaces.c, &c)] {
        for name in all {
            match counts.get(name) {
                Some(1) => {}
                Some(count) => findings.push(format!("{PAGE}: {count} rows have `{name}`")),
                None => findings.push(format!("{PAGE}: no row has `{name}`")),
            }
        }
    }
    findings
}

/// Returns the rows of the tables below [`HEADING`], without their heads.
fn rows(page: &str) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    // The texts of the heading before, if it is being read.
    let mut heading: Option<String> = None;
    let (mut is_below, mut krate, mut cell) = (false, String::new(), 0);
    for (event, range) in Parser::new_ext(page, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(level)) => {
                let text = heading.take().unwrap_or_default();
                match level as usize {
                    ..=2 => is_below = text == HEADING,
                    _ => krate = text,
                }
            }
            Event::Text(text) if heading.is_some() => {
                heading.iter_mut().for_each(|heading| heading.push_str(&text));
            }
            Event::Start(Tag::TableRow) if is_below => {
                let line = page[..range.start].lines().count() + 1;
                rows.push(Row { line, krate: krate.clone(), ..Row::default() });
                cell = 0;
            }
            Event::End(TagEnd::TableCell) => cell += 1,
            Event::Text(_) | Event::Code(_) if is_below => {
                let Some(row) = rows.last_mut() else { continue };
                match (cell, event) {
                    (0, Event::Code(name)) => row.rust.push(name.to_string()),
                    (1, Event::Code(name)) => {
                        row.has_c = true;
                        row.c.push(name.to_string());
                    }
                    (1, _) => row.has_c = true,
                    (2, _) => row.has_reason = true,
                    _ => {}
                }
            }
            _ => {}
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares a table with these rows with an interface of two items and two functions.
    fn compared(rows: &[&str]) -> Vec<String> {
        let names = |names: [&str; 2]| names.map(str::to_owned).into();
        let interfaces = Interfaces {
            rust: names(["Counter of thiscpu", "Counter::add of thiscpu"]),
            c: names(["thiscpu_counter", "thiscpu_counter_add"]),
            classes: names(["counter", "word"]),
        };
        let head =
            "## Rust and C\n\n### thiscpu\n\n| Rust | C | not in C, because |\n|---|---|---|";
        let page = format!("{head}\n{}\n\n## Other\n\n| `x` |\n|---|\n| `y` |\n", rows.join("\n"));
        compare(&page, &interfaces)
    }

    const TYPE: &str = "| `Counter` | `thiscpu_counter`, C++: `thiscpu::counter` | |";
    const CALL: &str = "| `Counter::add` | `thiscpu_counter_add` | |";

    #[test]
    fn complete_table_has_no_findings() {
        assert_eq!(compared(&[TYPE, CALL]), Vec::<String>::new());
        let in_other_rows = "| | `thiscpu_counter_add` | only in C |";
        let reason = "| `Counter::add` | | because |";
        assert_eq!(compared(&[TYPE, reason, in_other_rows]), Vec::<String>::new());
    }

    #[test]
    fn differences_are_found_in_both_directions() {
        for (rows, expected) in [
            (&[TYPE][..], "no row has `Counter::add of thiscpu`"),
            (&[TYPE], "no row has `thiscpu_counter_add`"),
            (&[TYPE, CALL, "| `Counter` | x | |"], "2 rows have `Counter of thiscpu`"),
            (&[TYPE, CALL, "| | `thiscpu_counter` | |"], "2 rows have `thiscpu_counter`"),
            (&[TYPE, CALL, "| `Gone` | x | |"], "`Gone of thiscpu` is not public in Rust"),
            (&[TYPE, CALL, "| | `thiscpu_gone` | |"], "declares `thiscpu_gone`"),
            (&[TYPE, CALL, "| | `thiscpu::gone` | |"], "declares `thiscpu::gone`"),
            (&[TYPE, "| `Counter::add` | | |"], "neither C nor a reason"),
            (&[TYPE, CALL, "| x | y | |"], "names nothing"),
        ] {
            let found = compared(rows);
            assert!(found.iter().any(|it| it.contains(expected)), "{expected}: {found:?}");
        }
    }

    #[test]
    fn names_of_headers_are_found() {
        let header = "/** thiscpu_no(). */\n#define THISCPU_ALIGNED(n) thiscpu_no(n)\n\
            typedef struct thiscpu_counter thiscpu_counter;\ntypedef enum thiscpu_status {\n\
            typedef struct THISCPU_ALIGNED(16) thiscpu_halves {\n  int thiscpu_no(void);\n\
            const char *thiscpu_version(void);\n\
            enum thiscpu_status thiscpu_counter_add(struct thiscpu_counter *counter,\n\
            typedef struct {\n  int no;\n} thiscpu_label;\n\
            static inline int\nthiscpu_show(struct thiscpu_counter *counter,\n";
        let expected = [
            "thiscpu_counter",
            "thiscpu_counter_add",
            "thiscpu_halves",
            "thiscpu_label",
            "thiscpu_show",
            "thiscpu_status",
            "thiscpu_version",
        ];
        assert_eq!(declared(header), expected.map(str::to_owned).into());
    }

    #[test]
    fn table_has_every_public_item() {
        let sh = Shell::new().unwrap();
        sh.change_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        assert_eq!(check(&sh).unwrap(), Vec::<String>::new());
    }
}
