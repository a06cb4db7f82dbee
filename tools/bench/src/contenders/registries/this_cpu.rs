//! `thiscpu-metrics`, used through its own handles and through those of the `metrics` facade.

use metrics::Recorder as _;
use thiscpu_metrics::{Counter, Recorder, Registry};

use super::{Contender, METRIC, metrics_exporter};

/// The registry, used through its own handles.
pub(crate) struct ThisCpu(Registry);

impl Contender for ThisCpu {
    type Handle = Counter;

    fn new() -> Self {
        Self(Registry::new())
    }

    fn counter(&self, label: &str) -> Counter {
        let counter = self.0.counter(METRIC, "Requests", &[("path", label)]);
        counter.expect("each label is registered once")
    }

    #[inline(always)]
    fn increment(counter: &Counter) {
        counter.increment(1);
    }

    fn scrape(&self) -> String {
        self.0.render()
    }
}

/// The registry, used through handles of the facade.
pub(crate) struct ThisCpuFacade {
    registry: Registry,
    recorder: Recorder,
}

impl Contender for ThisCpuFacade {
    type Handle = metrics::Counter;

    fn new() -> Self {
        let registry = Registry::new();
        Self { recorder: registry.recorder(), registry }
    }

    fn counter(&self, label: &str) -> metrics::Counter {
        self.recorder.register_counter(&metrics_exporter::key(label), &metrics_exporter::METADATA)
    }

    #[inline(always)]
    fn increment(counter: &metrics::Counter) {
        counter.increment(1);
    }

    fn scrape(&self) -> String {
        self.registry.render()
    }
}
