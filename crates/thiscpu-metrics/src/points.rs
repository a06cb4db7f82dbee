//! The values of a scrape, as instruments of OpenTelemetry observe them.
//!
//! The SDK makes a delta of the value that it had from the collection before. If a collection
//! observes no value for a set of attributes, the SDK forgets the one that it had. So each series
//! is observed as long as it exists, even while it is hidden: it would be counted twice when it is
//! shown again. A new series with the labels of one that was freed begins at zero, so one
//! collection observes neither.

use std::{collections::HashMap, mem};

use ::opentelemetry::KeyValue;

use crate::{
    error::Kind,
    family::{Family, Instrument, Series},
    format::BILLION,
    name,
    reading::Values,
    shown::Number,
    state::State,
};

/// The values that an instrument observes, each with its attributes.
pub(crate) type Points<T> = Vec<(T, Vec<KeyValue>)>;

/// Appends the values of a series.
pub(crate) type PushPoints<T> = fn(&Values, &Family, &Series, &mut Points<T>);

/// The numbers of the series that the last collection observed, by their labels.
pub(crate) type Observed = HashMap<String, u64>;

/// Appends the values of all series of a family, if it exists and has this kind.
pub(crate) fn push_all<T: From<Number>>(
    scrape: &Values,
    state: &State,
    (name, kind): (&str, Kind),
    push: PushPoints<T>,
    observed: &mut Observed,
    points: &mut Points<T>,
) {
    let mut before = mem::take(observed);
    // Another metric may have the name of one that was removed.
    let family = state.family_named(name).filter(|family| family.kind == kind);
    let Some(family) = family else { return };
    // A series that was registered after the scrape has no value in it.
    for series in family.series.iter().filter(|series| scrape.is_after(series.scrapes_before)) {
        let labels = family.labels(series);
        let (labels, id) =
            before.remove_entry(labels).unwrap_or_else(|| (labels.to_owned(), series.id));
        if id == series.id {
            observed.insert(labels, id);
            push(scrape, family, series, points);
        }
    }
    let samples = family.samples.iter().filter(|samples| scrape.is_after(samples.scrapes_before));
    for samples in samples {
        for (own, value) in scrape.samples(samples.slot) {
            let attributes = [pairs(&samples.labels), pairs(own)].concat();
            points.push((T::from(*value), attributes));
        }
    }
}

fn attributes(family: &Family, series: &Series) -> Vec<KeyValue> {
    pairs(family.labels(series))
}

/// Parses labels without their braces.
fn pairs(labels: &str) -> Vec<KeyValue> {
    let pairs = name::parse_labels(labels).into_iter();
    pairs.map(|(label, value)| KeyValue::new(label, value)).collect()
}

pub(crate) fn push_counter(
    scrape: &Values,
    family: &Family,
    series: &Series,
    points: &mut Points<u64>,
) {
    let value = match series.instrument {
        Instrument::Shown => scrape.number(series).map(u64::from),
        _ => Some(scrape.sums(series)[0] as u64),
    };
    points.extend(value.map(|value| (value, attributes(family, series))));
}

pub(crate) fn push_gauge(
    scrape: &Values,
    family: &Family,
    series: &Series,
    points: &mut Points<f64>,
) {
    let value = match series.instrument {
        Instrument::Shown => scrape.number(series).map(f64::from),
        _ => Some(scrape.gauge(series)),
    };
    points.extend(value.map(|value| (value, attributes(family, series))));
}

pub(crate) fn push_buckets(
    scrape: &Values,
    family: &Family,
    series: &Series,
    points: &mut Points<u64>,
) {
    let Instrument::Histogram(histogram) = &series.instrument else { return };
    let mut count = 0_u64;
    for (bound, &inside) in histogram.0.bounds().texts().zip(scrape.sums(series)) {
        count = count.wrapping_add(inside as u64);
        let mut attributes = attributes(family, series);
        attributes.push(KeyValue::new("le", bound.to_owned()));
        points.push((count, attributes));
    }
}

pub(crate) fn push_count(
    scrape: &Values,
    family: &Family,
    series: &Series,
    points: &mut Points<u64>,
) {
    let Instrument::Histogram(histogram) = &series.instrument else { return };
    let inside = scrape.sums(series).iter().take(histogram.0.bounds().buckets());
    let count = inside.fold(0_u64, |count, &inside| count.wrapping_add(inside as u64));
    points.push((count, attributes(family, series)));
}

pub(crate) fn push_sum(
    scrape: &Values,
    family: &Family,
    series: &Series,
    points: &mut Points<f64>,
) {
    let Instrument::Histogram(histogram) = &series.instrument else { return };
    let buckets = histogram.0.bounds().buckets();
    let [whole, billionths] = [buckets, buckets + 1].map(|at| scrape.sums(series)[at]);
    let sum = whole as f64 + billionths as f64 / BILLION as f64;
    points.push((sum, attributes(family, series)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{registry::Registry, structures::TopAccounts};

    /// Takes a scrape, and then lets a structure have the slot of a series that is removed.
    #[test]
    fn structure_has_no_values_in_earlier_scrapes() {
        let ledger = thiscpu::Ledger::<1>::new();
        let account = ledger.open();
        account.charge(0, 5);
        let top = || TopAccounts::new(&ledger, 0, 1, "account", |_| "a".to_owned());
        let registry = Registry::new();
        let removed = registry.counter("removed", "", &[]).unwrap();
        registry.register("first", top()).unwrap();
        let scrape = registry.read().values;
        assert!(registry.remove_handle(removed));
        registry.register("second", top()).unwrap();
        let points = |name| {
            let mut points: Points<f64> = Vec::new();
            push_all(
                &scrape,
                &registry.state(),
                (name, Kind::Gauge),
                push_gauge,
                &mut Observed::new(),
                &mut points,
            );
            points.len()
        };
        assert_eq!(["first", "second"].map(points), [1, 0]);
    }
}
