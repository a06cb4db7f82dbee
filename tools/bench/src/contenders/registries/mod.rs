//! Registries of metrics that Prometheus scrapes.

pub(crate) use self::{
    metrics_exporter::MetricsExporter,
    prometheus_client::PrometheusClient,
    this_cpu::{ThisCpu, ThisCpuFacade},
};
use super::Name;

mod metrics_exporter;
mod prometheus_client;
#[cfg(test)]
mod tests;
mod this_cpu;

/// Who competes as a registry.
pub(crate) const ALL: &[Name] =
    &[Name::MetricsExporter, Name::PrometheusClient, Name::ThisCpu, Name::ThisCpuFacade];

/// The name of the only metric, as it is registered. `prometheus-client` writes `_total` behind it.
const METRIC: &str = "requests";

/// A registry of counters, which are apart by a label.
pub(crate) trait Contender: Send + Sync + Sized {
    /// What a counter is incremented by.
    type Handle: Clone + Send + Sync;

    fn new() -> Self;

    /// Registers the counter whose label has this value; once.
    fn counter(&self, label: &str) -> Self::Handle;

    /// Adds 1.
    fn increment(counter: &Self::Handle);

    /// What a scrape is answered with.
    fn scrape(&self) -> String;
}

/// What all counters in the text of a scrape come to.
pub(crate) fn total(text: &str) -> u64 {
    let values = text.lines().filter(|line| !line.starts_with('#'));
    let value = |line: &str| line.rsplit_once(' ')?.1.parse::<u64>().ok();
    values.filter_map(value).sum()
}

/// Evaluates an expression with `C` standing for the type of the registry called `$name`.
macro_rules! for_registry {
    ($name:expr, $C:ident => $body:expr) => {
        for_registry!(@match $name, $C, $body, MetricsExporter PrometheusClient ThisCpu ThisCpuFacade)
    };
    (@match $name:expr, $C:ident, $body:expr, $($variant:ident)*) => {
        match $name {
            $($crate::contenders::Name::$variant => {
                type $C = $crate::contenders::registries::$variant;
                $body
            })*
            other => unreachable!("{other} is no registry"),
        }
    };
}
pub(crate) use for_registry;
