//! The page of `bench --report` in a browser: on a screen and a telephone, light, dark and printed.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    process::{Command, Stdio},
    sync::OnceLock,
};

use serde_json::Value;
use thiscpu_test_support::has;

use crate::browser::{Medium, Page, url};

mod browser;

const SCREENS: [Medium; 4] = [
    Medium::screen(360, false),
    Medium::screen(360, true),
    Medium::screen(1280, false),
    Medium::screen(1280, true),
];

/// Returns a report with many cases, made once for all tests of this file.
fn report() -> PathBuf {
    static REPORT: OnceLock<PathBuf> = OnceLock::new();
    let make = || {
        let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("report");
        let _ = std::fs::remove_dir_all(&directory);
        let output = Command::new(env!("CARGO_BIN_EXE_thiscpu-bench"))
            .args(["bench", "add", "commit", "sum", "memory", "budget", "alloc"])
            .args(["--seconds", "0.01", "--rounds", "2", "--report"])
            .arg(&directory)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        directory
    };
    REPORT.get_or_init(make).clone()
}

/// Opens a file of the report, if there is a browser.
fn open(name: &str, medium: Medium) -> Option<Page> {
    has("chromium", "chromium").then(|| Page::open(&report().join(name), medium))
}

fn results() -> Value {
    let text = std::fs::read_to_string(report().join("results.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Opens the whole page on a wide screen, if there is a browser, and returns what it shows.
fn seen_page() -> Option<Value> {
    open("index.html", SCREENS[2]).map(|page| page.look())
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

/// Returns the left, right, top and bottom of a box.
fn sides(edges: &Value) -> [f64; 4] {
    ["left", "right", "top", "bottom"].map(|key| number(&edges[key]))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// Asserts that nothing is wider than the page, and that all text is readable.
fn assert_readable(seen: &Value, medium: Medium) {
    assert_eq!(number(&seen["width"]), f64::from(medium.width), "{medium:?}");
    assert!(number(&seen["widthWanted"]) <= number(&seen["width"]), "{medium:?}: too wide");
    assert!(list(&seen["texts"]).len() > 5, "{medium:?}");
    for line in list(&seen["texts"]) {
        assert!(number(&line["contrast"]) >= 4.5, "{medium:?}: {line}");
        // On paper, text of 7 points is readable, which is 9.3 px.
        assert!(number(&line["size"]) >= 9.0, "{medium:?}: {line}");
    }
    for plot in list(&seen["plots"]) {
        let (id, edges) = (&plot["id"], &plot["box"]);
        let [left, right, top, bottom] = sides(edges);
        assert!(bottom - top > 50.0 && right - left > 250.0, "{medium:?}: {id}");
        assert!(left >= 0.0 && right <= f64::from(medium.width), "{medium:?}: {id}");
        assert_labels_apart(plot, medium);
        let marks = ["markers", "columns", "labels"].map(|kind| list(&plot[kind]));
        for mark in marks.into_iter().flatten() {
            // Labels count with their boxes, since all of a text must be visible.
            let own = match &mark["box"] {
                Value::Null => ["x", "x", "y", "y"].map(|key| number(&mark[key])),
                edges => sides(edges),
            };
            let is_inside =
                own[0] >= left && own[1] <= right + 0.5 && own[2] >= top && own[3] <= bottom + 0.5;
            assert!(is_inside, "{medium:?}: {id}: {mark} is outside");
        }
    }
}

fn assert_labels_apart(plot: &Value, medium: Medium) {
    let labels = list(&plot["labels"]);
    for (index, one) in labels.iter().enumerate() {
        for other in &labels[..index] {
            let (own, others) = (sides(&one["box"]), sides(&other["box"]));
            let is_apart = [(0, 1), (2, 3)].iter().any(|&(least, most)| {
                own[most] <= others[least] + 1.0 || others[most] <= own[least] + 1.0
            });
            assert!(is_apart, "{medium:?}: {}: {} over {}", plot["id"], one["text"], other["text"]);
        }
    }
}

#[test]
fn page_is_readable_on_screens_and_loads_nothing() {
    let file = report().join("index.html");
    let Some(page) = open("index.html", SCREENS[0]) else { return };
    for medium in SCREENS {
        page.show(medium);
        let seen = page.look();
        assert_readable(&seen, medium);
        let is_dark = list(&seen["ground"]).iter().all(|channel| number(channel) < 64.0);
        assert_eq!(is_dark, medium.is_dark, "{medium:?}: {}", seen["ground"]);
        assert_eq!(list(&seen["resources"]), [Value::Null; 0], "{medium:?}");
    }
    let (requests, complaints) = page.events();
    assert_eq!(requests, [url(&file)]);
    assert_eq!(complaints, [""; 0]);
}

#[test]
fn page_is_readable_on_paper() {
    let Some(page) = open("index.html", Medium::PAPER) else { return };
    let seen = page.look();
    assert_readable(&seen, Medium::PAPER);
    assert!(list(&seen["ground"]).iter().all(|channel| number(channel) == 255.0), "not white");
    for table in list(&seen["tables"]) {
        // Paper cannot be scrolled.
        assert!(number(&table["box"]["right"]) <= number(&seen["width"]), "{}", table["caption"]);
    }
    let document = page.print();
    assert!(document.starts_with(b"%PDF") && document.len() > 50_000, "{} bytes", document.len());
}

#[test]
fn page_begins_with_a_summary_and_its_plots_fill_the_width() {
    let Some(page) = open("index.html", SCREENS[2]) else { return };
    for medium in [SCREENS[0], SCREENS[2]] {
        page.show(medium);
        let seen = page.look();
        let summary = text(&seen["summary"]);
        assert!(summary.starts_with("In "), "{summary}");
        let headline = "comparisons, a design of thiscpu has the smallest median. Measured";
        assert!(summary.contains(headline), "{summary}");
        let content = number(&seen["content"]["width"]);
        let mut rows: BTreeMap<i64, f64> = BTreeMap::new();
        for plot in list(&seen["plots"]) {
            let row = rows.entry(number(&plot["box"]["top"]) as i64).or_default();
            *row += number(&plot["box"]["width"]);
        }
        // The last row of a workload may be half full.
        let full = rows.values().filter(|&&width| width >= 0.8 * content).count();
        assert!(3 * full >= 2 * rows.len(), "{medium:?}: {content}: {rows:?}");
        assert!(rows.values().all(|&width| width >= 0.45 * content), "{medium:?}: {rows:?}");
    }
}

#[test]
fn tables_hint_at_scrolling_only_where_cut() {
    let Some(page) = open("index.html", SCREENS[0]) else { return };
    for medium in [SCREENS[0], SCREENS[2], Medium::PAPER] {
        page.show(medium);
        let seen = page.look();
        let mut cut = 0;
        for table in list(&seen["tables"]) {
            let is_cut = table["isCut"] == true && !medium.is_print;
            cut += usize::from(is_cut);
            let has_hint = text(&table["hint"]).contains("scroll sideways");
            assert_eq!(has_hint, is_cut, "{medium:?}: {table}");
        }
        assert_eq!(cut > 0, medium.width == 360, "{medium:?}");
    }
}

#[test]
fn page_has_all_figures() {
    let Some(seen) = seen_page() else { return };
    let results = results();
    assert_eq!(list(&seen["brokenLinks"]), [Value::Null; 0]);
    let sections: Vec<&str> = list(&seen["sections"]).iter().map(text).collect();
    let workloads = ["add", "commit", "sum", "memory", "budget", "alloc"];
    let expected = [&["Machine", "How to repeat it"], &workloads[..], &["Contenders"]].concat();
    assert_eq!(sections, expected);
    let figures: BTreeSet<String> = list(&seen["plots"])
        .iter()
        .map(|plot| format!("{}.svg", text(&plot["id"]).trim_start_matches("plot-")))
        .collect();
    let files = std::fs::read_dir(report()).unwrap().map(|entry| entry.unwrap().file_name());
    let files = files.map(|name| name.into_string().unwrap());
    assert_eq!(figures, files.filter(|name| name.ends_with(".svg")).collect());
    assert_eq!(figures.len(), 40);

    // There is a table for each case and number of threads, with a row for each contender.
    let mut contenders: BTreeMap<(&str, &str, u64), BTreeSet<&str>> = BTreeMap::new();
    for row in list(&results["rows"]) {
        let key = (text(&row["workload"]), text(&row["case"]), row["threads"].as_u64().unwrap());
        contenders.entry(key).or_default().insert(text(&row["contender"]));
    }
    for ((workload, case, threads), names) in &contenders {
        let space = if case.is_empty() { "" } else { " " };
        let plural = if *threads == 1 { "" } else { "s" };
        let caption = format!("{workload}{space}{case}, {threads} thread{plural}");
        let is_it = |table: &&Value| table["caption"] == caption;
        let table = list(&seen["tables"]).iter().find(is_it).unwrap_or_else(|| panic!("{caption}"));
        let shown = list(&table["rows"])[1..].iter().map(|row| text(&row[0])).collect();
        assert_eq!(*names, shown, "{caption}");
    }
    // Alloc has two more.
    assert_eq!(list(&seen["tables"]).len(), contenders.len() + 2);
}

/// Returns the medians that a plot shows: by threads, each contender with its median.
fn medians(results: &Value, workload: &str, case: &str) -> BTreeMap<u64, Vec<(String, f64)>> {
    let metric = match (workload, case) {
        ("sum", "token") => "time_per_sum",
        ("sum", _) => "adders_slowdown",
        ("memory", "accounts") => "resident_bytes_per_account",
        ("memory", _) => "resident_bytes_per_counter",
        ("alloc", "resident-64") => "resident_bytes",
        _ => "time_per_op",
    };
    let mut medians: BTreeMap<u64, Vec<(String, f64)>> = BTreeMap::new();
    let is_own = |row: &&Value| {
        row["workload"] == workload && row["case"] == case && row["metric"] == metric
    };
    for row in list(&results["rows"]).iter().filter(is_own) {
        let median = (text(&row["contender"]).to_owned(), number(&row["median"]));
        medians.entry(row["threads"].as_u64().unwrap()).or_default().push(median);
    }
    medians
}

#[test]
fn points_are_at_their_figures() {
    let Some(seen) = seen_page() else { return };
    let results = results();
    let cases: BTreeSet<(&str, &str)> = list(&results["rows"])
        .iter()
        .map(|row| (text(&row["workload"]), text(&row["case"])))
        .collect();
    for (workload, case) in cases {
        let id = format!("plot-{workload}{}{case}", if case.is_empty() { "" } else { "-" });
        let plot = list(&seen["plots"]).iter().find(|plot| plot["id"] == id).unwrap();
        let medians = medians(&results, workload, case);
        if medians.len() == 1 {
            assert_ranks(plot, medians.into_values().next().unwrap());
        } else {
            assert_lines(plot, &medians);
        }
    }
}

fn place(mark: &Value) -> (f64, f64) {
    (number(&mark["x"]), number(&mark["y"]))
}

/// Asserts that a plot ranks contenders by their medians.
///
/// Each has a row with its name, a point and a line for the spread.
fn assert_ranks(plot: &Value, mut medians: Vec<(String, f64)>) {
    let id = &plot["id"];
    let markers = list(&plot["markers"]);
    assert_eq!(markers.len(), medians.len(), "{id}");
    assert_eq!(number(&plot["lines"]) as usize, medians.len(), "{id}");
    medians.sort_by(|one, other| one.1.total_cmp(&other.1));
    let labels = list(&plot["labels"]);
    for pair in markers.windows(2) {
        let (above, below) = (place(&pair[0]), place(&pair[1]));
        assert!(above.1 < below.1 && above.0 <= below.0 + 0.25, "{id}: {pair:?}");
    }
    for (marker, (_, median)) in markers.iter().zip(&medians) {
        let is_beside = |label: &&Value| {
            (place(label).1 - place(marker).1).abs() < 4.0 && label["text"].as_str().is_some()
        };
        let beside: Vec<&str> =
            labels.iter().filter(is_beside).map(|label| text(&label["text"])).collect();
        let of_median = medians.iter().filter(|other| other.1 == *median);
        let is_named = of_median.into_iter().any(|(name, _)| beside.contains(&name.as_str()));
        assert!(is_named, "{id}: {median} beside {beside:?}");
    }
}

/// Asserts that a plot has a line for each contender.
///
/// It has a point for each number of threads, and one beside its name. Points with equal threads
/// are in the order of their medians.
fn assert_lines(plot: &Value, medians: &BTreeMap<u64, Vec<(String, f64)>>) {
    let id = &plot["id"];
    let names: BTreeSet<&str> = medians.values().flatten().map(|(name, _)| name.as_str()).collect();
    let points: usize = medians.values().map(Vec::len).sum();
    assert_eq!(list(&plot["markers"]).len(), points + names.len(), "{id}");
    // A line for each contender, and one for each spread.
    assert_eq!(number(&plot["lines"]) as usize, points + names.len(), "{id}");
    let mut by_fill: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for marker in list(&plot["markers"]) {
        by_fill.entry(text(&marker["fill"])).or_default().push(place(marker));
    }
    let mut heights: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for places in by_fill.values_mut() {
        places.sort_by(|one, other| one.0.total_cmp(&other.0));
        let (beside, points) = places.split_last().unwrap();
        let distance = |label: &Value| (place(label).1 - beside.1).abs();
        let is_name = |label: &&Value| names.contains(text(&label["text"]));
        let nearest = list(&plot["labels"])
            .iter()
            .filter(is_name)
            .min_by(|one, other| distance(one).total_cmp(&distance(other)))
            .unwrap();
        heights.insert(text(&nearest["text"]), points.iter().map(|place| place.1).collect());
    }
    assert_eq!(heights.keys().copied().collect::<BTreeSet<_>>(), names, "{id}");
    for (index, figures) in medians.values().enumerate() {
        for one in figures {
            for other in figures.iter().filter(|other| other.1 > one.1) {
                let (lower, upper) =
                    (heights[one.0.as_str()][index], heights[other.0.as_str()][index]);
                assert!(upper <= lower + 0.25, "{id}: {one:?} is above {other:?}");
            }
        }
    }
}

#[test]
fn deviations_are_columns_and_exact_designs_have_one() {
    let Some(seen) = seen_page() else { return };
    let results = results();
    let plot =
        list(&seen["plots"]).iter().find(|plot| plot["id"] == "plot-sum-token-deviations").unwrap();
    let columns = list(&plot["columns"]);
    let classes = list(&results["deviations"]);
    assert_eq!(columns.len(), classes.len());
    let middle =
        columns.iter().map(|column| number(&column["x"])).sum::<f64>() / columns.len() as f64;
    for name in ["atomic", "thiscpu"] {
        let own: Vec<&Value> = classes.iter().filter(|class| class["contender"] == name).collect();
        assert_eq!(own.len(), 1, "{own:?}");
        assert_eq!((&own[0]["from"], &own[0]["to"]), (&0.into(), &0.into()));
    }
    // Columns are in the order of contenders, and of distances for each contender.
    for (index, pair) in columns.windows(2).enumerate() {
        if classes[index]["contender"] == classes[index + 1]["contender"] {
            assert!(place(&pair[0]).0 < place(&pair[1]).0, "{pair:?}");
        } else {
            assert!(place(&pair[0]).1 < place(&pair[1]).1, "{pair:?}");
        }
    }
    for (column, class) in columns.iter().zip(classes) {
        let from = class["from"].as_i64().unwrap();
        let zero = columns.iter().zip(classes).find(|(_, class)| class["from"] == 0).unwrap().0;
        let side = (number(&column["x"]) - number(&zero["x"])).round() as i64;
        assert_eq!(side.signum(), from.signum(), "{class}: {side} of {middle}");
        assert!(number(&column["height"]) > 0.5, "{class}");
    }
}

#[test]
fn pictures_need_no_other_file() {
    for name in ["add.svg", "sum-token-deviations.svg", "alloc-remote-64.svg"] {
        let file = report().join(name);
        let Some(page) = open(name, Medium::screen(460, false)) else { return };
        for medium in [Medium::screen(460, false), Medium::screen(460, true)] {
            page.show(medium);
            let seen = page.look();
            assert!(list(&seen["texts"]).len() > 5, "{name}");
            for line in list(&seen["texts"]) {
                assert!(number(&line["contrast"]) >= 4.5, "{medium:?}: {name}: {line}");
            }
        }
        assert_eq!(page.events().0, [url(&file)], "{name}");
    }
}
