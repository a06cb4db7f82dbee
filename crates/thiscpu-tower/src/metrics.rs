//! Series of the layers in a registry of thiscpu-metrics.

use std::sync::Arc;

use thiscpu_metrics::{Error, Registry};

use crate::concurrency_limit::ConcurrencyLimitLayer;
use crate::keyed_budgets::KeyedBudgets;
use crate::load_shed::LoadShedLayer;

/// Labels of all series of a layer.
type Labels<'a> = &'a [(&'a str, &'a str)];

impl<H> ConcurrencyLimitLayer<H> {
    /// Shows the layer's budget: limit, units held, and waiting services.
    ///
    /// The series of the name `x` are those of a budget, such as `x_held`; see
    /// [`Show`](thiscpu_metrics::Show).
    ///
    /// ```
    /// use thiscpu_metrics::Registry;
    /// use thiscpu_tower::ConcurrencyLimitLayer;
    ///
    /// let registry = Registry::new();
    /// let limit = ConcurrencyLimitLayer::new(100);
    /// limit.register(&registry, "requests", &[("route", "upload")])?;
    /// let _unit = limit.budget().lease(1).unwrap();
    /// let text = registry.render();
    /// assert!(text.contains("\nrequests_held{route=\"upload\"} 1\n"));
    /// assert!(text.contains("\nrequests_waiters{route=\"upload\"} 0\n"));
    /// # Ok::<(), thiscpu_metrics::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Registry::register`]. Then no series is registered.
    pub fn register(
        &self,
        registry: &Registry,
        name: &str,
        labels: Labels<'_>,
    ) -> Result<(), Error> {
        registry.register_with(name, "", labels, Arc::clone(self.budget()))
    }
}

impl<C, H> LoadShedLayer<C, H> {
    /// Shows the layer's budget, and the number of refused requests.
    ///
    /// The series of the name `x` are those of a budget, such as `x_held`, and the counter
    /// `x_refused_total`.
    ///
    /// ```
    /// use thiscpu_metrics::Registry;
    /// use thiscpu_tower::LoadShedLayer;
    ///
    /// let registry = Registry::new();
    /// LoadShedLayer::new(100).register(&registry, "requests", &[])?;
    /// assert!(registry.render().contains("\nrequests_refused_total 0\n"));
    /// # Ok::<(), thiscpu_metrics::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Registry::register`]. Then no series is registered.
    pub fn register(
        &self,
        registry: &Registry,
        name: &str,
        labels: Labels<'_>,
    ) -> Result<(), Error> {
        let refused = format!("{name}_refused_total");
        registry.register_with(&refused, REFUSED, labels, Arc::clone(self.refused()))?;
        let budget = registry.register_with(name, "", labels, Arc::clone(self.budget()));
        budget.inspect_err(|_| {
            registry.remove(&refused, labels);
        })
    }
}

const REFUSED: &str = "Requests that were refused.";

impl<K: Send + Sync + 'static> KeyedBudgets<K> {
    /// Shows the number of keys, and the units and refused requests of all keys together.
    ///
    /// The series of the name `x` are the gauges `x_keys`, `x_limit` (that of each key) and
    /// `x_held`, and the counter `x_refused_total`. A scrape costs what
    /// [`keys`](KeyedBudgets::keys) and [`acquired_by_all`](KeyedBudgets::acquired_by_all) cost.
    ///
    /// ```
    /// use thiscpu_metrics::Registry;
    /// use thiscpu_tower::KeyedLimitLayer;
    ///
    /// let registry = Registry::new();
    /// let limit = KeyedLimitLayer::new(10, |tenant: &u32| *tenant);
    /// limit.budgets().register(&registry, "tenant_requests", &[])?;
    /// assert!(registry.render().contains("\ntenant_requests_keys 0\n"));
    /// # Ok::<(), thiscpu_metrics::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`Registry::register`]. Then no series is registered.
    pub fn register(
        self: &Arc<Self>,
        registry: &Registry,
        name: &str,
        labels: Labels<'_>,
    ) -> Result<(), Error> {
        let refused = format!("{name}_refused_total");
        registry.register_with(&refused, REFUSED, labels, Arc::clone(self.refused()))?;
        let gauges = [
            ("keys", "Keys that have a budget."),
            ("limit", "The most units of a key that may be held."),
            ("held", "Units of all keys that are held."),
        ];
        let values: [fn(&Self) -> u64; 3] =
            [|budgets| budgets.keys() as u64, Self::limit, Self::acquired_by_all];
        let mut registered = vec![refused];
        for ((suffix, help), value) in gauges.into_iter().zip(values) {
            let (gauge, budgets) = (format!("{name}_{suffix}"), Arc::clone(self));
            let value = move || value(&budgets) as f64;
            if let Err(error) = registry.register_gauge(&gauge, help, labels, value) {
                registered.iter().for_each(|name| {
                    registry.remove(name, labels);
                });
                return Err(error);
            }
            registered.push(gauge);
        }
        Ok(())
    }
}
