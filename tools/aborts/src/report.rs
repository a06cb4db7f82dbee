//! What was driven, section by section, and what was wrong.

use std::collections::BTreeMap;

use crate::copies::Inlined;
use crate::point::Place;

/// How many failures of a section are shown.
const SHOWN_MAX: usize = 4;

#[derive(Debug, Default)]
struct Section {
    copies: usize,
    /// Instructions in ranges: where it can be aborted.
    boundaries: usize,
    /// Instructions right before and after them.
    outside: usize,
    runs: usize,
    wrong: Vec<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Report {
    sections: BTreeMap<String, Section>,
}

impl Report {
    fn section(&mut self, name: &str) -> &mut Section {
        self.sections.entry(name.to_owned()).or_default()
    }

    /// Counts a copy that is to be driven.
    pub(crate) fn copy(&mut self, copy: &Inlined) {
        let inside = copy.points.iter().filter(|point| point.place == Place::Inside).count();
        let section = self.section(&copy.name);
        section.copies += 1;
        section.boundaries += inside;
        section.outside += copy.points.len() - inside;
    }

    pub(crate) fn ran(&mut self, name: &str) {
        self.section(name).runs += 1;
    }

    pub(crate) fn wrong(&mut self, name: &str, what: String) {
        self.section(name).wrong.push(what);
    }

    pub(crate) fn is_fine(&self) -> bool {
        self.sections.values().all(|section| section.wrong.is_empty())
    }

    /// The table, and below it what was wrong.
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
            for wrong in section.wrong.iter().take(SHOWN_MAX) {
                text += &format!("FAILED {name}: {wrong}\n");
            }
            if let more @ 1.. = section.wrong.len().saturating_sub(SHOWN_MAX) {
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
    format!("{name:18} {copies:>7} {boundaries:>11} {outside:>14} {runs:>7}\n")
}
