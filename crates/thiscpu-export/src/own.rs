//! Families of this program: health, counters by name and budgets.

use thiscpu::{BudgetParticipant, BudgetState, RegistryUsage};
use thiscpu_metrics::__internal::Number;
use thiscpu_metrics::Kind;
use thiscpu_program::{budget, text};

use crate::look::{Look, is_known};
use crate::series::Tally;
use crate::target::Target;

/// A segment, and what a look has read of it.
pub(crate) struct Answer<'a> {
    pub(crate) target: &'a Target,
    pub(crate) look: Option<Look>,
}

/// A sample: the labels besides the segment's, and a value.
pub(crate) type Sample = (Vec<(&'static str, String)>, Number);

/// Returns the samples of a segment.
type Samples = fn(&Answer<'_>, &Tally) -> Vec<Sample>;

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
    gauge("thiscpu_segment_up", "Whether the segment could be read.", |answer, _| {
        one(Number::Unsigned(answer.look.is_some().into()))
    }),
    gauge("thiscpu_segment_info", "Where the segment is, and how it is read.", |answer, _| {
        let Some(look) = &answer.look else { return Vec::new() };
        let path = ("path", text::of_path(answer.target.path()));
        let read = ("read", if answer.target.is_exact { "exact" } else { "only" }.to_owned());
        vec![(vec![path, ("format", look.usage.format.to_string()), read], Number::Unsigned(1))]
    }),
    gauge(
        "thiscpu_segment_values",
        "Values of the last look by kind: exact; bounds, of which the middle is shown; as_of the \
         last operation on a budget; missing.",
        |answer, tally| answer.look.as_ref().map_or(Vec::new(), |look| kinds(look, tally)),
    ),
    gauge("thiscpu_segment_look_seconds", "Time of the last look.", |answer, _| {
        of(answer, |look| Number::Float(look.took.as_secs_f64()))
    }),
    counter(
        "thiscpu_segment_replacements_total",
        "Other segments that have taken the name.",
        |answer, _| one(Number::Unsigned(answer.target.replaced())),
    ),
    gauge(
        "thiscpu_segment_participants",
        "Slots of the segment's budgets that processes use, or have left without an end.",
        |answer, _| answer.look.as_ref().map_or(Vec::new(), participants),
    ),
    gauge("thiscpu_segment_series", "Series in the registry.", |answer, _| {
        of_registry(answer, |usage| usage.series)
    }),
    gauge(
        "thiscpu_segment_series_limit",
        "Series that the registry was created for.",
        |answer, _| of_registry(answer, |usage| usage.capacity),
    ),
    counter(
        "thiscpu_segment_refused_series_total",
        "Inserts that failed because the registry had no room or memory.",
        |answer, _| of_registry(answer, |usage| usage.refused),
    ),
    gauge(
        "thiscpu_segment_damaged_records",
        "Records that are damaged, and are left out.",
        |answer, tally| of(answer, |look| Number::Unsigned(look.damaged + tally.damaged)),
    ),
    gauge(
        "thiscpu_segment_unknown_objects",
        "Objects of kinds that this version does not know.",
        |answer, _| of(answer, |look| Number::Unsigned(look.unknown)),
    ),
    gauge("thiscpu_segment_records_bytes", "Size of the area of records.", |answer, _| {
        of(answer, |look| Number::Unsigned(look.usage.record_bytes))
    }),
    gauge("thiscpu_segment_records_used_bytes", "Use of the area of records.", |answer, _| {
        of(answer, |look| Number::Unsigned(look.usage.record_bytes_used))
    }),
    gauge("thiscpu_segment_lane_bytes", "Size of each lane.", |answer, _| {
        of(answer, |look| Number::Unsigned(look.usage.lane_bytes))
    }),
    gauge("thiscpu_segment_lane_used_bytes", "Use of each lane.", |answer, _| {
        of(answer, |look| Number::Unsigned(look.usage.lane_bytes_used))
    }),
    gauge("thiscpu_value", "Counters of the segment by name.", |answer, _| {
        answer.look.as_ref().map_or(Vec::new(), values)
    }),
    gauge("thiscpu_budget_limit", "Units of the budget.", |answer, _| {
        of_budgets(answer, |state, _| Number::Unsigned(state.limit))
    }),
    gauge("thiscpu_budget_held", "Units that processes hold.", |answer, _| {
        of_budgets(answer, |state, users| Number::Signed(budget::held(state, users)))
    }),
    gauge(
        "thiscpu_budget_free",
        "Units of the limit that are not held; negative above the limit.",
        |answer, _| {
            of_budgets(answer, |state, users| {
                Number::Signed((state.limit as i64).saturating_sub(budget::held(state, users)))
            })
        },
    ),
    gauge("thiscpu_budget_waiting", "Whether somebody waits for units.", |answer, _| {
        of_budgets(answer, |state, _| Number::Unsigned(state.is_queued.into()))
    }),
    gauge("thiscpu_budget_closed", "Whether the budget is closed.", |answer, _| {
        of_budgets(answer, |state, _| Number::Unsigned(state.is_closed.into()))
    }),
    gauge("thiscpu_budget_participants", "Processes that hold units.", |answer, _| {
        answer.look.as_ref().map_or(Vec::new(), holders)
    }),
];

fn one(value: Number) -> Vec<Sample> {
    vec![(Vec::new(), value)]
}

/// Returns a sample of a segment that was read.
fn of(answer: &Answer<'_>, value: impl Fn(&Look) -> Number) -> Vec<Sample> {
    answer.look.as_ref().map_or(Vec::new(), |look| one(value(look)))
}

fn of_registry(answer: &Answer<'_>, value: impl Fn(&RegistryUsage) -> u64) -> Vec<Sample> {
    let usage = answer.look.as_ref().and_then(|look| look.usage.registry);
    usage.map_or(Vec::new(), |usage| one(Number::Unsigned(value(&usage))))
}

fn of_budgets(
    answer: &Answer<'_>,
    value: impl Fn(&BudgetState, &[BudgetParticipant]) -> Number,
) -> Vec<Sample> {
    let budgets = answer.look.iter().flat_map(|look| &look.budgets);
    let sample = |(name, state, users): &(String, _, Vec<_>)| {
        (vec![("budget", name.clone())], value(state, users))
    };
    budgets.map(sample).collect()
}

/// Returns how many values there are of each kind.
fn kinds(look: &Look, series: &Tally) -> Vec<Sample> {
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
    let label = |label, value: &str| (label, value.to_owned());
    let sample =
        |(part, kind, n)| (vec![label("part", part), label("kind", kind)], Number::Unsigned(n));
    parts.into_iter().map(sample).collect()
}

/// Returns how many participants are alive, and how many have ended.
fn participants(look: &Look) -> Vec<Sample> {
    // Each budget has all participants of the segment. The last read one has the newest.
    let users = look.budgets.last().map_or(&[][..], |(_, _, users)| users);
    by_state(&[], users.iter())
}

/// Returns, of each budget, how many processes hold units, alive and ended ones.
fn holders(look: &Look) -> Vec<Sample> {
    let of_budget = |(name, _, users): &(String, _, Vec<BudgetParticipant>)| {
        by_state(&[("budget", name)], users.iter().filter(|it| it.held > 0))
    };
    look.budgets.iter().flat_map(of_budget).collect()
}

fn by_state<'a>(
    labels: &[(&'static str, &str)],
    users: impl Iterator<Item = &'a BudgetParticipant> + Clone,
) -> Vec<Sample> {
    let sample = |state: &str, is_alive| {
        let labels = labels.iter().copied().chain([("state", state)]);
        let labels = labels.map(|(label, value)| (label, value.to_owned())).collect();
        let count = users.clone().filter(|it| it.is_alive == is_alive).count();
        (labels, Number::Unsigned(count as u64))
    };
    vec![sample("alive", true), sample("ended", false)]
}

/// Returns the values of counters by name; of those that are read together, by index too.
fn values(look: &Look) -> Vec<Sample> {
    let mut samples = Vec::new();
    for (name, all) in &look.counters {
        for (index, bounds) in all.iter().enumerate().filter(|(_, it)| is_known(it)) {
            let mut labels = vec![("name", name.clone())];
            if all.len() > 1 {
                labels.push(("index", index.to_string()));
            }
            samples.push((labels, Number::Signed(bounds.estimate)));
        }
    }
    samples
}
