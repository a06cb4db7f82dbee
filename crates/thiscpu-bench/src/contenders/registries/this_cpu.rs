//! `thiscpu-metrics`, by handles of the `metrics` facade.

use metrics::Recorder as _;
use thiscpu_metrics::{Recorder, Registry};

use super::{Contender, metrics_exporter};

/// The registry and its recorder.
pub(crate) struct ThisCpu {
    registry: Registry,
    recorder: Recorder,
}

impl Contender for ThisCpu {
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
