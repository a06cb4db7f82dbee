//! How series go away, without losing an increment.
//!
//! A series that is removed, or that was idle for too long, is hidden: scrapes leave it out. Its
//! value at that moment is kept. Then one of two things happens, both under the registry's lock:
//!
//! - A scrape finds another value, because a handle was used. Then the series is shown again, with
//!   all of its increments.
//! - Nobody has a handle. Nobody can get one either, because the registry's lock is held and the
//!   facade's caches were emptied of it. So the value is final. If it is still the value that was
//!   kept, the series and its memory are freed, else the series is shown again.
//!
//! A program that removes a series discards what no scrape has shown yet. A series that is idle
//! loses nothing, because the value that is kept is the last one that a scrape showed.
//!
//! The number of handles is that of references to the series' core. A reference is dropped by a
//! release operation, and the acquire fence after the number was read pairs with it. So the sum
//! after the fence includes the increments of all handles that were dropped.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
    sync::{
        Arc,
        atomic::{Ordering::Acquire, fence},
    },
    time::Instant,
};

use thiscpu::{Summable, sum_all};

use crate::{
    builder::Settings,
    counter::Repr,
    family::{Family, Instrument, Series},
    presence::Presence,
    reading::Values,
    source::Source,
    state::State,
};

impl Series {
    /// Returns a value that changes with each increment, given the values of its source.
    fn signature(&self, sums: &[i64]) -> i64 {
        let own = &sums[self.index..];
        match &self.instrument {
            Instrument::Histogram(histogram) => {
                own[..histogram.0.bounds().buckets()].iter().fold(0, |sum, n| sum.wrapping_add(*n))
            }
            Instrument::Gauge(gauge) => gauge.0.value_with(own[0]).to_bits() as i64,
            Instrument::Counter(_) => own[0],
            Instrument::Shown => 0,
        }
    }

    /// Returns whether only the registry refers to the series.
    fn is_unused(&self) -> bool {
        match &self.instrument {
            Instrument::Counter(counter) => match &counter.0 {
                Repr::Row(own) => Arc::strong_count(own) == 1,
                Repr::Group(member) => Arc::strong_count(member) == 1,
            },
            // One of the references is that of the source.
            Instrument::Gauge(gauge) => Arc::strong_count(&gauge.0) == 2,
            Instrument::Histogram(histogram) => Arc::strong_count(&histogram.0) == 2,
            Instrument::Shown => true,
        }
    }
}

impl State {
    /// Removes series: frees those without handles, and hides the others.
    ///
    /// `ids` are sorted. The facade's caches have no handles of them.
    pub(crate) fn remove(&mut self, ids: &[u64]) {
        let unused = self.unused(ids);
        let values = self.signatures(ids);
        for (&id, value) in ids.iter().zip(values) {
            match unused.binary_search(&id).is_ok() {
                true => self.free(id, value),
                false => {
                    self.series_mut(id).presence.hide(value);
                    self.hidden.insert(id);
                }
            }
        }
        self.shrink();
    }

    /// Returns whether a series exists and is not hidden.
    pub(crate) fn is_shown(&self, id: u64) -> bool {
        self.places.contains_key(&id) && !self.hidden.contains(&id)
    }

    /// Returns the numbers of series by their labels, as they are written between braces.
    pub(crate) fn ids_by_labels(&self, fits: impl Fn(&str) -> bool) -> Vec<u64> {
        let mut ids = Vec::new();
        for family in self.families.values() {
            let fitting = family.series.iter().filter(|series| fits(family.labels(series)));
            ids.extend(fitting.map(|series| series.id));
        }
        ids
    }

    /// Shows hidden series that have changed, and hides those that were idle for too long.
    pub(crate) fn update_presence(&mut self, values: &Values, settings: &Settings) {
        if self.hidden.is_empty() && !settings.has_idle_timeout() {
            return;
        }
        let now = Instant::now();
        for family in self.families.values_mut() {
            let timeout = settings.idle_timeout(family.kind);
            for series in &mut family.series {
                if matches!(series.instrument, Instrument::Shown) {
                    continue;
                }
                let value = match series.instrument {
                    Instrument::Gauge(_) => values.gauge(series).to_bits() as i64,
                    _ => series.signature(values.of_source(series)),
                };
                let presence = &mut series.presence;
                if presence.value() != value {
                    *presence = Presence::of(value, now);
                    self.hidden.remove(&series.id);
                } else if timeout.is_some_and(|timeout| presence.is_idle(now, timeout)) {
                    presence.hide(value);
                    self.hidden.insert(series.id);
                }
            }
        }
    }

