//! Registries of metrics that Prometheus scrapes.

pub(crate) use self::designs::{MetricsExporter, PrometheusClient, ThisCpu, ThisCpuFacade};

mod designs;
#[cfg(test)]
mod tests;

family! {
    $ registries: MetricsExporter PrometheusClient ThisCpu ThisCpuFacade
}

/// The name under which the only metric is registered. `prometheus-client` appends `_total`.
const METRIC: &str = "requests";

/// A registry of counters that differ in one label.
pub(crate) trait Contender: Send + Sync + Sized {
    type Handle: Clone + Send + Sync;

    fn new() -> Self;

    /// Registers the counter whose label has this value. Each value is registered only once.
    fn counter(&self, label: &str) -> Self::Handle;

    fn increment(counter: &Self::Handle);

    /// Looks the counter with this label up, which exists, and increments it.
    ///
    /// The label's text is copied, as for one that a program has just made.
    fn look_up_and_increment(&self, label: &str) {
        Self::increment(&self.counter(label));
    }

    fn scrape(&self) -> String;
}

/// Returns the sum of all counters in the text of a scrape.
pub(crate) fn total(text: &str) -> u64 {
    let values = text.lines().filter(|line| !line.starts_with('#'));
    let value = |line: &str| line.rsplit_once(' ')?.1.parse::<u64>().ok();
    values.filter_map(value).sum()
}
