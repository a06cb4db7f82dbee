//! The state under the registry's lock: families of series, and the sources of their values.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, hash_map::Entry},
    sync::Arc,
};

use thiscpu::Counters;

use crate::{
    builder::{Membership, Settings},
    counter::{Counter, GroupCounter, ROW_LEN, Repr, RowCounter},
    error::{Error, Kind},
    exemplar::millis_now,
    family::{self, Family, Instrument, Request, Samples, Series, next_id},
    gauge::{CurrentScrape, Gauge},
    histogram::Histogram,
    name::{self, Labels},
    presence::Presence,
    rejected::Rejected,
    row,
    shown::Shown,
    slots::Slots,
    source::Source,
};

/// All registered series.
#[derive(Default)]
pub(crate) struct State {
    /// By number, in order of registration.
    pub(crate) families: BTreeMap<u64, Family>,
    /// The number of families so far.
    families_so_far: u64,
    pub(crate) slots: Slots,
    /// Names of lines, each with the number of its family.
    pub(crate) owners: HashMap<String, u64>,
    /// The numbers of series by their text.
    pub(crate) series: HashMap<String, u64>,
    /// Series by number, each with the number of its family and its index in the family.
    pub(crate) places: HashMap<u64, (u64, usize)>,
    /// The numbers of series that are hidden.
    pub(crate) hidden: BTreeSet<u64>,
    /// Whether names or series are free that another metric may have been rejected for.
    pub(crate) has_freed_names: bool,
    /// The slots of groups' rows by group and labels.
    pub(crate) rows: HashMap<(usize, String), usize>,
    /// The slots of rows with room for counters without a group.
    pub(crate) open_rows: BTreeSet<usize>,
    /// Help texts of metrics that are not registered yet.
    helps: HashMap<String, String>,
    pub(crate) rejected: Rejected,
    /// The number of scrapes so far.
    pub(crate) scrapes: u64,
}

impl State {
    /// Returns the requested series, and whether it existed before.
    pub(crate) fn find_or_add(
        &mut self,
        request: &Request<'_>,
        settings: &Settings,
        current_scrape: &Arc<CurrentScrape>,
    ) -> Result<(Instrument, bool), Error> {
        let series = name::series(request.name, request.labels)?;
        let (family, membership) = self.admit(request, settings)?;
        if let Some(&id) = self.series.get(&series) {
            let known = self.series_mut(id);
            if let Instrument::Shown = known.instrument {
                // It has no handle.
                return Err(Error::DuplicateSeries { series });
            }
            let (instrument, was_hidden) = (known.instrument.clone(), known.presence.is_hidden());
            if was_hidden {
                known.presence.show();
                self.hidden.remove(&id);
            }
            return Ok((instrument, !was_hidden));
        }
        // No error is returned from here on.
        let family = family.unwrap_or_else(|| self.add_family(request));
        let known = self.family_mut(family);
        if known.help.is_empty() {
            known.help = request.help.to_owned();
        }
        let id = next_id();
        let (slot, index, instrument) = match (request.kind, membership) {
            (Kind::Counter, None) => self.add_counter(id),
            (Kind::Counter, Some(membership)) => {
                let labels = family::labels_in(request.name, &series);
                let members = settings.members(membership.group);
                self.add_group_counter(id, membership, labels, members)
            }
            (Kind::Gauge, _) => self.add_gauge(id, current_scrape),
            (Kind::Histogram, _) => self.add_histogram(id, request.name, settings),
        };
        self.add_series(family, series, (id, slot, index), instrument.clone());
        Ok((instrument, false))
    }

    /// Returns the family and the group of the requested series, if the request fits them.
    pub(crate) fn admit(
        &self,
        request: &Request<'_>,
        settings: &Settings,
    ) -> Result<(Option<u64>, Option<Membership>), Error> {
        let family = self.family(request)?;
        let membership = settings.membership(request.name);
        if let (Some(membership), Kind::Gauge | Kind::Histogram) = (membership, request.kind) {
            let reason =
                format!("{} is a {}; groups contain only counters", request.name, request.kind);
            let group = settings.group_name(membership.group).to_owned();
            return Err(Error::InvalidGroup { group, reason });
        }
        Ok((family, membership))
    }

