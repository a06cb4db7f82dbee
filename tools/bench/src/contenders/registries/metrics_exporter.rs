//! The metrics-exporter-prometheus crate, used through handles of the `metrics` facade.

use metrics::{Key, Label, Level, Metadata, Recorder as _};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

use super::{Contender, METRIC};

/// The place in the program where a metric is registered. Neither recorder reads it.
pub(super) const METADATA: Metadata<'static> = Metadata::new(module_path!(), Level::INFO, None);

/// The recorder, and the handle that renders its metrics.
pub(crate) struct MetricsExporter {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
}

/// Returns the facade's key of the counter with this label.
pub(super) fn key(label: &str) -> Key {
    Key::from_parts(METRIC, vec![Label::new("path", label.to_owned())])
}

impl Contender for MetricsExporter {
    type Handle = metrics::Counter;

    fn new() -> Self {
        let recorder = PrometheusBuilder::new().build_recorder();
        Self { handle: recorder.handle(), recorder }
    }

    fn counter(&self, label: &str) -> metrics::Counter {
        self.recorder.register_counter(&key(label), &METADATA)
    }

    #[inline(always)]
    fn increment(counter: &metrics::Counter) {
        counter.increment(1);
    }

    fn scrape(&self) -> String {
        self.handle.render()
    }
}
