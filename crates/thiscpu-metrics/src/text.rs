//! Writes a scrape in the text format of Prometheus, version 0.0.4, and in OpenMetrics 1.0.
//!
//! Lines of samples are the same in both. Headings differ, and OpenMetrics has exemplars and
//! creation times.

use crate::{
    error::Kind,
    exemplar,
    family::{self, Family, Instrument, Samples, Series},
    format, histogram,
    media::Format,
    name::{self, escape_help, escape_openmetrics_help},
    reading::Reading,
};

/// Room for the rest of most lines after the series: a space, a number and a line feed.
const VALUE_BYTES: usize = 16;

/// Formats the values of a scrape.
pub(crate) fn render(reading: &Reading<'_>, format: Format) -> String {
    let bytes = |family: &Family| family.text_bytes() + VALUE_BYTES * family.series.len();
    let bytes = reading.state.families.values().map(bytes).sum();
    let mut out = String::with_capacity(bytes);
    for family in reading.state.families.values().filter(|family| family.is_shown()) {
        push_heading(family.kind, &family.name, &family.help, format, &mut out);
        for series in family.series.iter().filter(|series| !series.presence.is_hidden()) {
            push_series(reading, family, series, format, &mut out);
        }
        if let Some(samples) = &family.samples {
            push_samples(reading, family, samples, &mut out);
        }
    }
    match format {
        Format::Text => push_rejected(reading, &mut out),
        Format::OpenMetrics => out.push_str(OPENMETRICS_END),
    }
    out
}

/// Appends the heading of a family.
pub(crate) fn push_heading(kind: Kind, name: &str, help: &str, format: Format, out: &mut String) {
    match format {
        Format::Text => push_text_heading(kind, name, help, out),
        Format::OpenMetrics => push_openmetrics_heading(kind, name, help, out),
    }
}

fn push_text_heading(kind: Kind, name: &str, help: &str, out: &mut String) {
    if !help.is_empty() {
        push_all(out, &["# HELP ", name, " "]);
        escape_help(help, out);
        out.push('\n');
    }
    push_all(out, &["# TYPE ", name, " ", kind.as_str(), "\n"]);
}

fn push_openmetrics_heading(kind: Kind, name: &str, help: &str, out: &mut String) {
    let name = family::openmetrics_name(kind, name);
    push_all(out, &["# TYPE ", name, " ", kind.as_str(), "\n"]);
    if let Some(unit) = name::unit(name) {
        push_all(out, &["# UNIT ", name, " ", unit, "\n"]);
    }
    if !help.is_empty() {
        push_all(out, &["# HELP ", name, " "]);
        escape_openmetrics_help(help, out);
        out.push('\n');
    }
}

/// The last line of OpenMetrics.
pub(crate) const OPENMETRICS_END: &str = "# EOF\n";

#[inline]
fn push_series(
    reading: &Reading<'_>,
    family: &Family,
    series: &Series,
    format: Format,
    out: &mut String,
) {
    if let Instrument::Histogram(histogram) = &series.instrument {
        let values = reading.values.sums(series);
        push_histogram(&histogram.0, values, family, series, format, out);
        return push_created(reading, family, series, format, out);
    }
    if let Instrument::Shown = series.instrument {
        if let Some(value) = reading.values.number(series) {
            push_all(out, &[family.text(series), " "]);
            value.push(out);
            out.push('\n');
        }
        return;
    }
    out.push_str(family.text(series));
    out.push(' ');
    match &series.instrument {
        Instrument::Counter(counter) => {
            // The bits that were added.
            format::push_integer(reading.values.sums(series)[0] as u64, out);
            if format == Format::OpenMetrics {
                counter.exemplar().push(out);
            }
            out.push('\n');
            push_created(reading, family, series, format, out);
        }
        _ => {
            format::push_number(reading.values.gauge(series), out);
            out.push('\n');
        }
    }
}

/// Appends series that differ from scrape to scrape.
fn push_samples(reading: &Reading<'_>, family: &Family, samples: &Samples, out: &mut String) {
    for (own, value) in reading.values.samples(samples.slot) {
        out.push_str(&family.name);
        match (&*samples.labels, &**own) {
            ("", "") => {}
            ("", labels) | (labels, "") => push_all(out, &["{", labels, "}"]),
            (given, own) => push_all(out, &["{", given, ",", own, "}"]),
        }
        out.push(' ');
        value.push(out);
        out.push('\n');
    }
}

/// Appends the creation time of a series, if it is wanted.
fn push_created(
    reading: &Reading<'_>,
    family: &Family,
    series: &Series,
    format: Format,
    out: &mut String,
) {
    if format == Format::OpenMetrics && reading.has_created {
        let labels = family.labels(series);
        let [open, close] = if labels.is_empty() { ["", ""] } else { ["{", "}"] };
        push_all(out, &[family.openmetrics_name(), "_created", open, labels, close, " "]);
        exemplar::push_time(series.created, out);
        out.push('\n');
    }
}

fn push_histogram(
    core: &histogram::Core,
    values: &[i64],
    family: &Family,
    series: &Series,
    format: Format,
    out: &mut String,
) {
    let (name, labels) = (&*family.name, family.labels(series));
    let comma = if labels.is_empty() { "" } else { "," };
    let mut count = 0_u64;
    for (bucket, (bound, &inside)) in core.bounds().texts().zip(values).enumerate() {
        count = count.wrapping_add(inside as u64);
        push_all(out, &[name, "_bucket{", labels, comma, "le=\"", bound, "\"} "]);
        format::push_integer(count, out);
        if let (Format::OpenMetrics, Some(exemplar)) = (format, core.exemplar(bucket)) {
            exemplar.push(out);
        }
        out.push('\n');
    }
    let buckets = core.bounds().buckets();
    let sum_may_decrease =
        core.bounds().has_negative() || values[buckets] < 0 || values[buckets + 1] < 0;
    if format == Format::OpenMetrics && sum_may_decrease {
        // OpenMetrics allows no such sum, and no count without a sum.
        return;
    }
    let [open, close] = if labels.is_empty() { ["", ""] } else { ["{", "}"] };
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
