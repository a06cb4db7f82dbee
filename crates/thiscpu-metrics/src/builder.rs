//! The settings of a registry: buckets and groups.

use std::{collections::HashMap, sync::Arc, time::Duration};

use crate::{
    error::{Error, Kind},
    histogram::{Bounds, DEFAULT_BOUNDS},
    name, row,
};

/// The settings of a [`Registry`](crate::Registry): buckets and groups.
///
/// They are fixed before the first metric is registered. Names are Prometheus names, also for
/// metrics of the facade (`_` for `.`, for example).
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
    has_created: bool,
    idle_timeouts: [Option<Duration>; 3],
}

/// The checked settings.
pub(crate) struct Settings {
    by_name: HashMap<String, Arc<Bounds>>,
    /// Sorted by descending length of the prefix.
    by_prefix: Vec<(String, Arc<Bounds>)>,
    by_default: Arc<Bounds>,
    members: HashMap<String, Membership>,
    groups: Vec<Group>,
    pub(crate) has_created: bool,
    idle_timeouts: [Option<Duration>; 3],
}

struct Group {
    name: String,
    members: usize,
}

/// The position of a metric in its group.
#[derive(Clone, Copy)]
pub(crate) struct Membership {
    pub(crate) group: usize,
    pub(crate) index: usize,
}

impl Builder {
    /// Sets the upper bounds of the buckets of histogram `name`.
    ///
    /// These are 1 to 61 finite numbers, each larger than the one before it. `+Inf` is added.
    #[must_use]
    pub fn buckets_for(mut self, name: &str, bounds: &[f64]) -> Self {
        self.by_name.push((name.to_owned(), bounds.to_vec()));
        self
    }

    /// Sets the upper bounds for all histograms whose names begin with `prefix`.
    ///
    /// Bounds for the name, or for a longer prefix, take precedence.
    #[must_use]
    pub fn buckets_for_prefix(mut self, prefix: &str, bounds: &[f64]) -> Self {
        self.by_prefix.push((prefix.to_owned(), bounds.to_vec()));
        self
    }

    /// Sets the upper bounds for all other histograms.
    ///
    /// By default these are the bounds of Prometheus' own libraries: 0.005 to 10, for seconds.
    #[must_use]
    pub fn default_buckets(mut self, bounds: &[f64]) -> Self {
        self.by_default = Some(bounds.to_vec());
        self
    }

    /// Groups counters, which each scrape then reads at one instant.
    ///
    /// `metrics` are 1 to 64 names of counters. Series that have the same labels are read together.
    /// The group's name only appears in errors.
    #[must_use]
    pub fn group(mut self, group: &str, metrics: &[&str]) -> Self {
        let metrics = metrics.iter().map(|&metric| metric.to_owned()).collect();
        self.groups.push((group.to_owned(), metrics));
        self
    }

    /// Removes series of these kinds whose values have not changed for `timeout`.
    ///
    /// Only a scrape or a collection finds them, so a series goes away at the first one after the
    /// timeout. A handle that changes the value later shows the series again, with all of its
    /// increments, until it is idle again. Without a handle,
    /// its memory is freed, and the next use of the name begins at 0. By default, series stay.
    ///
    /// A gauge that is set to the value that it has is idle.
    #[must_use]
    pub fn idle_timeout(mut self, kinds: &[Kind], timeout: Duration) -> Self {
        kinds.iter().for_each(|&kind| self.idle_timeouts[kind as usize] = Some(timeout));
        self
    }

    /// Adds lines with the creation time of each counter and histogram to OpenMetrics.
    ///
    /// They are off by default, because they make a scrape longer: `x_created` for each series of
    /// a counter `x_total` or a histogram `x`.
    #[must_use]
    pub fn created_lines(mut self, are_wanted: bool) -> Self {
        self.has_created = are_wanted;
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
            // The empty prefix is one of all names.
            if !prefix.is_empty() {
                name::check(&prefix)?;
            }
            let metric = format!("all histograms whose names begin with {prefix:?}");
            if by_prefix.iter().any(|(known, _)| *known == prefix) {
                return Err(Error::InvalidBuckets { metric, reason: TWICE });
            }
            by_prefix.push((prefix, bounds(metric, &values)?));
        }
        by_prefix.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        let by_default = self.by_default.unwrap_or(DEFAULT_BOUNDS.to_vec());
        let by_default = bounds("all other histograms".to_owned(), &by_default)?;
        let (members, groups) = index_groups(self.groups)?;
        let (has_created, idle_timeouts) = (self.has_created, self.idle_timeouts);
        Ok(Settings { by_name, by_prefix, by_default, members, groups, has_created, idle_timeouts })
    }
}

const TWICE: &str = "they are set twice; remove one of the two";