    /// Adds the series of a structure of the program; none of them, if one cannot be added.
    ///
    /// All of them have `labels`, among others.
    pub(crate) fn add_shown(
        &mut self,
        shown: Arc<dyn Shown>,
        labels: Labels<'_>,
        requests: &[Request<'_>],
    ) -> Result<(), Error> {
        let has_samples = shown.has_samples();
        let (mut all, mut known) = (Vec::with_capacity(requests.len()), BTreeSet::new());
        for request in requests {
            let series = name::series(request.name, request.labels)?;
            let family = self.family(request)?;
            let is_known = self.series.contains_key(&series) || !known.insert(series.clone());
            if is_known || has_samples && family.is_some() {
                return Err(Error::DuplicateSeries { series });
            }
            all.push((series, request));
        }
        let slot = self.slots.add(Source::Shown { shown, series: requests.len() });
        for (index, (series, request)) in all.into_iter().enumerate() {
            let family = match self.owners.get(request.name) {
                Some(&family) => family,
                None => self.add_family(request),
            };
            match has_samples {
                true => self.add_samples(family, slot, name::inside_braces(labels)),
                false => {
                    self.add_series(family, series, (next_id(), slot, index), Instrument::Shown);
                }
            }
        }
        Ok(())
    }

    /// Lets a metric have the series that the structure in a slot has at each scrape.
    fn add_samples(&mut self, family: u64, slot: usize, labels: String) {
        let samples = Samples {
            slot,
            labels,
            #[cfg(feature = "opentelemetry")]
            scrapes_before: self.scrapes,
        };
        self.family_mut(family).samples = Some(samples);
    }

    /// Sets the help text of a metric, unless it has one.
    pub(crate) fn describe(&mut self, name: &str, help: &str) {
        let family = self.owners.get(name).and_then(|family| self.families.get_mut(family));
        match family {
            Some(family) if family.name == name && family.help.is_empty() => {
                family.help = help.to_owned();
                family.is_described = true;
            }
            Some(_) => {}
            None => drop(self.helps.entry(name.to_owned()).or_insert_with(|| help.to_owned())),
        }
    }

    /// Returns the family of the requested series, if it exists and the request fits it.
    fn family(&self, request: &Request<'_>) -> Result<Option<u64>, Error> {
        let name = request.name.to_owned();
        let Some(&at) = self.owners.get(request.name) else {
            return self.check_lines(request).map(|()| None);
        };
        let family = &self.families[&at];
        let (existing, requested) = (family.kind, request.kind);
        // A counter that the program calls `x` is `x_total`, and a gauge `x` is not.
        let is_mismatch = existing != requested && family.origin == request.origin;
        if family.name != request.name && !is_mismatch {
            let metric = family.name.clone();
            return Err(Error::NameConflict { name, metric });
        }
        if existing != requested {
            return Err(Error::KindMismatch { name, existing, requested });
        }
        if family.origin != request.origin {
            let (first, second) = (family.origin.clone(), request.origin.to_owned());
            return Err(Error::NameCollision { name, first, second });
        }
        let have_both = !request.help.is_empty() && !family.help.is_empty();
        if have_both && family.help != request.help {
            let (existing, requested) = (family.help.clone(), request.help.to_owned());
            return Err(Error::HelpMismatch { name, existing, requested });
        }
        if family.samples.is_some() {
            return Err(Error::DuplicateSeries { series: name });
        }
        Ok(Some(at))
    }

    /// Checks that no other line of a new metric has the name of another one.
    fn check_lines(&self, request: &Request<'_>) -> Result<(), Error> {
        let taken =
            family::lines(request.kind, request.name).find(|line| self.owners.contains_key(line));
        taken.map_or(Ok(()), |name| {
            Err(Error::NameConflict { name, metric: request.name.to_owned() })
        })
    }

    fn add_family(&mut self, request: &Request<'_>) -> u64 {
        let number = self.families_so_far;
        self.families_so_far += 1;
        let family = Family::new(request, self.helps.remove(request.name));
        self.owners.insert(request.name.to_owned(), number);
        self.owners.extend(family.lines().map(|line| (line, number)));
        self.families.insert(number, family);
        number
    }

    /// Returns the family of a name.
    #[cfg(feature = "opentelemetry")]
    pub(crate) fn family_named(&self, name: &str) -> Option<&Family> {
        self.families.get(self.owners.get(name)?).filter(|family| family.name == name)
    }

    /// Returns a series by its number.
    pub(crate) fn series_mut(&mut self, id: u64) -> &mut Series {
        let (family, place) = self.places[&id];
        &mut self.family_mut(family).series[place]
    }

    /// Removes a family without series.
    pub(crate) fn remove_family(&mut self, number: u64) {
        let Some(family) = self.families.remove(&number) else { return };
        self.has_freed_names = true;
        self.owners.remove(&family.name);
        for line in family.lines() {
            self.owners.remove(&line);
        }
        if family.is_described {
            self.helps.insert(family.name, family.help);
        }
    }

    fn family_mut(&mut self, number: u64) -> &mut Family {
        self.families.get_mut(&number).expect("a series has a family")
    }

    fn add_series(
        &mut self,
        number: u64,
        series: String,
        (id, slot, index): (u64, usize, usize),
        instrument: Instrument,
    ) {
        let own = Series {
            text: 0..0,
            slot,
            index,
            instrument,
            #[cfg(feature = "opentelemetry")]
            scrapes_before: self.scrapes,
            id,
            presence: Presence::new(),
            created: millis_now(),
        };
        let place = self.family_mut(number).push(&series, own);
        self.series.insert(series, id);
        self.places.insert(id, (number, place));
    }

    fn add_counter(&mut self, id: u64) -> (usize, usize, Instrument) {
        let new = || Source::CounterRow { row: Arc::new(Counters::new()), used: 0 };
        let slot = match self.open_rows.first() {
            Some(&slot) => slot,
            None => self.slots.add(new()),
        };
        let Source::CounterRow { row, used } = self.slots.get_mut(slot) else {
            unreachable!("an open row is a row of counters")
        };
        let index = used.trailing_ones() as usize;
        *used |= 1 << index;
        match used.count_ones() as usize {
            ROW_LEN => self.open_rows.remove(&slot),
            _ => self.open_rows.insert(slot),
        };
        let own = Arc::new(RowCounter::new(id, Arc::clone(row), index));
        (slot, index, Instrument::Counter(Counter(Repr::Row(own))))
    }

    /// Adds a counter of a group, to the row of those with the same labels.
    fn add_group_counter(
        &mut self,
        id: u64,
        member: Membership,
        labels: &str,
        members: usize,
    ) -> (usize, usize, Instrument) {
        let key = (member.group, labels.to_owned());
        let slot = match self.rows.entry(key) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                let (row, key) = (row::with_len(members), new.key().clone());
                *new.insert(self.slots.add(Source::GroupRow { row, key, used: 0 }))
            }
        };
        let Source::GroupRow { row, used, .. } = self.slots.get_mut(slot) else {
            unreachable!("a group's row is one")
        };
        *used |= 1 << member.index;
        let cell = Repr::Group(Arc::new(GroupCounter::new(id, Arc::clone(row), member.index)));
        (slot, member.index, Instrument::Counter(Counter(cell)))
    }

    fn add_gauge(
        &mut self,
        id: u64,
        current_scrape: &Arc<CurrentScrape>,
    ) -> (usize, usize, Instrument) {
        let gauge = Gauge::new(id, current_scrape);
        let slot = self.slots.add(Source::Gauge(Arc::clone(&gauge.0)));
        (slot, 0, Instrument::Gauge(gauge))
    }

    fn add_histogram(
        &mut self,
        id: u64,
        name: &str,
        settings: &Settings,
    ) -> (usize, usize, Instrument) {
        let histogram = Histogram::new(id, settings.bounds(name));
        let slot = self.slots.add(Source::Histogram(Arc::clone(&histogram.0)));
        (slot, 0, Instrument::Histogram(histogram))
    }
}
