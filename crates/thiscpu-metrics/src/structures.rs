//! The structures that a registry can show.

use std::{ops::Deref, sync::Arc};

use thiscpu::{
    Account, AccountId, Budget, Cache, CacheStats, ConstructedCache, Counter, Counters, Ledger,
    RawCache, Summable,
};

use crate::{
    callbacks::{Largest, labeled},
    error::Kind,
    shown::{Description, Number, Observation, Shown},
};

/// Implements [`Shown`] for `&'static T` and `Arc<T>`, by functions for `&T`.
macro_rules! show {
    ([$($generics:tt)*] $type:ty: $series:expr, $summable:expr, $observe:expr) => {
        show!(@ [$($generics)*] &'static $type: $type, $series, $summable, $observe);
        show!(@ [$($generics)*] Arc<$type>: $type, $series, $summable, $observe);
    };
    (@ [$($generics:tt)*] $handle:ty: $type:ty, $series:expr, $summable:expr, $observe:expr) => {
        impl<$($generics)*> Shown for $handle {
            fn series(&self, name: &str) -> Vec<Description> {
                let series: fn(&$type, &str) -> Vec<Description> = $series;
                series(self, name)
            }

            fn summable(&self) -> Option<(&dyn Summable, usize)> {
                let summable: fn(&$type) -> Option<(&dyn Summable, usize)> = $summable;
                summable(self)
            }

            fn observe(&self, sums: &[i64], out: &mut Observation) {
                let observe: fn(&$type, &[i64], &mut Observation) = $observe;
                observe(self, sums, out);
            }
        }
    };
}

show!([] Counter: |_, name| vec![Description::by_name(name)], |own| Some((own, 1)), push_sums);
show!([const N: usize] Counters<N>: |_, name| indexed::<N>(name), |own| Some((own, N)), push_sums);
show!([] Budget: |_, name| budget_series(name), |_| None, push_budget);
show!([T: 'static] Cache<T>: |_, name| cache_series(name), |_| None,
    |own, _, out| push_stats(&own.stats(), out));
show!([T: Send + 'static] ConstructedCache<T>: |_, name| cache_series(name), |_| None,
    |own, _, out| push_stats(&own.stats(), out));
show!([] RawCache: |_, name| cache_series(name), |_| None,
    |own, _, out| push_stats(&own.stats(), out));

fn push_sums<T>(_: &T, sums: &[i64], out: &mut Observation) {
    sums.iter().for_each(|&sum| out.push(Number::Signed(sum)));
}

fn indexed<const N: usize>(name: &str) -> Vec<Description> {
    (0..N).map(|i| Description::by_name(name).label("index", i.to_string())).collect()
}

fn budget_series(name: &str) -> Vec<Description> {
    let series = |kind, suffix, help| Description::new(kind, format!("{name}_{suffix}"), help);
    vec![
        series(Kind::Gauge, "limit", "The most units that may be held."),
        series(Kind::Gauge, "held", "Units that are held."),
        series(Kind::Gauge, "waiters", "Threads and tasks that wait for units."),
        series(
            Kind::Counter,
            "over_released_total",
            "Units released but not held, as found so far.",
        ),
    ]
}

fn push_budget(budget: &Budget, _: &[i64], out: &mut Observation) {
    // `acquired` finds units in the lanes that were not held, so it comes before their number.
    let (limit, held) = (budget.limit(), budget.acquired());
    let units = [limit, held, budget.waiters() as u64, budget.over_released()];
    units.into_iter().for_each(|units| out.push(Number::Unsigned(units)));
}

fn cache_series(name: &str) -> Vec<Description> {
    let series = |kind, suffix, help| Description::new(kind, format!("{name}_{suffix}"), help);
    vec![
        series(Kind::Gauge, "object_bytes", "Bytes of an object."),
        series(Kind::Gauge, "slab_bytes", "Bytes of all slabs."),
        series(Kind::Gauge, "objects_outside_slabs", "Objects that are not free in a slab."),
        series(Kind::Gauge, "objects_in_barns", "Objects that barns keep."),
        series(Kind::Counter, "trades_total", "Sheaves traded with barns so far."),
    ]
}

fn push_stats(stats: &CacheStats, out: &mut Observation) {
    let gauges =
        [stats.object_bytes, stats.slab_bytes, stats.objects_outside_slabs, stats.objects_in_barns];
    gauges.into_iter().for_each(|value| out.push(Number::Unsigned(value as u64)));
    out.push(Number::Unsigned(stats.trades));
}

/// A row of counters whose series have names for their indexes.
///
/// ```
/// use thiscpu::Counters;
/// use thiscpu_metrics::Labeled;
///
/// static REQUESTS: Counters<2> = Counters::new();
///
/// let registry = thiscpu_metrics::Registry::new();
/// registry.register("requests_total", Labeled::new(&REQUESTS, "method", ["get", "put"]))?;
/// REQUESTS.add(1, 5);
/// assert!(registry.render().contains("\nrequests_total{method=\"put\"} 5\n"));
/// # Ok::<(), thiscpu_metrics::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Labeled<C, const N: usize> {
    counters: C,
    label: String,
    values: [String; N],
}

impl<C, const N: usize> Labeled<C, N>
where
    C: Deref<Target = Counters<N>>,
{
    /// Shows each counter with the label's value of its index.
    pub fn new(counters: C, label: &str, values: [&str; N]) -> Labeled<C, N> {
        Labeled { counters, label: label.to_owned(), values: values.map(str::to_owned) }
    }
}

impl<C, const N: usize> Shown for Labeled<C, N>
where
    C: Deref<Target = Counters<N>> + Send + Sync,
{
    fn series(&self, name: &str) -> Vec<Description> {
        labeled(name, &self.label, &self.values)
    }

    fn summable(&self) -> Option<(&dyn Summable, usize)> {
        Some((&*self.counters, N))
    }

    fn observe(&self, sums: &[i64], out: &mut Observation) {
        push_sums(self, sums, out);
    }
}

/// The accounts of a ledger with the largest values of one counter.
///
/// A scrape copies the whole ledger, as [`Ledger::for_each`] does, and keeps the largest. Accounts
/// with the value 0 are not shown. An account that is shown has the label that the program gives
/// it; two accounts must not have equal ones.
///
/// The metric cannot be removed. It goes away with its registry.
///
/// ```
/// use thiscpu::Ledger;
/// use thiscpu_metrics::TopAccounts;
///
/// let ledger = Ledger::<1>::new();
/// let tenants = [5, 90, 7].map(|bytes| {
///     let tenant = ledger.open();
///     tenant.charge(0, bytes);
///     tenant
/// });
/// let largest = tenants[1].id();
///
/// let registry = thiscpu_metrics::Registry::new();
/// let top = TopAccounts::new(&ledger, 0, 1, "tenant", move |id| {
///     if id == largest { "acme".to_owned() } else { id.to_string() }
/// });
/// registry.register("tenant_bytes", top)?;
/// assert!(registry.render().ends_with("\ntenant_bytes{tenant=\"acme\"} 90\n"));
/// # Ok::<(), thiscpu_metrics::Error>(())
/// ```
pub struct TopAccounts<const N: usize> {
    ledger: Ledger<N>,
    counter: usize,
    count: usize,
    label: String,
    name: Box<dyn Fn(AccountId) -> String + Send + Sync>,
}

impl<const N: usize> TopAccounts<N> {
    /// Shows the `count` accounts with the largest values of counter `counter`.
    ///
    /// `name` returns the value of the label `label` for an account. Each scrape calls it for the
    /// accounts that it shows. It must not use the registry.
    ///
    /// # Panics
    ///
    /// If `counter` is not below `N`.
    pub fn new(
        ledger: &Ledger<N>,
        counter: usize,
        count: usize,
        label: &str,
        name: impl Fn(AccountId) -> String + Send + Sync + 'static,
    ) -> TopAccounts<N> {
        assert!(counter < N, "an account of this ledger has {N} counters, so none is {counter}");
        let (ledger, name) = (ledger.clone(), Box::new(name));
        TopAccounts { ledger, counter, count, label: label.to_owned(), name }
    }
}

impl<const N: usize> std::fmt::Debug for TopAccounts<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { counter, count, label, .. } = self;
        let mut debug = f.debug_struct("TopAccounts");
        debug.field("counter", counter).field("count", count).field("label", label);
        debug.finish_non_exhaustive()
    }
}

