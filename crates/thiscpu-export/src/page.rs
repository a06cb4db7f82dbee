//! The answer: all segments in one text.

use thiscpu_metrics::__internal::{Number, Page};
use thiscpu_metrics::{Format, Kind};

use crate::own::{Answer, FAMILIES};
use crate::series::{self, SEGMENT, Tally};

/// Writes one text for each format.
pub(crate) fn write(answers: &[Answer<'_>], formats: &[Format]) -> Vec<String> {
    let scrapes: Vec<_> = answers
        .iter()
        .map(|answer| answer.look.as_ref().and_then(|look| look.series.as_ref()))
        .collect();
    let (families, tallies) = series::families(&scrapes);
    let text = |&format| {
        let mut page = Page::new(format);
        for (name, family) in &families {
            page.family(Kind::Counter, name, family.help);
            for (segment, scrape, range) in &family.parts {
                let label = (SEGMENT, &*answers[*segment].target.label);
                for sample in range.clone().filter_map(|at| scrape.sample(at)) {
                    if let Some(value) = series::value(&sample) {
                        let labels = [label].into_iter().chain(series::labels(&sample));
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
            for (labels, value) in (family.samples)(answer, tally) {
                let labels = labels.iter().map(|(label, value)| (*label, &**value));
                let segment = [(SEGMENT, &*answer.target.label)];
                page.sample(family.name, segment.into_iter().chain(labels), value);
            }
        }
    }
}
