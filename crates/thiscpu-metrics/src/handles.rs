//! Handles that look-ups have found, so that no look-up of them waits for a scrape.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use metrics::Key;

use crate::{
    counter::Counter,
    gauge::Gauge,
    handle::Handle,
    histogram::Histogram,
    readers::Readers,
    state::State,
    table::{Entry, Evict, Table},
};

/// The handles that recorders and families of a registry have looked up.
pub(crate) struct Handles {
    pub(crate) counters: FacadeTable<Counter>,
    pub(crate) gauges: FacadeTable<Gauge>,
    pub(crate) histograms: FacadeTable<Histogram>,
    /// The tables of families, which families own.
    families: Mutex<Vec<Weak<dyn Evict>>>,
    pub(crate) readers: Arc<Readers>,
}

/// Handles by keys of the facade; `None` for a metric that cannot be registered.
pub(crate) type FacadeTable<H> = Table<Key, Option<H>>;

impl Default for Handles {
    fn default() -> Handles {
        let readers = Arc::<Readers>::default();
        Handles {
            counters: Table::new(Arc::clone(&readers)),
            gauges: Table::new(Arc::clone(&readers)),
            histograms: Table::new(Arc::clone(&readers)),
            families: Mutex::default(),
            readers,
        }
    }
}

impl<H: Handle + Clone + Send + Sync + 'static> FacadeTable<H> {
    /// Returns the handle of a key; makes it if it is unknown.
    #[inline]
    pub(crate) fn get_or(&self, key: &Key, make: impl FnOnce() -> Option<H>) -> Option<H> {
        // A key contains its hash.
        match self.find(key.get_hash(), |known| known == key) {
            Some(known) => known.clone(),
            None => self.add(key, make),
        }
    }

    #[cold]
    fn add(&self, key: &Key, make: impl FnOnce() -> Option<H>) -> Option<H> {
        let forgotten = self.forgotten();
        // Without the table's lock: this may wait for a scrape. Two threads that make the same
        // handle get the same series from the registry.
        let handle = make();
        let id = handle.as_ref().map(H::id);
        let entry = Entry { id, key: key.clone(), handle: handle.clone() };
        self.insert(key.get_hash(), entry, |known| known == key, forgotten);
        handle
    }
}

impl Handles {
    /// Keeps a family's table without handles of series that go away.
    pub(crate) fn add_family(&self, table: Weak<dyn Evict>) {
        let mut families = self.families.lock().unwrap_or_else(PoisonError::into_inner);
        families.retain(|table| table.strong_count() > 0);
        families.push(table);
    }

    /// Calls a function with each table.
    fn for_each(&self, mut f: impl FnMut(&dyn Evict)) {
        let families: Vec<_> = {
            let families = self.families.lock().unwrap_or_else(PoisonError::into_inner);
            families.iter().filter_map(Weak::upgrade).collect()
        };
        let of_facade: [&dyn Evict; 3] = [&self.counters, &self.gauges, &self.histograms];
        of_facade.into_iter().chain(families.iter().map(|table| &**table)).for_each(&mut f);
    }

    /// Forgets the handles of series.
    ///
    /// A handle that another thread is looking up counts as one that the program has.
    pub(crate) fn evict(&self, ids: &[u64]) {
        self.for_each(|table| table.evict(ids));
        self.readers.collect();
    }

    /// Lets metrics be registered whose names were taken by a family that was removed.
    pub(crate) fn retry_rejected(&self, state: &mut State) {
        if std::mem::take(&mut state.has_freed_names) {
            self.for_each(|table| table.forget_rejected());
            self.readers.collect();
        }
    }
}
