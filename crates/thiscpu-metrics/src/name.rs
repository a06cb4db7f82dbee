//! Names and labels: which ones Prometheus allows, and how a series is written.

use std::borrow::Cow;

pub(crate) use thiscpu::__internal::names::{NameKind, TOTAL, of_counter};
use thiscpu::__internal::names::{invalid_character, is_allowed, is_reserved_label};

use crate::error::{Error, Kind};

/// The labels of a series, in the order in which they were given.
pub(crate) type Labels<'a> = &'a [(&'a str, &'a str)];

/// Checks that Prometheus allows the name of a metric.
pub(crate) fn check(name: &str) -> Result<(), Error> {
    if name.is_empty() {
        return Err(Error::EmptyName);
    }
    invalid_character(NameKind::Metric, name).map_or(Ok(()), |(position, character)| {
        Err(Error::InvalidName { name: name.to_owned(), character, position })
    })
}

/// Checks that Prometheus allows the name of a label.
fn check_label(metric: &str, label: &str) -> Result<(), Error> {
    let metric = || metric.to_owned();
    if label.is_empty() {
        return Err(Error::EmptyLabel { metric: metric() });
    }
    invalid_character(NameKind::Label, label).map_or(Ok(()), |(position, character)| {
        Err(Error::InvalidLabel { metric: metric(), label: label.to_owned(), character, position })
    })
}

/// Replaces each character that is not allowed with `_`, as other exporters do.
pub(crate) fn sanitize(kind: NameKind, name: &str) -> Cow<'_, str> {
    if invalid_character(kind, name).is_none() {
        return Cow::Borrowed(name);
    }
    let each = |(position, c)| if is_allowed(kind, position, c) { c } else { '_' };
    Cow::Owned(name.chars().enumerate().map(each).collect())
}

/// Returns a series as it is written, without its value.
///
/// This is `name` or `name{label="value",...}`. Labels are sorted by name, so that the same labels
/// always make the same text. A label with an empty value is left out, because for Prometheus it
/// does not exist.
pub(crate) fn series(name: &str, labels: Labels<'_>) -> Result<String, Error> {
    check(name)?;
    for (index, &(label, _)) in labels.iter().enumerate() {
        check_label(name, label)?;
        if is_reserved_label(label) {
            return Err(Error::ReservedLabel { metric: name.to_owned(), label: label.to_owned() });
        }
        if labels[..index].iter().any(|&(other, _)| other == label) {
            return Err(Error::DuplicateLabel { metric: name.to_owned(), label: label.to_owned() });
        }
    }
    let labels = inside_braces(labels);
    Ok(if labels.is_empty() { name.to_owned() } else { format!("{name}{{{labels}}}") })
}

/// Returns labels as they are written between braces.
pub(crate) fn inside_braces(labels: Labels<'_>) -> String {
    let mut labels: Vec<_> = labels.to_vec();
    labels.sort_unstable();
    let mut text = String::new();
    for (label, value) in labels.iter().filter(|(_, value)| !value.is_empty()) {
        if !text.is_empty() {
            text.push(',');
        }
        push_label(label, value, &mut text);
    }
    text
}

/// Appends a label with its value.
pub(crate) fn push_label(label: &str, value: &str, out: &mut String) {
    out.push_str(label);
    out.push_str("=\"");
    escape_value(value, out);
    out.push('"');
}

/// Returns whether Prometheus allows the name of a label.
pub(crate) fn is_label(label: &str) -> bool {
    !label.is_empty() && invalid_character(NameKind::Label, label).is_none()
}

/// Returns the name of a metric, as all formats write it.
pub(crate) fn of_kind(kind: Kind, name: &str) -> Cow<'_, str> {
    if kind == Kind::Counter { of_counter(name) } else { Cow::Borrowed(name) }
}

/// The units that OpenMetrics or the facade name.
const UNITS: [&str; 21] = [
    "seconds",
    "milliseconds",
    "microseconds",
    "nanoseconds",
    "bytes",
    "kibibytes",
    "mebibytes",
    "gibibytes",
    "tebibytes",
    "kilobytes",
    "megabytes",
    "gigabytes",
    "percent",
    "ratio",
    "joules",
    "grams",
    "meters",
    "volts",
    "amperes",
    "celsius",
    "kelvin",
];