impl<const N: usize> Shown for TopAccounts<N> {
    fn series(&self, name: &str) -> Vec<Description> {
        Largest::<AccountId>::series(name, &self.label)
    }

    fn has_samples(&self) -> bool {
        true
    }

    fn observe(&self, _: &[i64], out: &mut Observation) {
        let mut largest = Largest::new(self.count);
        self.ledger.for_each(|id, counters| largest.push(counters[self.counter], id.get(), id));
        largest.observe(&self.label, &self.name, out);
    }
}

/// One counter of an account, which keeps the account open.
///
/// Each scrape costs what [`Account::sum`] costs.
///
/// ```
/// let ledger = thiscpu::Ledger::<1>::new();
/// let account = ledger.open();
/// account.charge(0, 7);
///
/// let registry = thiscpu_metrics::Registry::new();
/// let bytes = thiscpu_metrics::AccountCounter::new(&account, 0);
/// registry.register_with("tenant_bytes", "", &[("tenant", "acme")], bytes)?;
/// assert!(registry.render().ends_with("\ntenant_bytes{tenant=\"acme\"} 7\n"));
/// # Ok::<(), thiscpu_metrics::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct AccountCounter<const N: usize> {
    account: Account<N>,
    counter: usize,
}

impl<const N: usize> AccountCounter<N> {
    /// Shows counter `counter` of an account.
    ///
    /// # Panics
    ///
    /// If `counter` is not below `N`.
    pub fn new(account: &Account<N>, counter: usize) -> AccountCounter<N> {
        assert!(counter < N, "an account of this ledger has {N} counters, so none is {counter}");
        AccountCounter { account: account.clone(), counter }
    }
}

impl<const N: usize> Shown for AccountCounter<N> {
    fn series(&self, name: &str) -> Vec<Description> {
        vec![Description::by_name(name)]
    }

    fn observe(&self, _: &[i64], out: &mut Observation) {
        out.push(Number::Signed(self.account.sum(self.counter)));
    }
}