    /// Frees hidden series without handles. The facade's caches have no handles of them.
    pub(crate) fn free_hidden(&mut self) {
        let hidden: Vec<u64> = self.hidden.iter().copied().collect();
        let unused = self.unused(&hidden);
        let values = self.signatures(&unused);
        for (id, value) in unused.into_iter().zip(values) {
            let presence = &mut self.series_mut(id).presence;
            if presence.value() == value {
                self.free(id, value);
            } else {
                // A handle was used after the scrape, and dropped. The next scrape shows it.
                presence.show();
                self.hidden.remove(&id);
            }
        }
        self.shrink();
    }

    /// Returns those of the series that have no handles, in order.
    ///
    /// Increments of dropped handles are visible afterwards.
    fn unused(&self, ids: &[u64]) -> Vec<u64> {
        let unused = ids.iter().copied().filter(|&id| self.series_of(id).1.is_unused()).collect();
        // Pairs with the release operations by which the references were dropped.
        fence(Acquire);
        unused
    }

    /// Returns the signatures of series now, for one fence.
    fn signatures(&self, ids: &[u64]) -> Vec<i64> {
        let (mut offsets, mut length) = (BTreeMap::new(), 0);
        let mut summables: Vec<&dyn Summable> = Vec::new();
        for &id in ids {
            let slot = self.series_of(id).1.slot;
            let source = self.slots.get(slot).summable();
            if let (Some((summable, values)), false) = (source, offsets.contains_key(&slot)) {
                offsets.insert(slot, length);
                summables.push(summable);
                length += values;
            }
        }
        let sums = sum_all(&summables);
        let signature = |&id: &u64| {
            let (_, series) = self.series_of(id);
            offsets.get(&series.slot).map_or(0, |&offset| series.signature(&sums[offset..]))
        };
        ids.iter().map(signature).collect()
    }

    fn series_of(&self, id: u64) -> (&Family, &Series) {
        let (family, place) = self.places[&id];
        let family = &self.families[&family];
        (family, &family.series[place])
    }

    /// Frees a series without handles, whose value is final.
    fn free(&mut self, id: u64, value: i64) {
        let Some((number, place)) = self.places.remove(&id) else { return };
        self.hidden.remove(&id);
        let family = self.families.get_mut(&number).expect("a series has a family");
        let series = family.series.swap_remove(place);
        if let Some(moved) = family.series.get(place) {
            self.places.insert(moved.id, (number, place));
        }
        self.series.remove(family.text(&series));
        family.remove_text(&series);
        if family.series.is_empty() {
            self.remove_family(number);
        }
        match &series.instrument {
            Instrument::Counter(counter) => {
                // The next counter at this place begins at 0.
                counter.increment((value as u64).wrapping_neg());
                self.free_counter(series.slot, series.index);
            }
            Instrument::Gauge(_) | Instrument::Histogram(_) => drop(self.slots.remove(series.slot)),
            Instrument::Shown => {
                self.has_freed_names = true;
                self.free_shown(series.slot);
            }
        }
    }

    /// Frees the place of a counter in its row, and the row with its last counter.
    fn free_counter(&mut self, slot: usize, index: usize) {
        let used = match self.slots.get_mut(slot) {
            Source::CounterRow { used, .. } => {
                self.open_rows.insert(slot);
                used
            }
            Source::GroupRow { used, .. } => used,
            _ => unreachable!("a counter is in a row"),
        };
        *used &= !(1 << index);
        if *used == 0 {
            self.open_rows.remove(&slot);
            if let Source::GroupRow { key, .. } = self.slots.remove(slot) {
                self.rows.remove(&key);
            }
        }
    }

    /// Frees a structure with its last series.
    fn free_shown(&mut self, slot: usize) {
        if let Source::Shown { series, .. } = self.slots.get_mut(slot) {
            *series -= 1;
            if *series == 0 {
                self.slots.remove(slot);
            }
        }
    }

    /// Returns memory that maps and lists no longer need.
    fn shrink(&mut self) {
        fn is_sparse(length: usize, capacity: usize) -> bool {
            capacity > 64 && capacity / 4 > length
        }
        fn shrink<K: Hash + Eq, V>(map: &mut HashMap<K, V>) {
            if is_sparse(map.len(), map.capacity()) {
                map.shrink_to(2 * map.len());
            }
        }
        shrink(&mut self.series);
        shrink(&mut self.places);
        shrink(&mut self.owners);
        shrink(&mut self.rows);
        self.slots.shrink();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::HashMap,
        sync::atomic::{AtomicBool, Ordering::SeqCst},
        thread,
        time::Duration,
    };

    use metrics::{Key, Label, Level, Metadata, Recorder as _};

    use crate::{
        counter::Counter,
        error::Kind,
        label_set::{LabelSet, LabelValues},
        registry::Registry,
    };

