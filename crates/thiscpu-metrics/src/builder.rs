//! What a registry has to know before there are metrics: buckets and groups.

use std::{collections::HashMap, sync::Arc};

use crate::{
    error::Error,
    histogram::{Bounds, DEFAULT_BOUNDS},
    name, row,
};

/// What a [`Registry`](crate::Registry) has to know before there are metrics: bounds of buckets, and groups. Names are as Prometheus has them, also
/// those of metrics that come by the facade (`_` for `.`, for example).
///
/// ```
/// let registry = thiscpu_metrics::Registry::builder()
///     .buckets_for("batch_rows", &[1.0, 10.0, 100.0])
///     .buckets_for_prefix("disk_", &[0.001, 0.1, 10.0])
///     .group("traffic", &["received_total", "sent_total"])
///     .build()?;
/// # Ok::<(), thiscpu_metrics::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Builder {
    by_name: Vec<(String, Vec<f64>)>,
    by_prefix: Vec<(String, Vec<f64>)>,
    by_default: Option<Vec<f64>>,
    groups: Vec<(String, Vec<String>)>,
}

/// What was built.
pub(crate) struct Settings {
    by_name: HashMap<String, Arc<Bounds>>,
    /// The longest first.
    by_prefix: Vec<(String, Arc<Bounds>)>,
    by_default: Arc<Bounds>,
    members: HashMap<String, GroupIndex>,
    groups: Vec<Group>,
}

struct Group {
    name: String,
    members: usize,
}

/// A metric's place in its group.
#[derive(Clone, Copy)]
pub(crate) struct GroupIndex {
    pub(crate) group: usize,
    pub(crate) index: usize,
}

impl Builder {
    /// The upper bounds of the buckets of histogram `name`: 1 to 61 finite numbers, each larger than the one before it. `+Inf` is added.
    #[must_use]
    pub fn buckets_for(mut self, name: &str, bounds: &[f64]) -> Self {
        self.by_name.push((name.to_owned(), bounds.to_vec()));
        self
    }

    /// The same for all histograms whose names begin with `prefix`, and have no bounds of their own. Of several such prefixes the longest counts.
    #[must_use]
    pub fn buckets_for_prefix(mut self, prefix: &str, bounds: &[f64]) -> Self {
        self.by_prefix.push((prefix.to_owned(), bounds.to_vec()));
        self
    }

    /// The same for all other histograms. If nobody says, they are those of Prometheus' own libraries: 0.005 to 10, for seconds.
    #[must_use]
    pub fn default_buckets(mut self, bounds: &[f64]) -> Self {
        self.by_default = Some(bounds.to_vec());
        self
    }

    /// Counters that are read at one instant in each scrape: those of the metrics named here, up to 64, that have the same labels. The group's name
    /// is for errors only.
    #[must_use]
    pub fn group(mut self, group: &str, metrics: &[&str]) -> Self {
        let metrics = metrics.iter().map(|&metric| metric.to_owned()).collect();
        self.groups.push((group.to_owned(), metrics));
        self
    }

    pub(crate) fn settings(self) -> Result<Settings, Error> {
        let bounds = |metric: String, bounds: &[f64]| Ok(Arc::new(Bounds::new(&metric, bounds)?));
        let mut by_name = HashMap::new();
        for (name, values) in self.by_name {
            name::check(&name)?;
            if by_name.insert(name.clone(), bounds(name.clone(), &values)?).is_some() {
                return Err(Error::InvalidBuckets { metric: name, reason: TWICE });
            }
        }
        let mut by_prefix: Vec<(String, _)> = Vec::new();
        for (prefix, values) in self.by_prefix {
            // Of no characters it is one of all names.
            if !prefix.is_empty() {
                name::check(&prefix)?;
            }
            let metric = format!("all whose names begin with {prefix:?}");
            if by_prefix.iter().any(|(known, _)| *known == prefix) {
                return Err(Error::InvalidBuckets { metric, reason: TWICE });
            }
            by_prefix.push((prefix, bounds(metric, &values)?));
        }
        by_prefix.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        let by_default = self.by_default.unwrap_or(DEFAULT_BOUNDS.to_vec());
        let by_default = bounds("all other histograms".to_owned(), &by_default)?;
        let (members, groups) = index_groups(self.groups)?;
        Ok(Settings { by_name, by_prefix, by_default, members, groups })
    }
}

const TWICE: &str = "they are given twice; leave out one of them";

