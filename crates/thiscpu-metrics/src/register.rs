//! Registration of structures of the program, beside the registry's own series.

use std::sync::Arc;

use crate::{
    callbacks::{Closure, Value},
    error::Error,
    family::Request,
    name::{self, Labels},
    registry::Registry,
    shown::{Description, Show},
};

impl Registry {
    /// Shows a structure of the program, such as a counter in a static.
    ///
    /// ```
    /// use thiscpu::{Budget, Counter};
    ///
    /// static REQUESTS: Counter = Counter::new();
    /// static MEMORY: Budget = Budget::new(1 << 30);
    ///
    /// let registry = thiscpu_metrics::Registry::new();
    /// registry.register("requests_total", &REQUESTS)?;
    /// registry.register("memory_bytes", &MEMORY)?;
    /// REQUESTS.add(3);
    /// let _lease = MEMORY.lease(4096)?;
    /// let text = registry.render();
    /// assert!(text.contains("\nrequests_total 3\n"));
    /// assert!(text.contains("\nmemory_bytes_held 4096\n"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// The table of [`Show`] says which structures have which series. Counters are summed with the
    /// registry's own, for one fence, so their values are exact. A budget's `x_held` costs what
    /// [`Budget::acquired`](thiscpu::Budget::acquired) costs, and is exact as well. The structure
    /// is kept until the registry is dropped, or all of its series are removed. Waits for a current
    /// scrape.
    ///
    /// # Errors
    ///
    /// Those of [`counter`](Registry::counter). Then no series is registered.
    pub fn register(&self, name: &str, structure: impl Show) -> Result<(), Error> {
        self.register_with(name, "", &[], structure)
    }

    /// Shows a structure, with a help text and labels for all of its series.
    ///
    /// An empty help text stands for that of the structure.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// let registry = thiscpu_metrics::Registry::new();
    /// let open = Arc::new(thiscpu::Counter::new());
    /// registry.register_with("sockets", "Open ones.", &[("kind", "tcp")], Arc::clone(&open))?;
    /// open.inc();
    /// assert!(registry.render().contains("\nsockets{kind=\"tcp\"} 1\n"));
    /// # Ok::<(), thiscpu_metrics::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`register`](Registry::register).
    pub fn register_with(
        &self,
        name: &str,
        help: &str,
        labels: Labels<'_>,
        structure: impl Show,
    ) -> Result<(), Error> {
        name::check(name)?;
        let structure = Arc::new(structure);
        let series = structure.series(name);
        let with_labels = |series: &Description| -> Vec<(String, String)> {
            let given = labels.iter().map(|&(label, value)| (label.to_owned(), value.to_owned()));
            series.labels.iter().cloned().chain(given).collect()
        };
        let all: Vec<_> = series.iter().map(with_labels).collect();
        let all: Vec<Vec<(&str, &str)>> = all
            .iter()
            .map(|labels| labels.iter().map(|(label, value)| (&**label, &**value)).collect())
            .collect();
        let request = |(series, labels)| {
            let Description { kind, name, help: own, .. }: &Description = series;
            let help = if help.is_empty() { own } else { help };
            Request { kind: *kind, name, origin: name, help, labels }
        };
        let requests: Vec<_> =
            series.iter().zip(all.iter().map(Vec::as_slice)).map(request).collect();
        self.state().add_shown(structure, labels, &requests)
    }

    /// Shows the result of a closure as a gauge.
    ///
    /// ```
    /// let registry = thiscpu_metrics::Registry::new();
    /// let began = std::time::Instant::now();
    /// registry.register_gauge("uptime_seconds", "", &[], move || began.elapsed().as_secs_f64())?;
    /// assert!(registry.render().contains("\nuptime_seconds 0.0"));
    /// # Ok::<(), thiscpu_metrics::Error>(())
    /// ```
    ///
    /// Each scrape calls the closure once, on its own thread and with the registry's lock. So the
    /// closure must not use the registry, and delays the scrape for as long as it takes. In a
    /// scrape in which it panics, the gauge is not shown.
    ///
    /// # Errors
    ///
    /// Those of [`counter`](Registry::counter).
    pub fn register_gauge(
        &self,
        name: &str,
        help: &str,
        labels: Labels<'_>,
        value: impl Fn() -> f64 + Send + Sync + 'static,
    ) -> Result<(), Error> {
        self.register_with(name, help, labels, Closure(value))
    }

    /// Shows the result of a closure as a counter if the name ends in `_total`, else as a gauge.
    ///
    /// For C. A scrape leaves the series out if the closure returns `None`.
    #[doc(hidden)]
    pub fn register_value(
        &self,
        name: &str,
        help: &str,
        labels: Labels<'_>,
        value: impl Fn() -> Option<i64> + Send + Sync + 'static,
    ) -> Result<(), Error> {
        self.register_with(name, help, labels, Value(value))
    }
}
