//! The counts and failures of each section.

use std::collections::BTreeMap;

use crate::copies::SectionCopy;
use crate::point::PointKind;

/// The most failures of a section that are shown.
const SHOWN_MAX: usize = 4;

#[derive(Debug, Default)]
struct Section {
    copies: usize,
    /// The instructions in ranges, at each of which it can be aborted.
    boundaries: usize,
    /// The instructions just before and after ranges.
    outside: usize,
    runs: usize,
    failures: Vec<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Report {
    sections: BTreeMap<String, Section>,
}

impl Report {
    fn section(&mut self, name: &str) -> &mut Section {
        self.sections.entry(name.to_owned()).or_default()
    }

    /// Counts a copy that must be driven.
    pub(crate) fn add_copy(&mut self, copy: &SectionCopy) {
        let inside = copy.points.iter().filter(|point| point.kind == PointKind::Inside).count();
        let section = self.section(&copy.name);
        section.copies += 1;
        section.boundaries += inside;
        section.outside += copy.points.len() - inside;
    }

    pub(crate) fn add_run(&mut self, name: &str) {
        self.section(name).runs += 1;
    }

    pub(crate) fn fail(&mut self, name: &str, failure: String) {
        self.section(name).failures.push(failure);
    }

    pub(crate) fn has_passed(&self) -> bool {
        self.sections.values().all(|section| section.failures.is_empty())
    }

    /// Returns the table, and the failures below it.
    pub(crate) fn text(&self, tier: &str) -> String {
        let mut text =
            row([tier, "copies", "boundaries", "before, after", "runs"].map(str::to_owned));
        let mut total = [0; 4];
        for (name, section) in &self.sections {
            let numbers = [section.copies, section.boundaries, section.outside, section.runs];
            total.iter_mut().zip(numbers).for_each(|(total, number)| *total += number);
            text += &line(name, numbers);
        }
        text += &line("all", total);
        for (name, section) in &self.sections {
            for failure in section.failures.iter().take(SHOWN_MAX) {
                text += &format!("FAILED {name}: {failure}\n");
            }
            if let more @ 1.. = section.failures.len().saturating_sub(SHOWN_MAX) {
                text += &format!("FAILED {name}: and {more} more\n");
            }
        }
        text
    }
}

fn line(name: &str, numbers: [usize; 4]) -> String {
    let [a, b, c, d] = numbers.map(|number| number.to_string());
    row([name.to_owned(), a, b, c, d])
}

fn row([name, copies, boundaries, outside, runs]: [String; 5]) -> String {
    format!("{name:22} {copies:>7} {boundaries:>11} {outside:>14} {runs:>7}\n")
}
