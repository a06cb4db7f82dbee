//! Registries of metrics that Prometheus scrapes.

pub(crate) use self::designs::{MetricsExporter, PrometheusClient, ThisCpu, ThisCpuFacade};
pub(crate) use self::shared::ThisCpuShared;

mod designs;
pub(crate) mod look_up;
mod shared;
#[cfg(test)]
mod tests;

family! {
    $ registries: MetricsExporter PrometheusClient ThisCpu ThisCpuFacade ThisCpuShared
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

    fn scrape(&self) -> String;
}

/// Returns the sum of all counters in the text of a scrape.
pub(crate) fn total(text: &str) -> u64 {
    let values = text.lines().filter(|line| !line.starts_with('#'));
    let value = |line: &str| line.rsplit_once(' ')?.1.parse::<u64>().ok();
    values.filter_map(value).sum()
}
