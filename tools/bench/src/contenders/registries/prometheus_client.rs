//! The prometheus-client crate.

use ::prometheus_client::{
    encoding::text::encode,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

use super::{Contender, METRIC};

type Labels = [(&'static str, String); 1];

/// The registry, and its family that holds all counters.
pub(crate) struct PrometheusClient {
    registry: Registry,
    family: Family<Labels, Counter>,
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
