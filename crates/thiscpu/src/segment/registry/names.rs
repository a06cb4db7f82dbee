//! Names of metrics and labels, as Prometheus allows them. `thiscpu-metrics` has these rules too.

use std::borrow::Cow;

/// The kind of a name, on which the allowed characters depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    /// The name of a metric.
    Metric,
    /// The name of a label.
    Label,
}

/// Returns whether a name may have a character at a position.
pub fn is_allowed(kind: NameKind, position: usize, character: char) -> bool {
    match character {
        'a'..='z' | 'A'..='Z' | '_' => true,
        '0'..='9' => position > 0,
        ':' => kind == NameKind::Metric,
        _ => false,
    }
}

/// Returns the first character that is not allowed, and its position.
pub fn invalid_character(kind: NameKind, name: &str) -> Option<(usize, char)> {
    name.chars().enumerate().find(|&(position, c)| !is_allowed(kind, position, c))
}

/// Returns whether the name of a label is for Prometheus's own use.
pub fn is_reserved_label(label: &str) -> bool {
    label == "le" || label.starts_with("__")
}

/// The suffix of all counters.
pub const TOTAL: &str = "_total";

/// Returns the name of a counter, which ends in `_total`.
///
/// OpenMetrics allows no other names, and a series should have one.
pub fn of_counter(name: &str) -> Cow<'_, str> {
    match name.strip_suffix(TOTAL) {
        Some(family) if !family.is_empty() => Cow::Borrowed(name),
        _ if name.is_empty() => Cow::Borrowed(name),
        _ => Cow::Owned(format!("{name}{TOTAL}")),
    }
}

/// The longest name, in bytes.
pub(super) const NAME_MAX: usize = 1000;
/// The most labels of a family.
pub(super) const LABELS_MAX: usize = 64;
/// The longest help text, and the longest value of a label, in bytes.
pub(super) const STRING_MAX: usize = 64 << 10;

/// Returns why a family cannot have a name, a help text and labels.
pub(super) fn refusal(name: &str, help: &str, labels: &[&str]) -> Option<String> {
    let refused = |kind, what: &str, name: &str| -> Option<String> {
        if name.is_empty() {
            return Some(format!("the name of a {what} is empty; give it one"));
        }
        if name.len() > NAME_MAX {
            return Some(format!(
                "a {what} has a name of {} bytes; use {NAME_MAX} at most",
                name.len()
            ));
        }
        let (position, character) = invalid_character(kind, name)?;
        Some(format!(
            "the {what} {name:?} has {character:?} at position {position}; use letters, digits \
             and underscores, and no digit first"
        ))
    };
    if help.len() > STRING_MAX {
        return Some(format!("the help text has {} bytes; use {STRING_MAX} at most", help.len()));
    }
    if labels.len() > LABELS_MAX {
        return Some(format!("there are {} labels; use {LABELS_MAX} at most", labels.len()));
    }
    refused(NameKind::Metric, "metric", name).or_else(|| {
        labels.iter().enumerate().find_map(|(index, &label)| {
            if is_reserved_label(label) {
                return Some(format!("the label {label:?} is reserved; use another name"));
            }
            if labels[..index].contains(&label) {
                return Some(format!("the label {label:?} is there twice; remove one"));
            }
            refused(NameKind::Label, "label", label)
        })
    })
}
