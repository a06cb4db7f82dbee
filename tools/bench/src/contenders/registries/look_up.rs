//! Look-ups of counters by their labels.

use std::{borrow::Cow, fmt};

use ::prometheus_client::{
    encoding::{EncodeLabel as _, EncodeLabelSet, LabelSetEncoder, text::encode},
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};
use metrics::{Key, Label, Level, Metadata, NoopRecorder, Recorder};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use thiscpu_metrics::{LabelSet, LabelValues};

use super::{METRIC, shared};

/// The values of the labels besides the path, which are in the text of the program.
const OTHERS: [&str; 5] = ["get", "200", "web-01", "eu-central-1", "2.14.3"];

/// A registry that is asked for counters with `N` labels, the first one of which differs.
pub(crate) trait LookUp<const N: usize>: Send + Sync + Sized {
    fn new() -> Self;

    /// Looks the counter with this path up, made if it is new, and adds 1 to it.
    ///
    /// A contender that must own its labels copies a path that is `made`: the text is one that the
    /// program has just made. Others are in the program itself.
    fn increment(&self, path: &'static str, made: bool);

    fn scrape(&self) -> String;
}

/// Returns the path as a contender needs it that must own its labels.
#[inline(always)]
fn owned(path: &'static str, made: bool) -> Cow<'static, str> {
    if made { Cow::Owned(path.to_owned()) } else { Cow::Borrowed(path) }
}

/// The names of the labels.
const NAMES: [&str; 6] = ["path", "method", "status", "host", "zone", "version"];

/// The labels of a counter, owned.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Labels<const N: usize>([Cow<'static, str>; N]);

impl<const N: usize> EncodeLabelSet for Labels<N> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        let mut pairs = NAMES.iter().zip(&self.0);
        pairs.try_for_each(|(name, value)| (*name, &**value).encode(encoder.encode_label()))
    }
}

/// The prometheus-client crate: a family.
pub(crate) struct PrometheusClient<const N: usize> {
    registry: Registry,
    family: Family<Labels<N>, Counter>,
}

impl<const N: usize> LookUp<N> for PrometheusClient<N> {
    fn new() -> Self {
        let (mut registry, family) = (Registry::default(), Family::default());
        registry.register(METRIC, "Requests", Family::clone(&family));
        Self { registry, family }
    }

    #[inline(always)]
    fn increment(&self, path: &'static str, made: bool) {
        let value = |index: usize| match index {
            0 => owned(path, made),
            _ => Cow::Borrowed(OTHERS[index - 1]),
        };
        self.family.get_or_create(&Labels(std::array::from_fn(value))).inc();
    }

    fn scrape(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("writing to a string does not fail");
        text
    }
}

/// The labels of a counter, of which the path is borrowed.
struct Borrowed<'a, const N: usize>(&'a str);

impl<const N: usize> LabelSet for Borrowed<'_, N> {
    type Static = Borrowed<'static, N>;
    const NAMES: &'static [&'static str] = NAMES.split_at(N).0;

    #[inline(always)]
    fn push_values(&self, values: &mut impl LabelValues) {
        values.push(self.0);
        OTHERS[..N - 1].iter().for_each(|value| values.push(value));
    }
}

/// `thiscpu-metrics`: a family.
pub(crate) struct ThisCpu<const N: usize> {
    registry: thiscpu_metrics::Registry,
    family: thiscpu_metrics::Family<Borrowed<'static, N>, thiscpu_metrics::Counter>,
}

impl<const N: usize> LookUp<N> for ThisCpu<N> {
    fn new() -> Self {
        let registry = thiscpu_metrics::Registry::new();
        let family = registry.family::<Borrowed<'_, N>, _>(METRIC, "Requests");
        let family = family.expect("the names are valid");
        Self { registry, family }
    }

    #[inline(always)]
    fn increment(&self, path: &'static str, _: bool) {
        self.family.get_or_create(&Borrowed::<N>(path)).increment(1);
    }

    fn scrape(&self) -> String {
        self.registry.render()
    }
}

/// The registry of a segment, which processes share.
pub(crate) struct ThisCpuShared<const N: usize>(shared::ThisCpuShared);

impl<const N: usize> LookUp<N> for ThisCpuShared<N> {
    fn new() -> Self {
        Self(shared::ThisCpuShared::with_labels(&NAMES[..N]))
    }

