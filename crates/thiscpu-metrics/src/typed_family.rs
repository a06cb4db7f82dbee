//! Typed families: the series of a metric, found by labels of a type of the program.

use std::{hash::BuildHasher as _, marker::PhantomData, ops::Deref, sync::Arc};

use foldhash::fast::RandomState;

use crate::{
    error::Error,
    family::Request,
    handle::Handle,
    label_set::{self, Hashing, LabelSet, Values},
    name,
    registry::Registry,
    table::{Entry, Evict, Found, Table},
};

/// The series of one metric, by labels of type `L`.
///
/// `H` is [`Counter`](crate::Counter), [`Gauge`](crate::Gauge) or
/// [`Histogram`](crate::Histogram). [`Registry::family`] makes one. A family is cheap to clone; all
/// clones are the same family. Families with equal names have common series, also with the
/// registry's own methods and with macros of the facade.
///
/// The first look-up of labels registers their series. It can be removed, and goes away when it is
/// idle, like any other series. A later look-up registers it again.
///
/// ```
/// use thiscpu_metrics::{Counter, LabelSet, LabelValues, Registry};
///
/// struct Request<'a> {
///     path: &'a str,
///     status: u16,
/// }
///
/// impl LabelSet for Request<'_> {
///     type Static = Request<'static>;
///     const NAMES: &'static [&'static str] = &["path", "status"];
///
///     #[inline]
///     fn push_values(&self, values: &mut impl LabelValues) {
///         values.push(self.path);
///         values.push_display(self.status);
///     }
/// }
///
/// let registry = Registry::new();
/// let requests = registry.family::<Request, Counter>("requests_total", "Requests so far.")?;
/// let path = String::from("/"); // a look-up only borrows it
/// requests.get_or_create(&Request { path: &path, status: 200 }).increment(1);
/// assert!(registry.render().ends_with("\nrequests_total{path=\"/\",status=\"200\"} 1\n"));
/// # Ok::<(), thiscpu_metrics::Error>(())
/// ```
pub struct Family<L, H>(Arc<Core<H>>, PhantomData<fn(&L)>);

struct Core<H> {
    registry: Registry,
    /// The name, as formats write it.
    name: String,
    origin: String,
    help: String,
    hasher: RandomState,
    table: Arc<Table<Values, H>>,
}

/// A handle of a series, borrowed from a [`Family`].
///
/// It is meant to be used at once. While it exists, the memory of series that are removed from the
/// registry stays, although they are hidden. Clone the handle to keep it, or to send it to another
/// thread: the borrowed one stays on its thread.
///
/// ```compile_fail,E0277
/// # fn on_another_thread(handle: thiscpu_metrics::FamilyHandle<'_, thiscpu_metrics::Counter>) {
/// std::thread::scope(|scope| _ = scope.spawn(move || handle.increment(1)));
/// # }
/// ```
///
/// It may be used in a child that its thread forks.
pub struct FamilyHandle<'a, H>(Origin<'a, H>);

enum Origin<'a, H> {
    Table(Found<'a, H>),
    New(H),
}

impl Registry {
    /// Makes a family, which registers its series when they are looked up.
    ///
    /// The name and the help text are those of [`counter`](Registry::counter). Waits for a current
    /// scrape.
    ///
    /// # Errors
    ///
    /// If a name or label is invalid or reserved, or if the name has another kind or help text.
    pub fn family<L, H>(&self, name: &str, help: &str) -> Result<Family<L::Static, H>, Error>
    where
        L: LabelSet,
        H: Handle + Clone + Send + Sync + 'static,
    {
        // As it was given, for the error.
        name::check(name)?;
        let (origin, name) = (name.to_owned(), name::of_kind(H::KIND, name).into_owned());
        let labels: Vec<_> = L::NAMES.iter().map(|&label| (label, "")).collect();
        let kind = H::KIND;
        self.check(&Request { kind, name: &name, origin: &origin, help, labels: &labels })?;
        let table = Arc::new(Table::new(Arc::clone(&self.handles().readers)));
        let evicted: Arc<dyn Evict> = table.clone();
        self.handles().add_family(Arc::downgrade(&evicted));
        let (registry, help, hasher) = (self.clone(), help.to_owned(), RandomState::default());
        let core = Core { registry, name, origin, help, hasher, table };
        Ok(Family(Arc::new(core), PhantomData))
    }
}