    #[test]
    fn no_increment_by_the_facade_is_lost_while_idle_series_go_away() {
        let registry = registry_without_idle_series();
        let recorder = registry.recorder();
        assert_nothing_is_lost(&registry, |series| {
            let metadata = Metadata::new("", Level::INFO, None);
            let key = Key::from_parts("hits", vec![Label::new("i", series.to_string())]);
            recorder.register_counter(&key, &metadata).increment(1);
        });
    }

    #[test]
    fn no_increment_by_a_family_is_lost_while_idle_series_go_away() {
        struct Number(u64);

        impl LabelSet for Number {
            type Static = Number;
            const NAMES: &'static [&'static str] = &["i"];

            fn push_values(&self, values: &mut impl LabelValues) {
                values.push_display(self.0);
            }
        }

        let registry = registry_without_idle_series();
        let hits = registry.family::<Number, Counter>("hits", "").unwrap();
        let increment = |series| hits.get_or_create(&Number(series)).increment(1);
        assert_nothing_is_lost(&registry, increment);
    }

    fn registry_without_idle_series() -> Registry {
        Registry::builder().idle_timeout(&[Kind::Counter], Duration::ZERO).build().unwrap()
    }

    /// Increments series while scrapes free them, and adds the last values that scrapes showed.
    fn assert_nothing_is_lost(registry: &Registry, increment: impl Fn(u64) + Sync) {
        const SERIES: usize = 3;
        const EACH: u64 = 20_000;
        let is_over = AtomicBool::new(false);
        // By the number of the series: each life of a series has another one.
        let mut last: HashMap<u64, u64> = HashMap::new();
        let mut scrape = |registry: &Registry| {
            let reading = registry.read();
            for series in reading.state.families.values().flat_map(|family| &family.series) {
                if !series.presence.is_hidden() {
                    last.insert(series.id, reading.values.sums(series)[0] as u64);
                }
            }
        };
        thread::scope(|scope| {
            let adders: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        for i in 0..EACH {
                            increment(i % SERIES as u64);
                            if i % 64 == 0 {
                                thread::yield_now();
                            }
                        }
                    })
                })
                .collect();
            scope.spawn(|| {
                adders.into_iter().for_each(|adder| adder.join().unwrap());
                is_over.store(true, SeqCst);
            });
            while !is_over.load(SeqCst) {
                scrape(registry);
            }
        });
        scrape(registry);
        assert_eq!(last.values().sum::<u64>(), 2 * EACH);
        assert!(last.len() > SERIES, "no series went away");
    }

    /// Uses and drops the last handle between the sum of a scrape and its look for handles.
    #[test]
    fn increment_after_the_sum_of_a_scrape_is_shown_by_the_next() {
        let registry =
            Registry::builder().idle_timeout(&[Kind::Counter], Duration::ZERO).build().unwrap();
        let hits = registry.counter("hits", "", &[]).unwrap();
        hits.increment(1);
        assert!(registry.render().ends_with("hits_total 1\n"));
        let (mut state, values) = registry.begin_read();
        hits.increment(1);
        drop(hits);
        registry.let_idle_series_go(&mut state, &values);
        drop((state, values));
        assert!(registry.render().ends_with("hits_total 2\n"));
        assert_eq!(registry.render(), "");
    }

    #[test]
    fn removed_series_leave_no_memory() {
        let count = if thiscpu_test_support::is_full() { 20_000 } else { 1_000 };
        let registry = Registry::builder().group("g", &["member"]).build().unwrap();
        let add = |i: usize| {
            let (name, label) = (format!("n{}", i % 100), i.to_string());
            let labels = [("i", &*label)];
            let counter = registry.counter(&name, "", &labels).unwrap();
            let member = registry.counter("member", "", &labels).unwrap();
            let gauge = registry.gauge(&format!("gauge{i}"), "Gauge.", &[]).unwrap();
            counter.increment(1);
            gauge.set(0.5);
            (counter, member, gauge)
        };
        let remove = |(counter, member, gauge)| {
            assert!(registry.remove_handle(counter));
            assert!(registry.remove_handle(member));
            assert!(registry.remove_handle(gauge));
        };
        // One after the other, and all at once.
        (0..count).for_each(|i| remove(add(i)));
        let all: Vec<_> = (0..count).map(add).collect();
        all.into_iter().for_each(remove);
        let state = registry.state();
        assert!(state.families.is_empty() && state.hidden.is_empty() && state.owners.is_empty());
        assert_eq!(state.slots.len(), 0);
        assert!(state.series.capacity() < 128 && state.places.capacity() < 128);
        assert!(state.rows.capacity() < 128 && state.open_rows.is_empty());
    }
}
