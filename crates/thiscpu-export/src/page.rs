//! The answer: all segments in one text.

use thiscpu_metrics::__internal::{Number, Page};
use thiscpu_metrics::{Format, Kind};

use crate::own::{Answer, FAMILIES, Sink};
use crate::series::{self, Families, Part, SEGMENT, Tally};

/// Writes one text for each format.
pub(crate) fn write(answers: &[Answer<'_>], formats: &[Format]) -> Vec<String> {
    let scrapes: Vec<_> = answers
        .iter()
        .map(|answer| answer.look.as_ref().and_then(|look| look.series.as_ref()))
        .collect();
    let families = Families::of(&scrapes);
    let text = |&format| {
        let mut page = Page::new(format);
        let (shown, tallies) = families.shown(format);
        for (name, family) in shown {
            page.family(Kind::Counter, name, family.help);
            for Part { segment, samples } in &family.parts {
                let label = (SEGMENT, &*answers[*segment].target.label);
                for sample in samples {
                    if let Some(value) = series::value(sample) {
                        let labels = [label].into_iter().chain(series::labels(sample));
                        page.sample(name, labels, Number::Unsigned(value));
                    }
                }
            }
        }
        push_own(&mut page, answers, &tallies);
        page.finish()
    };
    formats.iter().map(text).collect()
}

/// Writes the families of this program.
fn push_own(page: &mut Page, answers: &[Answer<'_>], tallies: &[Tally]) {
    for family in FAMILIES {
        page.family(family.kind, family.name, family.help);
        for (answer, tally) in answers.iter().zip(tallies) {
            let segment = &*answer.target.label;
            let mut sink = Sink { page: &mut *page, family: family.name, segment };
            (family.samples)(answer, tally, &mut sink);
        }
    }
}
