//! Formats of a scrape, and which one a client asks for.

/// A format of a scrape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// The text format of Prometheus, version 0.0.4.
    Text,
    /// OpenMetrics 1.0, which also has units, exemplars and an end mark.
    OpenMetrics,
}

/// The types of each format, as a client may name them, with the version.
const TYPES: [(Format, &str, &[&str]); 2] = [
    (Format::Text, "text/plain", &["0.0.4"]),
    (Format::OpenMetrics, "application/openmetrics-text", &["1.0.0", "0.0.1"]),
];

impl Format {
    /// Returns the format that an `Accept` header prefers; `Text` if it accepts neither.
    ///
    /// Each format has the quality of the most specific range that matches it. Of formats with the
    /// same quality, `Text` is preferred. Without the header, pass an empty text.
    ///
    /// ```
    /// use thiscpu_metrics::Format;
    ///
    /// let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.3";
    /// assert_eq!(Format::negotiate(prometheus), Format::OpenMetrics);
    /// assert_eq!(Format::negotiate("*/*"), Format::Text);
    /// ```
    #[must_use]
    pub fn negotiate(accept: &str) -> Format {
        let [text, openmetrics] = TYPES.map(|(_, name, versions)| quality(accept, name, versions));
        if openmetrics > text { Format::OpenMetrics } else { Format::Text }
    }

    /// Returns the media type, for the header `Content-Type`.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Returns whether a client that sends this `Accept-Encoding` gets gzip.
#[cfg(feature = "http")]
pub(crate) fn accepts_gzip(accept_encoding: &str) -> bool {
    let of = |coding: &str| {
        let all = || elements(accept_encoding).map(|element| (element, parameters(element).0));
        let named = all().find(|(_, name)| name.eq_ignore_ascii_case(coding));
        let (element, _) = named.or_else(|| all().find(|(_, name)| *name == "*"))?;
        Some(parameters(element).1)
    };
    let gzip = of("gzip").unwrap_or(0);
    // The plain text is acceptable unless it is excluded.
    gzip > 0 && gzip >= of("identity").unwrap_or(0)
}

/// Returns the quality of a media type, in thousandths.
fn quality(accept: &str, name: &str, versions: &[&str]) -> u32 {
    let (major, _) = name.split_once('/').unwrap_or_default();
    let mut best = (0, 0);
    for range in elements(accept) {
        let (range_name, quality) = parameters(range);
        let version = parameter(range, "version");
        let specificity = match (range_name, version) {
            ("*/*", _) => 1,
            (range, _) if range.strip_suffix("/*").is_some_and(|it| is(it, major)) => 2,
            (range, None) if is(range, name) => 3,
            (range, Some(version)) if is(range, name) && versions.contains(&version) => 4,
            _ => continue,
        };
        // Several versions of one type may be listed; the best of them counts.
        best = best.max((specificity, quality));
    }
    best.1
}

fn is(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
}

/// Returns the elements of a header.
fn elements(header: &str) -> impl Iterator<Item = &str> {
    header.split(',').map(str::trim).filter(|element| !element.is_empty())
}

/// Returns the name of an element, and its quality in thousandths: 1000 if it has none.
fn parameters(element: &str) -> (&str, u32) {
    let name = element.split(';').next().unwrap_or_default().trim();
    let quality = parameter(element, "q").map(|text| text.parse::<f64>());
    let quality = match quality {
        None => 1.0,
        Some(Ok(quality)) if (0.0..=1.0).contains(&quality) => quality,
        // A malformed quality: the element does not count.
        Some(_) => 0.0,
    };
    (name, (quality * 1_000.0).round() as u32)
}

/// Returns the value of a parameter of an element.
fn parameter<'a>(element: &'a str, name: &str) -> Option<&'a str> {
    let mut parameters = element.split(';').skip(1).filter_map(|each| each.split_once('='));
    let (_, value) = parameters.find(|(key, _)| is(key.trim(), name))?;
    Some(value.trim().trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_with_the_highest_quality_is_chosen() {
        for (accept, wanted) in [
            ("", Format::Text),
            ("*/*", Format::Text),
            ("image/png", Format::Text),
            ("text/html,application/xhtml+xml,*/*;q=0.8", Format::Text),
            ("application/openmetrics-text", Format::OpenMetrics),
            ("Application/OpenMetrics-Text; Version=\"1.0.0\"", Format::OpenMetrics),
            ("application/*", Format::OpenMetrics),
            ("application/openmetrics-text;version=0.0.1,text/plain;q=0.9", Format::OpenMetrics),
            (
                "application/openmetrics-text;version=2.0.0,text/plain;version=0.0.4;q=0.1",
                Format::Text,
            ),
            ("application/openmetrics-text;q=0.2,text/plain;q=0.3", Format::Text),
            ("application/openmetrics-text;q=0.2,text/*;q=0.1", Format::OpenMetrics),
            ("application/openmetrics-text;q=0.2,*/*;q=0.3", Format::Text),
            ("application/openmetrics-text;q=0,*/*;q=0.1", Format::Text),
            ("application/openmetrics-text;q=5,text/plain;q=0.1", Format::Text),
            // What Prometheus 2.42 and 3.5 send.
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;\
                 version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                Format::OpenMetrics,
            ),
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                 application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;\
                 escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
                Format::OpenMetrics,
            ),
        ] {
            assert_eq!(Format::negotiate(accept), wanted, "{accept}");
        }
    }

    #[cfg(feature = "http")]
    #[test]
    fn gzip_is_used_if_it_is_accepted() {
        for (accept, wanted) in [
            ("", false),
            ("gzip", true),
            ("GZIP;q=0.5", true),
            ("deflate, gzip;q=1.0, *;q=0.5", true),
            ("*", true),
            ("*;q=0", false),
            ("gzip;q=0, *", false),
            ("br, deflate", false),
            ("gzip;q=0.4, identity;q=0.5", false),
            ("gzip;q=x", false),
        ] {
            assert_eq!(accepts_gzip(accept), wanted, "{accept}");
        }
    }
}