/// Assigns each metric its position in its group.
fn index_groups(
    requested: Vec<(String, Vec<String>)>,
) -> Result<(HashMap<String, Membership>, Vec<Group>), Error> {
    let (mut members, mut groups) = (HashMap::<String, Membership>::new(), Vec::<Group>::new());
    for (group, metrics) in requested {
        let refuse = |reason: String| Err(Error::InvalidGroup { group: group.clone(), reason });
        if metrics.is_empty() || metrics.len() > row::LEN_MAX {
            let count = metrics.len();
            return refuse(format!("it has {count} metrics; a group has 1 to {}", row::LEN_MAX));
        }
        for (index, metric) in metrics.iter().enumerate() {
            name::check(metric)?;
            let membership = Membership { group: groups.len(), index };
            let name = name::of_counter(metric).into_owned();
            if let Some(known) = members.insert(name, membership) {
                let other = groups.get(known.group).map_or(&group, |group| &group.name);
                return refuse(format!(
                    "{metric} is already in group {other:?}; remove it from one of the two"
                ));
            }
        }
        groups.push(Group { name: group, members: metrics.len() });
    }
    Ok((members, groups))
}

impl Settings {
    pub(crate) fn by_default() -> Settings {
        Builder::default().settings().expect("the default bounds are valid")
    }

    pub(crate) fn bounds(&self, histogram: &str) -> &Arc<Bounds> {
        let by_prefix = || {
            let fits = |(prefix, _): &&(String, _)| histogram.starts_with(prefix.as_str());
            self.by_prefix.iter().find(fits).map(|(_, bounds)| bounds)
        };
        self.by_name.get(histogram).or_else(by_prefix).unwrap_or(&self.by_default)
    }

    /// Returns the position of a metric in its group, if it is in one.
    pub(crate) fn membership(&self, metric: &str) -> Option<Membership> {
        // Of any kind, so that a gauge of such a name is an error.
        self.members.get(&*name::of_counter(metric)).copied()
    }

    pub(crate) fn idle_timeout(&self, kind: Kind) -> Option<Duration> {
        self.idle_timeouts[kind as usize]
    }

    pub(crate) fn has_idle_timeout(&self) -> bool {
        self.idle_timeouts.iter().any(Option::is_some)
    }

    pub(crate) fn group_name(&self, group: usize) -> &str {
        &self.groups[group].name
    }

    /// Returns the number of metrics of a group.
    pub(crate) fn members(&self, group: usize) -> usize {
        self.groups[group].members
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_those_of_name_then_longest_prefix_then_default() {
        let settings = Builder::default()
            .buckets_for("disk_read", &[1.0])
            .buckets_for_prefix("disk_", &[2.0])
            .buckets_for_prefix("disk_write_", &[3.0])
            .default_buckets(&[4.0])
            .settings()
            .unwrap();
        for (name, wanted) in
            [("disk_read", "1.0"), ("disk_seek", "2.0"), ("disk_write_late", "3.0"), ("net", "4.0")]
        {
            assert_eq!(settings.bounds(name).texts().next(), Some(wanted), "{name}");
        }
        assert_eq!(Settings::by_default().bounds("any").buckets(), 12);
    }

    #[test]
    fn buckets_require_valid_names_and_are_set_once() {
        let message_of = |builder: Builder| builder.settings().map(drop).unwrap_err().to_string();
        let message = message_of(Builder::default().buckets_for_prefix("http.", &[1.0]));
        assert!(message.contains("invalid name \"http.\": '.' at position 4"), "{message}");
        let twice = Builder::default().buckets_for("x", &[1.0]).buckets_for("x", &[2.0]);
        assert!(message_of(twice).contains("invalid buckets of x: they are set twice"));
        let prefix = |builder: Builder| builder.buckets_for_prefix("p", &[1.0]);
        let message = message_of(prefix(prefix(Builder::default())));
        assert!(message.contains("begin with \"p\": they are set twice"), "{message}");
        let all = Builder::default().buckets_for_prefix("", &[1.0]).settings();
        assert_eq!(all.unwrap_or_else(|error| panic!("{error}")).bounds("any").buckets(), 2);
    }

    #[test]
    fn groups_reject_invalid_metrics() {
        let message_of = |builder: Builder| builder.settings().map(drop).unwrap_err().to_string();
        let message = message_of(Builder::default().group("none", &[]));
        assert!(message.contains("group \"none\": it has 0 metrics"), "{message}");
        let message = message_of(Builder::default().group("x", &["a", "b"]).group("y", &["b"]));
        assert!(message.contains("group \"y\": b is already in group \"x\""), "{message}");
        let message = message_of(Builder::default().group("z", &["a", "a"]));
        assert!(message.contains("a is already in group \"z\""), "{message}");
        let message = message_of(Builder::default().group("z", &["a.b"]));
        assert!(message.contains("invalid name \"a.b\": '.' at position 1"), "{message}");
        let message = message_of(Builder::default().buckets_for_prefix("p", &[]));
        assert!(message.contains("begin with \"p\": there is no bound"), "{message}");
    }
}
