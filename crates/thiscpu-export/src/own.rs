//! Families of this program: health, counters by name and budgets.

use thiscpu::{BudgetParticipant, BudgetState, RegistryUsage};
use thiscpu_metrics::__internal::{Number, Page};
use thiscpu_metrics::Kind;
use thiscpu_program::{budget, text};

use crate::look::{Look, is_known};
use crate::series::{SEGMENT, Tally};
use crate::target::Target;

/// A segment, and what a look has read of it.
pub(crate) struct Answer<'a> {
    pub(crate) target: &'a Target,
    pub(crate) look: Option<Look>,
}

/// Where the samples of one family and one segment go.
pub(crate) struct Sink<'a> {
    pub(crate) page: &'a mut Page,
    pub(crate) family: &'static str,
    pub(crate) segment: &'a str,
}

impl Sink<'_> {
    /// Writes a sample, with its labels besides the segment's.
    fn push(&mut self, labels: &[(&str, &str)], value: Number) {
        let labels = [(SEGMENT, self.segment)].into_iter().chain(labels.iter().copied());
        self.page.sample(self.family, labels, value);
    }
}

/// Writes the samples of a segment.
type Samples = fn(&Answer<'_>, &Tally, &mut Sink<'_>);

/// A family of this program.
pub(crate) struct Family {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) help: &'static str,
    pub(crate) samples: Samples,
}

const fn gauge(name: &'static str, help: &'static str, samples: Samples) -> Family {
    Family { name, kind: Kind::Gauge, help, samples }
}

const fn counter(name: &'static str, help: &'static str, samples: Samples) -> Family {
    Family { name, kind: Kind::Counter, help, samples }
}

/// All families, in the order of the answer.
pub(crate) const FAMILIES: &[Family] = &[
    gauge("thiscpu_segment_up", "Whether the segment could be read.", |answer, _, sink| {
        sink.push(&[], Number::Unsigned(answer.look.is_some().into()))
    }),
    gauge(
        "thiscpu_segment_info",
        "Where the segment is, and how it is read.",
        |answer, _, sink| {
            look_of(answer, |look| {
                let path = text::of_path(answer.target.path());
                let format = look.usage.format.to_string();
                let read = if answer.target.is_exact { "exact" } else { "only" };
                let labels = [("path", &*path), ("format", &*format), ("read", read)];
                sink.push(&labels, Number::Unsigned(1));
            });
        },
    ),
    gauge(
        "thiscpu_segment_values",
        "Values of the last look by kind: exact; bounds, of which the middle is shown; as_of the \
         last operation on a budget; missing.",
        |answer, tally, sink| look_of(answer, |look| kinds(look, tally, sink)),
    ),
    gauge("thiscpu_segment_look_seconds", "Time of the last look.", |answer, _, sink| {
        of(answer, sink, |look| Number::Float(look.took.as_secs_f64()))
    }),
    counter(
        "thiscpu_segment_replacements_total",
        "Other files that have taken the name.",
        |answer, _, sink| sink.push(&[], Number::Unsigned(answer.target.replaced())),
    ),
    gauge(
        "thiscpu_segment_participants",
        "Slots of the segment's budgets that processes use, or have left without an end.",
        |answer, _, sink| look_of(answer, |look| participants(look, sink)),
    ),
    gauge("thiscpu_segment_series", "Series in the registry.", |answer, _, sink| {
        of_registry(answer, sink, |usage| usage.series)
    }),
    gauge(
        "thiscpu_segment_series_limit",
        "Series that the registry was created for.",
        |answer, _, sink| of_registry(answer, sink, |usage| usage.capacity),
    ),
    counter(
        "thiscpu_segment_refused_series_total",
        "Inserts that failed because the registry had no room or memory.",
        |answer, _, sink| of_registry(answer, sink, |usage| usage.refused),
    ),
    gauge(
        "thiscpu_segment_damaged_records",
        "Records that are damaged, and are left out.",
        |answer, tally, sink| {
            of(answer, sink, |look| Number::Unsigned(look.damaged + tally.damaged))
        },
    ),
    gauge(
        "thiscpu_segment_unknown_objects",
        "Objects of kinds that this version does not know.",
        |answer, _, sink| of(answer, sink, |look| Number::Unsigned(look.unknown)),
    ),
    gauge("thiscpu_segment_records_bytes", "Size of the area of records.", |answer, _, sink| {
        of(answer, sink, |look| Number::Unsigned(look.usage.record_bytes))
    }),
    gauge(
        "thiscpu_segment_records_used_bytes",
        "Use of the area of records.",
        |answer, _, sink| of(answer, sink, |look| Number::Unsigned(look.usage.record_bytes_used)),
    ),
    gauge("thiscpu_segment_lane_bytes", "Size of each lane.", |answer, _, sink| {
        of(answer, sink, |look| Number::Unsigned(look.usage.lane_bytes))
    }),
    gauge("thiscpu_segment_lane_used_bytes", "Use of each lane.", |answer, _, sink| {
        of(answer, sink, |look| Number::Unsigned(look.usage.lane_bytes_used))
    }),
    gauge("thiscpu_value", "Counters of the segment by name.", |answer, _, sink| {
        look_of(answer, |look| values(look, sink))
    }),
    gauge("thiscpu_budget_limit", "Units of the budget.", |answer, _, sink| {
        of_budgets(answer, sink, |state, _| Number::Unsigned(state.limit))
    }),
    gauge("thiscpu_budget_held", "Units that processes hold.", |answer, _, sink| {
        of_budgets(answer, sink, |state, users| Number::Signed(budget::held(state, users)))
    }),
    gauge(
        "thiscpu_budget_free",
        "Units of the limit that are not held; negative above the limit.",
        |answer, _, sink| {
            of_budgets(answer, sink, |state, users| {
                Number::Signed((state.limit as i64).saturating_sub(budget::held(state, users)))
            })
        },
    ),
    gauge("thiscpu_budget_waiting", "Whether somebody waits for units.", |answer, _, sink| {
        of_budgets(answer, sink, |state, _| Number::Unsigned(state.is_queued.into()))
    }),
    gauge("thiscpu_budget_closed", "Whether the budget is closed.", |answer, _, sink| {
        of_budgets(answer, sink, |state, _| Number::Unsigned(state.is_closed.into()))
    }),
    gauge("thiscpu_budget_participants", "Processes that hold units.", |answer, _, sink| {
        look_of(answer, |look| holders(look, sink))
    }),
];

