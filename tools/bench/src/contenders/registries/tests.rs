//! What every contender promises: a scrape has all that was counted.

use std::thread;

use super::{Contender, MetricsExporter, PrometheusClient, ThisCpu, ThisCpuFacade, total};

fn a_scrape_has_everything<C: Contender>() {
    let registry = C::new();
    let counters = ["a", "b"].map(|label| registry.counter(label));
    thread::scope(|scope| {
        for _ in 0..4 {
            let own = counters.clone();
            scope.spawn(move || (0..5_000).for_each(|i| C::increment(&own[i % 2])));
        }
    });
    let text = registry.scrape();
    assert_eq!(total(&text), 20_000, "{text}");
    let series = text.lines().filter(|line| line.starts_with("requests"));
    assert_eq!(series.count(), 2, "{text}");
}

#[test]
fn scrapes_have_everything() {
    a_scrape_has_everything::<MetricsExporter>();
    a_scrape_has_everything::<PrometheusClient>();
    a_scrape_has_everything::<ThisCpu>();
    a_scrape_has_everything::<ThisCpuFacade>();
}
