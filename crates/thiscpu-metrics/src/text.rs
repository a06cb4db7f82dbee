//! The text format of Prometheus, version 0.0.4.

use crate::{
    error::Kind,
    format, histogram,
    name::escape_help,
    state::{Family, Instrument, Reading, Series},
};

/// The media type of the text that [`Registry::render`](crate::Registry::render) returns.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Room for the rest of most lines after the series: a space, a number and a line feed.
const VALUE_BYTES: usize = 16;

/// Formats the values of a scrape.
pub(crate) fn render(reading: &Reading<'_>) -> String {
    let bytes = |family: &Family| family.text_bytes() + VALUE_BYTES * family.series.len();
    let bytes = reading.state.families.iter().map(bytes).sum();
    let mut out = String::with_capacity(bytes);
    for family in &reading.state.families {
        push_heading(family, &mut out);
        for series in &family.series {
            push_series(reading, family, series, &mut out);
        }
    }
    push_rejected(reading, &mut out);
    out
}

fn push_heading(family: &Family, out: &mut String) {
    if !family.help.is_empty() {
        push_all(out, &["# HELP ", &family.name, " "]);
        escape_help(&family.help, out);
        out.push('\n');
    }
    push_all(out, &["# TYPE ", &family.name, " ", family.kind.as_str(), "\n"]);
}

#[inline]
fn push_series(reading: &Reading<'_>, family: &Family, series: &Series, out: &mut String) {
    if let Instrument::Histogram(histogram) = &series.instrument {
        return push_histogram(&histogram.0, &reading.values[series.at..], family, series, out);
    }
    #[cfg(feature = "malloc")]
    if let Instrument::External = series.instrument {
        if let Some(&Some(value)) = reading.externals.get(series.at) {
            push_all(out, &[family.text(series), " "]);
            format::push_integer(value, out);
            out.push('\n');
        }
        return;
    }
    out.push_str(family.text(series));
    out.push(' ');
    match family.kind {
        // The bits that were added.
        Kind::Counter => format::push_integer(reading.values[series.at] as u64, out),
        _ => format::push_number(reading.gauges[series.at], out),
    }
    out.push('\n');
}

fn push_histogram(
    core: &histogram::Core,
    values: &[i64],
    family: &Family,
    series: &Series,
    out: &mut String,
) {
    let (name, labels) = (&*family.name, family.labels(series));
    let comma = if labels.is_empty() { "" } else { "," };
    let mut count = 0_u64;
    for (bound, &inside) in core.bounds().texts().zip(values) {
        count = count.wrapping_add(inside as u64);
        push_all(out, &[name, "_bucket{", labels, comma, "le=\"", bound, "\"} "]);
        format::push_integer(count, out);
        out.push('\n');
    }
    let [open, close] = if labels.is_empty() { ["", ""] } else { ["{", "}"] };
    let buckets = core.bounds().buckets();
    push_all(out, &[name, "_sum", open, labels, close, " "]);
    format::push_fixed(values[buckets], values[buckets + 1], out);
    push_all(out, &["\n", name, "_count", open, labels, close, " "]);
    format::push_integer(count, out);
    out.push('\n');
}

/// Appends a comment about rejected registrations.
///
/// Parsers skip it; it is for people who miss a metric.
fn push_rejected(reading: &Reading<'_>, out: &mut String) {
    let rejected = &reading.state.rejected;
    if let Some(first) = rejected.errors().first() {
        out.push_str("# Rejected registrations: ");
        format::push_integer(rejected.count(), out);
        out.push_str("; the first: ");
        escape_help(&first.to_string(), out);
        out.push('\n');
    }
}

fn push_all(out: &mut String, parts: &[&str]) {
    parts.iter().for_each(|part| out.push_str(part));
}
