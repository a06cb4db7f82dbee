//! Both formats, as other parsers read them, with names and values of any kind.

use prometheus_parse::{Scrape, Value};
use thiscpu_test_support::prometheus::{check_text, parse_openmetrics};

use crate::fixture::{Place, once, printed, requests, run, value};

/// Values of labels that need escapes, or look like lines of their own.
const VALUES: [&str; 6] =
    ["C:\\DIR\n\"the\" end", "\n# EOF\n", "x\"} 9\ny{z=\"", "\\n", "ü\u{1b}\r\t\u{2028}", " "];

/// Creates a segment with such values, help texts, and names of objects.
fn create_hostile(place: &Place) {
    let segment = place.create("shop");
    for (value, n) in VALUES.iter().zip(1..) {
        requests(&segment, value).add(n);
    }
    let registry = segment.registry().unwrap();
    let family = registry.counter_family("read_bytes", "Bytes\n# \"read\" \\.", &["a", "b"]);
    family.unwrap().series(&["", "x"]).unwrap().add(u64::MAX >> 1);
    registry
        .counter_family("long", "Long.", &["a"])
        .unwrap()
        .series(&[&"\"".repeat(60_000)])
        .unwrap();
    segment.counter("a\"b\\c {d=\"e\"} 1").unwrap().add(-1);
    segment.budget("x\"} 2", 10).unwrap();
}

#[test]
fn text_is_accepted_by_promtool() {
    let place = Place::new();
    create_hostile(&place);
    let text = printed(&place.path("shop"), &[]);
    if let Some(notes) = check_text(&text) {
        // All families have help texts and names of the usual form.
        assert_eq!(notes, "", "{text}");
    }
}

#[test]
fn another_parser_reads_the_values_of_labels() {
    let place = Place::new();
    create_hostile(&place);
    let text = printed(&place.path("shop"), &[]);
    let scrape = Scrape::parse(text.lines().map(|line| Ok(line.to_owned()))).unwrap();
    let of = |name: &str| -> Vec<_> {
        scrape.samples.iter().filter(|sample| sample.metric == name).collect()
    };
    let found = of("requests_total");
    // The parser takes the first brace for the end of all labels.
    let is_read = |value: &&&str| !value.contains('}');
    assert_eq!(found.len(), VALUES.iter().filter(is_read).count(), "{text}");
    for sample in found {
        let Value::Counter(number) = sample.value else { panic!("a counter") };
        let path = sample.labels.get("path").unwrap();
        assert_eq!(unescaped(path), VALUES[number as usize - 1]);
    }
    let limit = of("thiscpu_segment_series_limit");
    assert_eq!(limit[0].value, Value::Gauge(100.0));
}

/// Replaces escapes that the parser has left.
fn unescaped(value: &str) -> String {
    let (mut text, mut rest) = (String::new(), value.chars());
    while let Some(character) = rest.next() {
        match character {
            '\\' => match rest.next() {
                Some('n') => text.push('\n'),
                other => text.extend(other),
            },
            other => text.push(other),
        }
    }
    text
}

#[test]
fn openmetrics_is_read_by_the_python_parser() {
    let place = Place::new();
    create_hostile(&place);
    let text = printed(&place.path("shop"), &["--format", "openmetrics"]);
    assert!(text.ends_with("\n# EOF\n") && text.contains("# UNIT read_bytes bytes\n"), "{text}");
    let Some(read) = parse_openmetrics(&text) else { return };
    let label = place.label("shop");
    let wanted = [
        format!("requests_total {{'segment': '{label}', 'path': 'C:\\\\DIR\\n\"the\" end'}} 1.0"),
        format!("requests_total {{'segment': '{label}', 'path': '\\n# EOF\\n'}} 2.0"),
        format!("requests_total {{'segment': '{label}', 'path': 'x\"}} 9\\ny{{z=\"'}} 3.0"),
        format!("read_bytes_total {{'segment': '{label}', 'b': 'x'}} 9.223372036854776e+18"),
        format!("thiscpu_value {{'segment': '{label}', 'name': 'a\"b\\\\c {{d=\"e\"}} 1'}} -1.0"),
    ];
    for line in wanted {
        assert!(read.contains(&line), "{line}\n{read}");
    }
}

#[test]
fn names_that_the_answer_cannot_have_are_left_out_and_counted() {
    let place = Place::new();
    let segment = place.create("shop");
    requests(&segment, "/").inc();
    let registry = segment.registry().unwrap();
    // The program's own family, and a label for which there is no name.
    for (name, labels) in [("thiscpu_value", &[][..]), ("odd", &["exported_exported_segment"])] {
        let family = registry.counter_family(name, "Odd.", labels).unwrap();
        family.series(&vec!["x"; labels.len()]).unwrap().inc();
    }
    // Lines of OpenMetrics, and one whose name is free because the one before it is hidden.
    for name in ["requests_created", "requests_total_total", "requests_total_total_total"] {
        registry.counter_family(name, "", &[]).unwrap().series(&[]).unwrap().inc();
    }
    // A family that takes no name, because it is left out itself.
    let other = place.create("other");
    let family = other.registry().unwrap().counter_family("odd", "", &[]).unwrap();
    family.series(&[]).unwrap().inc();
    drop((registry, segment, other));
    let label = place.label("shop");
    for (format, is_shown) in [("prometheus", true), ("openmetrics", false)] {
        let mut command = once(&place.path("shop"), &["--format", format]);
        let (status, text, _) = run(command.arg(place.path("other")));
        assert_eq!(status, Some(0), "{text}");
        let series = |name: &str| value(&text, &format!("{name}{{segment=\"{label}\"}}"));
        assert_eq!(series("thiscpu_value_total"), None, "{text}");
        for name in ["requests_created_total", "requests_total_total"] {
            assert_eq!(series(name).is_some(), is_shown, "{name}\n{text}");
        }
        assert_eq!(series("requests_total_total_total"), Some(1.0), "{text}");
        assert!(!text.contains("exported") && !text.contains("Odd."), "{text}");
        let other = format!("odd_total{{segment=\"{}\"}}", place.label("other"));
        assert_eq!(value(&text, &other), Some(1.0), "{text}");
        let [missing, exact] = if is_shown { [2.0, 4.0] } else { [4.0, 2.0] };
        for (kind, wanted) in [("missing", missing), ("exact", exact)] {
            let values = format!(
                "thiscpu_segment_values{{segment=\"{label}\",part=\"series\",kind=\"{kind}\"}}"
            );
            assert_eq!(value(&text, &values), Some(wanted), "{text}");
        }
        if format == "openmetrics" {
            parse_openmetrics(&text);
        }
    }
}
