//! The crates, through their own handles or through those of the `metrics` facade.

use ::prometheus_client::{
    encoding::text::encode,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};
use metrics::{Key, Label, Level, Metadata, Recorder as _};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

use super::{Contender, METRIC};

/// Implements the parts of a contender that go through the `metrics` facade.
macro_rules! through_facade {
    () => {
        type Handle = metrics::Counter;

        fn counter(&self, label: &str) -> metrics::Counter {
            // The place where the metric is registered. Neither recorder reads it.
            const METADATA: Metadata<'static> = Metadata::new(module_path!(), Level::INFO, None);
            let key = Key::from_parts(METRIC, vec![Label::new("path", label.to_owned())]);
            self.recorder.register_counter(&key, &METADATA)
        }

        #[inline(always)]
        fn increment(counter: &metrics::Counter) {
            counter.increment(1);
        }
    };
}

/// The metrics-exporter-prometheus crate, through the facade.
pub(crate) struct MetricsExporter {
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
}

impl Contender for MetricsExporter {
    through_facade!();

    fn new() -> Self {
        let recorder = PrometheusBuilder::new().build_recorder();
        Self { handle: recorder.handle(), recorder }
    }

    fn scrape(&self) -> String {
        self.handle.render()
    }
}

/// The prometheus-client crate: a registry, and its family that holds all counters.
pub(crate) struct PrometheusClient {
    registry: Registry,
    family: Family<[(&'static str, String); 1], Counter>,
}

impl Contender for PrometheusClient {
    type Handle = Counter;

    fn new() -> Self {
        let (mut registry, family) = (Registry::default(), Family::default());
        registry.register(METRIC, "Requests", Family::clone(&family));
        Self { registry, family }
    }

    fn counter(&self, label: &str) -> Counter {
        self.family.get_or_create_owned(&[("path", label.to_owned())])
    }

    #[inline(always)]
    fn increment(counter: &Counter) {
        counter.inc();
    }

    fn scrape(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("writing to a string does not fail");
        text
    }
}

/// `thiscpu-metrics`, through its own handles.
pub(crate) struct ThisCpu(thiscpu_metrics::Registry);

impl Contender for ThisCpu {
    type Handle = thiscpu_metrics::Counter;

    fn new() -> Self {
        Self(thiscpu_metrics::Registry::new())
    }

    fn counter(&self, label: &str) -> thiscpu_metrics::Counter {
        let counter = self.0.counter(METRIC, "Requests", &[("path", label)]);
        counter.expect("each label is registered once")
    }

    #[inline(always)]
    fn increment(counter: &thiscpu_metrics::Counter) {
        counter.increment(1);
    }

    fn scrape(&self) -> String {
        self.0.render()
    }
}

/// `thiscpu-metrics`, through the facade.
pub(crate) struct ThisCpuFacade {
    registry: thiscpu_metrics::Registry,
    recorder: thiscpu_metrics::Recorder,
}

impl Contender for ThisCpuFacade {
    through_facade!();

    fn new() -> Self {
        let registry = thiscpu_metrics::Registry::new();
        Self { recorder: registry.recorder(), registry }
    }

    fn scrape(&self) -> String {
        self.registry.render()
    }
}