/// Returns the unit that the name of a family ends in, if it is known.
pub(crate) fn unit(family: &str) -> Option<&str> {
    let (_, unit) = family.rsplit_once('_')?;
    UNITS.contains(&unit).then_some(unit)
}

/// Parses the text between the braces of a series into labels.
#[cfg(feature = "opentelemetry")]
pub(crate) fn parse_labels(mut labels: &str) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    while let Some((label, rest)) = labels.split_once("=\"") {
        let (mut value, mut rest) = (String::new(), rest.chars());
        loop {
            match rest.next() {
                Some('\\') => value.extend(rest.next().map(|c| if c == 'n' { '\n' } else { c })),
                Some('"') | None => break,
                Some(c) => value.push(c),
            }
        }
        pairs.push((label.to_owned(), value));
        labels = rest.as_str().strip_prefix(',').unwrap_or("");
    }
    pairs
}

fn escape_value(value: &str, out: &mut String) {
    escape(value, &['\\', '"', '\n'], out);
}

/// Writes a help text, escaped so that it stays in one line.
pub(crate) fn escape_help(help: &str, out: &mut String) {
    escape(help, &['\\', '\n'], out);
}

/// Writes a help text, escaped for OpenMetrics.
pub(crate) fn escape_openmetrics_help(help: &str, out: &mut String) {
    escape_value(help, out);
}

fn escape(mut text: &str, escaped: &[char], out: &mut String) {
    while let Some(at) = text.find(escaped) {
        let (before, rest) = text.split_at(at);
        out.push_str(before);
        out.push('\\');
        // All of these characters are one byte.
        out.push_str(if rest.starts_with('\n') { "n" } else { &rest[..1] });
        text = &rest[1..];
    }
    out.push_str(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_accepts_prometheus_names_only() {
        for name in ["a", "_", ":", "http:requests_total", "a9"] {
            assert_eq!(check(name), Ok(()), "{name}");
        }
        for (name, character, position) in
            [("9a", '9', 0), ("a-b", '-', 1), ("a.b", '.', 1), ("ä", 'ä', 0)]
        {
            let error = Error::InvalidName { name: name.to_owned(), character, position };
            assert_eq!(check(name), Err(error));
        }
        assert_eq!(check(""), Err(Error::EmptyName));
        check_label("m", "a:b").unwrap_err();
    }

    #[test]
    fn sanitize_makes_names_that_are_allowed() {
        for (name, wanted) in
            [("a.b-c d", "a_b_c_d"), ("9lives", "_lives"), ("ok", "ok"), ("ä", "_")]
        {
            assert_eq!(sanitize(NameKind::Metric, name), wanted);
        }
        assert_eq!(sanitize(NameKind::Label, "a:b"), "a_b");
    }

    #[test]
    fn series_is_the_same_text_for_any_order_of_labels() {
        let one = series("a", &[("y", "2"), ("x", "1")]).unwrap();
        assert_eq!(one, r#"a{x="1",y="2"}"#);
        assert_eq!(Ok(one), series("a", &[("x", "1"), ("y", "2")]));
        assert_eq!(series("a", &[]).as_deref(), Ok("a"));
        let escaped = series("a", &[("x", "C:\\DIR\n\"end\"")]).unwrap();
        assert_eq!(escaped, r#"a{x="C:\\DIR\n\"end\""}"#);
    }

    #[cfg(feature = "opentelemetry")]
    #[test]
    fn parse_labels_returns_the_labels_of_series() {
        for labels in [&[][..], &[("x", "\n")], &[("a", "C:\\n\n\"end\""), ("b", ",b=\"{}")]] {
            let text = series("a", labels).unwrap();
            let inside = text[1..].trim_start_matches('{').trim_end_matches('}');
            let pairs = parse_labels(inside);
            assert!(
                pairs.iter().map(|(label, value)| (&**label, &**value)).eq(labels.iter().copied())
            );
        }
    }

    #[test]
    fn series_rejects_reserved_and_duplicate_labels() {
        for label in ["le", "__name__", "__x"] {
            let error = series("a", &[(label, "")]).unwrap_err();
            assert!(matches!(error, Error::ReservedLabel { .. }), "{error}");
        }
        let error = series("a", &[("x", "1"), ("y", ""), ("x", "2")]).unwrap_err();
        assert_eq!(error, Error::DuplicateLabel { metric: "a".to_owned(), label: "x".to_owned() });
    }
}
