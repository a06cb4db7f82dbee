//! Every contender's guarantee: a scrape contains every increment that came before it.

use std::thread;

use super::{Contender, total};

fn scrape_includes_all_increments<C: Contender>() {
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

test_all!(scrape_includes_all_increments);
