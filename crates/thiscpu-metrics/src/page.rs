//! Scrapes of other programs of this workspace, in the formats of this crate.

use crate::{error::Kind, media::Format, name, shown::Number, text};

/// The text of a scrape, which is written family by family.
///
/// Names are written as they are: the caller checks them. Help texts and values of labels are
/// escaped.
#[derive(Debug)]
pub struct Page {
    format: Format,
    text: String,
}

impl Page {
    /// Begins a text.
    #[must_use]
    pub fn new(format: Format) -> Page {
        Page { format, text: String::new() }
    }

    /// Writes the heading of a family. That of a counter has a name that ends in `_total`.
    pub fn family(&mut self, kind: Kind, name: &str, help: &str) {
        text::push_heading(kind, name, help, self.format, &mut self.text);
    }

    /// Writes a sample of the family before it. Labels with empty values are left out.
    #[inline]
    pub fn sample<'a>(
        &mut self,
        name: &str,
        labels: impl IntoIterator<Item = (&'a str, &'a str)>,
        value: Number,
    ) {
        let out = &mut self.text;
        out.push_str(name);
        let mut before = '{';
        for (label, value) in labels.into_iter().filter(|(_, value)| !value.is_empty()) {
            out.push(before);
            name::push_label(label, value, out);
            before = ',';
        }
        out.push_str(if before == '{' { " " } else { "} " });
        value.push(out);
        out.push('\n');
    }

    /// Ends the text, and returns it.
    #[must_use]
    pub fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str(text::OPENMETRICS_END);
        }
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes one family in a format.
    fn page(format: Format) -> String {
        let mut page = Page::new(format);
        page.family(Kind::Counter, "read_bytes_total", "Bytes\n\"read\".");
        let name = "C:\\DIR\n\"x\"";
        page.sample("read_bytes_total", [("file", name), ("no", "")], Number::Unsigned(u64::MAX));
        page.sample("read_bytes_total", [("file", "")], Number::Unsigned(0));
        page.family(Kind::Gauge, "level", "");
        page.sample("level", [("a", "b"), ("c", "d")], Number::Float(-2.75));
        page.finish()
    }

    #[test]
    fn pages_are_escaped_and_have_the_headings_of_their_format() {
        let series = r#"read_bytes_total{file="C:\\DIR\n\"x\""} 18446744073709551615
read_bytes_total 0
# TYPE level gauge
level{a="b",c="d"} -2.75
"#;
        let heading =
            "# HELP read_bytes_total Bytes\\n\"read\".\n# TYPE read_bytes_total counter\n";
        assert_eq!(page(Format::Text), format!("{heading}{series}"));
        let heading = "# TYPE read_bytes counter\n# UNIT read_bytes bytes\n\
                       # HELP read_bytes Bytes\\n\\\"read\\\".\n";
        assert_eq!(page(Format::OpenMetrics), format!("{heading}{series}# EOF\n"));
    }
}