/// Which metric is where in which group.
fn index_groups(
    asked: Vec<(String, Vec<String>)>,
) -> Result<(HashMap<String, GroupIndex>, Vec<Group>), Error> {
    let (mut members, mut groups) = (HashMap::<String, GroupIndex>::new(), Vec::<Group>::new());
    for (group, metrics) in asked {
        let refuse = |reason: String| Err(Error::InvalidGroup { group: group.clone(), reason });
        if metrics.is_empty() || metrics.len() > row::LEN_MAX {
            let (are, most) = (metrics.len(), row::LEN_MAX);
            return refuse(format!("it has {are} metrics, and must have 1 to {most}"));
        }
        for (index, metric) in metrics.iter().enumerate() {
            name::check(metric)?;
            let membership = GroupIndex { group: groups.len(), index };
            if let Some(known) = members.insert(metric.clone(), membership) {
                let of = groups.get(known.group).map_or(&group, |group| &group.name);
                return refuse(format!("{metric} is in the group {of:?} already"));
            }
        }
        groups.push(Group { name: group, members: metrics.len() });
    }
    Ok((members, groups))
}

impl Settings {
    pub(crate) fn by_default() -> Settings {
        Builder::default().settings().expect("the default bounds are in order")
    }

    pub(crate) fn bounds(&self, histogram: &str) -> &Arc<Bounds> {
        let by_prefix = || {
            let fits = |(prefix, _): &&(String, _)| histogram.starts_with(prefix.as_str());
            self.by_prefix.iter().find(fits).map(|(_, bounds)| bounds)
        };
        self.by_name.get(histogram).or_else(by_prefix).unwrap_or(&self.by_default)
    }

    /// Which group a metric is in, if it is in one.
    pub(crate) fn membership(&self, metric: &str) -> Option<GroupIndex> {
        self.members.get(metric).copied()
    }

    pub(crate) fn group_name(&self, group: usize) -> &str {
        &self.groups[group].name
    }

    /// How many metrics a group has.
    pub(crate) fn members(&self, group: usize) -> usize {
        self.groups[group].members
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_of_the_name_then_of_the_longest_prefix_then_the_default() {
        let settings = Builder::default()
            .buckets_for("disk_read", &[1.0])
            .buckets_for_prefix("disk_", &[2.0])
            .buckets_for_prefix("disk_write_", &[3.0])
            .default_buckets(&[4.0])
            .settings()
            .unwrap();
        for (name, wanted) in
            [("disk_read", "1"), ("disk_seek", "2"), ("disk_write_late", "3"), ("net", "4")]
        {
            assert_eq!(settings.bounds(name).texts().next(), Some(wanted), "{name}");
        }
        assert_eq!(Settings::by_default().bounds("any").buckets(), 12);
    }

    #[test]
    fn buckets_are_for_names_that_can_be_and_given_once() {
        let why = |builder: Builder| builder.settings().map(drop).unwrap_err().to_string();
        let message = why(Builder::default().buckets_for_prefix("http.", &[1.0]));
        assert!(message.contains("\"http.\" cannot have '.' at position 4"), "{message}");
        let twice = Builder::default().buckets_for("x", &[1.0]).buckets_for("x", &[2.0]);
        assert!(why(twice).contains("the buckets of x cannot be: they are given twice"));
        let prefix = |builder: Builder| builder.buckets_for_prefix("p", &[1.0]);
        let message = why(prefix(prefix(Builder::default())));
        assert!(message.contains("begin with \"p\" cannot be: they are given twice"), "{message}");
        let all = Builder::default().buckets_for_prefix("", &[1.0]).settings();
        assert_eq!(all.unwrap_or_else(|error| panic!("{error}")).bounds("any").buckets(), 2);
    }

    #[test]
    fn groups_that_cannot_be() {
        let why = |builder: Builder| builder.settings().map(drop).unwrap_err().to_string();
        let message = why(Builder::default().group("none", &[]));
        assert!(message.contains("\"none\" cannot be: it has 0 metrics"), "{message}");
        let message = why(Builder::default().group("x", &["a", "b"]).group("y", &["b"]));
        assert!(message.contains("\"y\" cannot be: b is in the group \"x\" already"), "{message}");
        let message = why(Builder::default().group("z", &["a", "a"]));
        assert!(message.contains("a is in the group \"z\" already"), "{message}");
        let message = why(Builder::default().group("z", &["a.b"]));
        assert!(message.contains("\"a.b\" cannot have '.' at position 1"), "{message}");
        let message = why(Builder::default().buckets_for_prefix("p", &[]));
        assert!(message.contains("begin with \"p\" cannot be: there is no bound"), "{message}");
    }
}