    #[inline(always)]
    fn increment(&self, path: &'static str, _: bool) {
        let mut values = [path; N];
        values[1..].copy_from_slice(&OTHERS[..N - 1]);
        self.0.series(&values).inc();
    }

    fn scrape(&self) -> String {
        self.0.text()
    }
}

/// A recorder of the `metrics` facade, and what it is scraped by.
struct Facade<R, H> {
    recorder: R,
    handle: H,
}

impl<R: Recorder, H> Facade<R, H> {
    /// Does what `counter!(...).increment(1)` does with a recorder.
    #[inline(always)]
    fn increment<const N: usize>(&self, path: &'static str, made: bool) {
        // The place where the metric is registered. No recorder reads it.
        const METADATA: Metadata<'static> = Metadata::new(module_path!(), Level::INFO, None);
        let others = NAMES[1..].iter().zip(&OTHERS[..N - 1]);
        let mut labels = Vec::with_capacity(N);
        labels.push(Label::new(NAMES[0], owned(path, made)));
        labels.extend(others.map(|(&name, &value)| Label::new(name, value)));
        let key = Key::from_parts(METRIC, labels);
        self.recorder.register_counter(&key, &METADATA).increment(1);
    }
}

/// Defines a contender that is looked up through the facade.
macro_rules! through_facade {
    ($(#[$doc:meta])* $Name:ident, $Recorder:ty, $Handle:ty, $new:expr, $scrape:expr) => {
        $(#[$doc])*
        pub(crate) struct $Name<const N: usize>(Facade<$Recorder, $Handle>);

        impl<const N: usize> LookUp<N> for $Name<N> {
            fn new() -> Self {
                let (recorder, handle) = $new;
                Self(Facade { recorder, handle })
            }

            #[inline(always)]
            fn increment(&self, path: &'static str, made: bool) {
                self.0.increment::<N>(path, made);
            }

            fn scrape(&self) -> String {
                $scrape(&self.0.handle)
            }
        }
    };
}

through_facade! {
    /// The metrics-exporter-prometheus crate.
    MetricsExporter, PrometheusRecorder, PrometheusHandle,
    {
        let recorder = PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        (recorder, handle)
    },
    PrometheusHandle::render
}

through_facade! {
    /// `thiscpu-metrics`, through the facade.
    ThisCpuFacade, thiscpu_metrics::Recorder, thiscpu_metrics::Registry,
    {
        let registry = thiscpu_metrics::Registry::new();
        (registry.recorder(), registry)
    },
    thiscpu_metrics::Registry::render
}

through_facade! {
    /// The facade's own recorder that does nothing: the least that a look-up through it takes.
    Nothing, NoopRecorder, (), (NoopRecorder, ()), |_: &()| String::new()
}

/// The contenders, without the baseline [`Nothing`].
pub(crate) const ALL: &[crate::contenders::Name] = {
    use crate::contenders::Name;
    &[
        Name::MetricsExporter,
        Name::PrometheusClient,
        Name::ThisCpu,
        Name::ThisCpuFacade,
        Name::ThisCpuShared,
    ]
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contenders::registries::total;

    #[test]
    fn scrape_includes_all_increments() {
        fn check<C: LookUp<N>, const N: usize>() {
            let registry = C::new();
            for i in 0..100 {
                registry.increment(["/a", "/b"][i % 2], i % 3 == 0);
            }
            let text = registry.scrape();
            let lines = text.lines().filter(|line| line.contains("path=\"/a\""));
            assert_eq!((lines.count(), total(&text)), (1, 100), "{text}");
            assert_eq!(text.contains("version=\"2.14.3\""), N == 6, "{text}");
        }
        check::<MetricsExporter<1>, 1>();
        check::<MetricsExporter<6>, 6>();
        check::<PrometheusClient<1>, 1>();
        check::<PrometheusClient<6>, 6>();
        check::<ThisCpu<1>, 1>();
        check::<ThisCpu<6>, 6>();
        check::<ThisCpuFacade<1>, 1>();
        check::<ThisCpuFacade<6>, 6>();
        check::<ThisCpuShared<1>, 1>();
        check::<ThisCpuShared<6>, 6>();
    }
}
