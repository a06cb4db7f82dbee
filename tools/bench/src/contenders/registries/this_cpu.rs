//! `thiscpu-metrics`, by its own handles and by those of the `metrics` facade.

use metrics::Recorder as _;
use thiscpu_metrics::{Counter, Recorder, Registry};

use super::{Contender, METRIC, metrics_exporter};

/// By its own.
pub(crate) struct ThisCpu(Registry);

impl Contender for ThisCpu {
    type Handle = Counter;

    fn new() -> Self {
        Self(Registry::new())
    }

    fn counter(&self, label: &str) -> Counter {
        let counter = self.0.counter(METRIC, "Requests", &[("path", label)]);
        counter.expect("no label is asked for twice")
    }

    #[inline(always)]
    fn increment(counter: &Counter) {
        counter.increment(1);
    }

    fn scrape(&self) -> String {
        self.0.render()
    }
}

/// By the facade's.
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
