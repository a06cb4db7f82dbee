//! The values of one scrape.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::MutexGuard,
};

use thiscpu::{Summable, sum_all};

use crate::{
    family::{Instrument, Series},
    gauge::CurrentScrape,
    histogram::Histogram,
    shown::{Number, Observation, Shown},
    source::Source,
    state::State,
};

/// The values of a scrape, with the registry's lock: no series is added while this exists.
pub(crate) struct Reading<'a> {
    pub(crate) state: MutexGuard<'a, State>,
    /// Whether scrapes in OpenMetrics show when series were registered.
    pub(crate) has_created: bool,
    pub(crate) values: Values,
}

/// The values of a scrape.
#[derive(Debug, Default)]
pub(crate) struct Values {
    /// The number of the scrape. Series that were added later have no values in it.
    #[cfg(feature = "opentelemetry")]
    scrape: u64,
    /// The counters of all sources. For a gauge, the bits of its value.
    sums: Vec<i64>,
    observed: Vec<Observation>,
    /// For each slot, the index of its first value in `sums`, or in `observed`.
    offsets: Vec<usize>,
}

impl Values {
    /// Takes a scrape. The documentation of `gauge` explains the steps.
    pub(crate) fn read(state: &mut State, current_scrape: &CurrentScrape) -> Values {
        state.scrapes += 1;
        let scrape = state.scrapes;
        let current = current_scrape.begin(scrape);
        let slots = &state.slots;
        let (mut offsets, mut length) = (vec![0; slots.len()], 0);
        let mut summables: Vec<&dyn Summable> = Vec::with_capacity(slots.len());
        for (slot, source) in slots.iter() {
            if let Source::Gauge(gauge) = source {
                gauge.begin_scrape();
            }
            if let Some((summable, values)) = source.summable() {
                summables.push(summable);
                offsets[slot] = length;
                length += values;
            }
        }
        let mut sums = sum_all(&summables);
        for (slot, source) in slots.iter() {
            if let Source::Gauge(gauge) = source {
                let value = &mut sums[offsets[slot]];
                *value = gauge.read_after_scrape(scrape, *value).to_bits() as i64;
            }
        }
        drop(current);
        let mut observed = Vec::new();
        for (slot, source) in slots.iter() {
            if let Source::Shown { shown, .. } = source {
                let values = shown.summable().map_or(0, |(_, values)| values);
                observed.push(observe(&**shown, &sums[offsets[slot]..][..values]));
                offsets[slot] = observed.len() - 1;
            }
        }
        let values = Values {
            #[cfg(feature = "opentelemetry")]
            scrape,
            sums,
            observed,
            offsets,
        };
        values.carry_billionths(state);
        values
    }

    /// Moves whole units out of the billionths of all histograms.
    fn carry_billionths(&self, state: &State) {
        for series in state.families.values().flat_map(|family| &family.series) {
            if let Instrument::Histogram(Histogram(core)) = &series.instrument {
                core.carry_billionths(self.sums(series)[core.bounds().buckets() + 1]);
            }
        }
    }

    /// Returns whether the scrape is a later one than that many.
    #[cfg(feature = "opentelemetry")]
    pub(crate) fn is_after(&self, scrapes: u64) -> bool {
        scrapes < self.scrape
    }

    /// Returns the values of a counter or a histogram, and those of others behind them.
    #[inline]
    pub(crate) fn sums(&self, series: &Series) -> &[i64] {
        &self.sums[self.offsets[series.slot] + series.index..]
    }

    /// Returns the values of the source of a series, and those of others behind them.
    pub(crate) fn of_source(&self, series: &Series) -> &[i64] {
        &self.sums[self.offsets[series.slot]..]
    }

    /// Returns the value of a gauge.
    #[inline]
    pub(crate) fn gauge(&self, series: &Series) -> f64 {
        f64::from_bits(self.sums(series)[0] as u64)
    }

    /// Returns the value of a series that the program's structure has, if it has one now.
    pub(crate) fn number(&self, series: &Series) -> Option<Number> {
        self.observed[self.offsets[series.slot]].numbers.get(series.index).copied().flatten()
    }

    /// Returns the samples of a structure whose series differ from scrape to scrape.
    pub(crate) fn samples(&self, slot: usize) -> &[(String, Number)] {
        let observation = self.offsets.get(slot).and_then(|&offset| self.observed.get(offset));
        observation.map_or(&[], |observation| &observation.samples)
    }
}

/// Returns the values of a structure; none if it panics, which the panic hook reports.
fn observe(shown: &dyn Shown, sums: &[i64]) -> Observation {
    let observe = || {
        let mut observation = Observation::default();
        shown.observe(sums, &mut observation);
        observation
    };
    catch_unwind(AssertUnwindSafe(observe)).unwrap_or_default()
}