impl<L: 'static, H: Handle + Clone + Send + Sync + 'static> Family<L, H> {
    /// Returns the handle of the series with these labels, and registers it if it is new.
    ///
    /// For a known series this takes no lock, allocates nothing and never waits. It costs some 10
    /// ns, and the time to hash and compare the values. The hash has a random seed, but is not
    /// cryptographic. A new series waits for a current scrape.
    ///
    /// If the series cannot be registered, because a structure of the program has it or has taken
    /// the name, the handle works but no scrape shows it. [`Registry::rejected`] has the error.
    ///
    /// Must not be called from a signal handler. In a child of `fork` it may be called where
    /// [`Registry::counter`] may.
    ///
    /// # Panics
    ///
    /// If [`push_values`](LabelSet::push_values) does not push one value for each name.
    #[inline]
    pub fn get_or_create<Q: LabelSet<Static = L>>(&self, labels: &Q) -> FamilyHandle<'_, H> {
        let hash = Hashing::hash(labels, self.0.hasher.build_hasher());
        match self.0.table.find(hash, |known| label_set::are_equal(labels, known)) {
            Some(found) => FamilyHandle(Origin::Table(found)),
            None => FamilyHandle(Origin::New(self.create(labels, hash))),
        }
    }

    #[cold]
    fn create<Q: LabelSet<Static = L>>(&self, labels: &Q, hash: u64) -> H {
        self.0.create(Q::NAMES, label_set::copy(labels), hash)
    }

    /// Removes the series with these labels, and returns whether it existed.
    ///
    /// Calls [`Registry::remove`] with the name of the family and these labels.
    ///
    /// # Panics
    ///
    /// Under the conditions of [`thiscpu::Counter::sum`].
    pub fn remove<Q: LabelSet<Static = L>>(&self, labels: &Q) -> bool {
        let values = label_set::copy(labels);
        let labels: Vec<_> = label_set::pairs(Q::NAMES, &values).collect();
        self.0.registry.remove(&self.0.name, &labels)
    }
}

impl<H: Handle + Clone + Send + Sync + 'static> Core<H> {
    fn create(&self, names: &[&'static str], values: Values, hash: u64) -> H {
        let Core { registry, name, origin, help, table, .. } = self;
        let forgotten = table.forgotten();
        let labels: Vec<_> = label_set::pairs(names, &values).collect();
        let request = Request { kind: H::KIND, name, origin, help, labels: &labels };
        let (id, handle) = match registry.find_or_add::<H>(&request) {
            Ok((handle, _)) => (Some(handle.id()), handle),
            Err(error) => {
                registry.state().rejected.add(error);
                (None, registry.detached(name))
            }
        };
        let entry = Entry { id, key: values.clone(), handle: handle.clone() };
        table.insert(hash, entry, |known| *known == values, forgotten);
        handle
    }
}

impl<L, H> Clone for Family<L, H> {
    fn clone(&self) -> Self {
        Family(Arc::clone(&self.0), PhantomData)
    }
}

impl<L, H> std::fmt::Debug for Family<L, H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Family").field("name", &self.0.name).finish_non_exhaustive()
    }
}

impl<H> Deref for FamilyHandle<'_, H> {
    type Target = H;

    #[inline]
    fn deref(&self) -> &H {
        match &self.0 {
            Origin::Table(found) => found,
            Origin::New(handle) => handle,
        }
    }
}

impl<H: std::fmt::Debug> std::fmt::Debug for FamilyHandle<'_, H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}