/// Calls a function with the look at a segment that was read.
fn look_of(answer: &Answer<'_>, each: impl FnOnce(&Look)) {
    if let Some(look) = &answer.look {
        each(look);
    }
}

/// Writes a sample of a segment that was read.
fn of(answer: &Answer<'_>, sink: &mut Sink<'_>, value: impl Fn(&Look) -> Number) {
    look_of(answer, |look| sink.push(&[], value(look)));
}

fn of_registry(answer: &Answer<'_>, sink: &mut Sink<'_>, value: impl Fn(&RegistryUsage) -> u64) {
    if let Some(usage) = answer.look.as_ref().and_then(|look| look.usage.registry) {
        sink.push(&[], Number::Unsigned(value(&usage)));
    }
}

fn of_budgets(
    answer: &Answer<'_>,
    sink: &mut Sink<'_>,
    value: impl Fn(&BudgetState, &[BudgetParticipant]) -> Number,
) {
    for (name, state, users) in answer.look.iter().flat_map(|look| &look.budgets) {
        sink.push(&[("budget", name)], value(state, users));
    }
}

/// Writes how many values there are of each kind.
fn kinds(look: &Look, series: &Tally, sink: &mut Sink<'_>) {
    let bounds = || look.counters.iter().flat_map(|(_, bounds)| bounds);
    let exact = bounds().filter(|it| it.low == it.high).count() as u64;
    let known = bounds().filter(|it| is_known(it)).count() as u64;
    let all = bounds().count() as u64;
    let exact_budgets = look.budgets.iter().filter(|(_, state, _)| state.is_exact).count() as u64;
    let as_of = look.budgets.len() as u64 - exact_budgets;
    let [unread, unread_budgets] = look.unread;
    let parts = [
        ("series", "exact", series.exact),
        ("series", "bounds", series.bounds),
        ("series", "missing", series.missing),
        ("counters", "exact", exact),
        ("counters", "bounds", known - exact),
        ("counters", "missing", all - known + unread),
        ("budgets", "exact", exact_budgets),
        ("budgets", "as_of", as_of),
        ("budgets", "missing", unread_budgets),
    ];
    for (part, kind, count) in parts {
        sink.push(&[("part", part), ("kind", kind)], Number::Unsigned(count));
    }
}

/// Writes how many participants are alive, and how many have ended.
fn participants(look: &Look, sink: &mut Sink<'_>) {
    // Each budget has all participants of the segment. The last read one has the newest.
    let users = look.budgets.last().map_or(&[][..], |(_, _, users)| users);
    by_state(None, users.iter(), sink);
}

/// Writes, of each budget, how many processes hold units, alive and ended ones.
fn holders(look: &Look, sink: &mut Sink<'_>) {
    for (name, _, users) in &look.budgets {
        by_state(Some(("budget", name)), users.iter().filter(|it| it.held > 0), sink);
    }
}

fn by_state<'a>(
    label: Option<(&str, &str)>,
    users: impl Iterator<Item = &'a BudgetParticipant> + Clone,
    sink: &mut Sink<'_>,
) {
    for (state, is_alive) in [("alive", true), ("ended", false)] {
        let labels: Vec<_> = label.into_iter().chain([("state", state)]).collect();
        let count = users.clone().filter(|it| it.is_alive == is_alive).count();
        sink.push(&labels, Number::Unsigned(count as u64));
    }
}

/// Writes the values of counters by name; of those that are read together, by index too.
fn values(look: &Look, sink: &mut Sink<'_>) {
    for (name, all) in &look.counters {
        for (index, bounds) in all.iter().enumerate().filter(|(_, it)| is_known(it)) {
            let index = if all.len() > 1 { index.to_string() } else { String::new() };
            // An empty index is left out.
            let labels = [("name", &**name), ("index", &*index)];
            sink.push(&labels, Number::Signed(bounds.estimate));
        }
    }
}
