//! Names and labels: what Prometheus accepts, what the facade's become, and how a series is written.

use std::borrow::Cow;

use crate::error::Error;

/// Labels of a series, as they were given.
pub(crate) type Labels<'a> = &'a [(&'a str, &'a str)];

/// Who has a name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameKind {
    Metric,
    Label,
}

/// Whether a metric's name is one that Prometheus accepts.
pub(crate) fn check(name: &str) -> Result<(), Error> {
    if name.is_empty() {
        return Err(Error::EmptyName);
    }
    bad_character(NameKind::Metric, name).map_or(Ok(()), |(position, character)| {
        Err(Error::InvalidName { name: name.to_owned(), character, position })
    })
}

/// Whether Prometheus accepts the name of a metric's label.
fn check_label(metric: &str, label: &str) -> Result<(), Error> {
    let metric = || metric.to_owned();
    if label.is_empty() {
        return Err(Error::EmptyLabel { metric: metric() });
    }
    bad_character(NameKind::Label, label).map_or(Ok(()), |(position, character)| {
        Err(Error::InvalidLabel { metric: metric(), label: label.to_owned(), character, position })
    })
}

/// The first that cannot be there, and where it is.
fn bad_character(of: NameKind, name: &str) -> Option<(usize, char)> {
    name.chars().enumerate().find(|&(position, c)| !may_be(of, position, c))
}

fn may_be(of: NameKind, position: usize, character: char) -> bool {
    match character {
        'a'..='z' | 'A'..='Z' | '_' => true,
        '0'..='9' => position > 0,
        ':' => of == NameKind::Metric,
        _ => false,
    }
}

/// The name with `_` for each character that cannot be there, as other exporters for the facade have it.
pub(crate) fn sanitised(of: NameKind, name: &str) -> Cow<'_, str> {
    if bad_character(of, name).is_none() {
        return Cow::Borrowed(name);
    }
    let each = |(position, c)| if may_be(of, position, c) { c } else { '_' };
    Cow::Owned(name.chars().enumerate().map(each).collect())
}

/// The series as it is written, without its value: `name`, or `name{label="value",...}` with the labels in the order of
/// their names, so that the same labels are always the same text. An empty value is no label, as for Prometheus.
pub(crate) fn series(name: &str, labels: Labels<'_>) -> Result<String, Error> {
    check(name)?;
    let mut labels: Vec<_> = labels.to_vec();
    labels.sort_unstable();
    let mut text = String::from(name);
    for (index, &(label, value)) in labels.iter().enumerate() {
        check_label(name, label)?;
        if label == "le" || label.starts_with("__") {
            return Err(Error::ReservedLabel { metric: name.to_owned(), label: label.to_owned() });
        }
        if labels[..index].iter().any(|&(other, _)| other == label) {
            return Err(Error::DuplicateLabel { metric: name.to_owned(), label: label.to_owned() });
        }
        if value.is_empty() {
            continue;
        }
        text.push(if text.len() == name.len() { '{' } else { ',' });
        text.push_str(label);
        text.push_str("=\"");
        escape_value(value, &mut text);
        text.push('"');
    }
    if text.len() > name.len() {
        text.push('}');
    }
    Ok(text)
}

/// The labels in what a series has between its braces.
#[cfg(feature = "opentelemetry")]
pub(crate) fn pairs(mut labels: &str) -> Vec<(String, String)> {
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

/// Writes what stands in one line, whatever it has in it.
pub(crate) fn escape_help(help: &str, out: &mut String) {
    escape(help, &['\\', '\n'], out);
}

fn escape(text: &str, escaped: &[char], out: &mut String) {
    for c in text.chars() {
        if escaped.contains(&c) {
            out.push('\\');
        }
        out.push(if c == '\n' { 'n' } else { c });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_prometheus_names() {
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
    fn sanitised_names_are_accepted() {
        for (name, wanted) in
            [("a.b-c d", "a_b_c_d"), ("9lives", "_lives"), ("ok", "ok"), ("ä", "_")]
        {
            assert_eq!(sanitised(NameKind::Metric, name), wanted);
        }
        assert_eq!(sanitised(NameKind::Label, "a:b"), "a_b");
    }

    #[test]
    fn a_series_is_one_text_whatever_the_order_of_its_labels() {
        let one = series("a", &[("y", "2"), ("x", "1")]).unwrap();
        assert_eq!(one, r#"a{x="1",y="2"}"#);
        assert_eq!(Ok(one), series("a", &[("x", "1"), ("y", "2")]));
        assert_eq!(series("a", &[]).as_deref(), Ok("a"));
        let escaped = series("a", &[("x", "C:\\DIR\n\"end\"")]).unwrap();
        assert_eq!(escaped, r#"a{x="C:\\DIR\n\"end\""}"#);
    }

    #[cfg(feature = "opentelemetry")]
    #[test]
    fn labels_read_back() {
        for labels in [&[][..], &[("x", "\n")], &[("a", "C:\\n\n\"end\""), ("b", ",b=\"{}")]] {
            let text = series("a", labels).unwrap();
            let inside = text[1..].trim_start_matches('{').trim_end_matches('}');
            let pairs = pairs(inside);
            assert!(
                pairs.iter().map(|(label, value)| (&**label, &**value)).eq(labels.iter().copied())
            );
        }
    }

    #[test]
    fn labels_that_cannot_be() {
        for label in ["le", "__name__", "__x"] {
            let error = series("a", &[(label, "")]).unwrap_err();
            assert!(matches!(error, Error::ReservedLabel { .. }), "{error}");
        }
        let error = series("a", &[("x", "1"), ("y", ""), ("x", "2")]).unwrap_err();
        assert_eq!(error, Error::DuplicateLabel { metric: "a".to_owned(), label: "x".to_owned() });
    }
}
