//! The registry of a segment in `thiscpu segment show`: a line for each family.

use std::fmt::Write as _;

use serde_json::{Value, json};
use thiscpu::{RegistryUsage, Scrape, SegmentError, SegmentView};

/// A registry as a scrape shows it.
pub(super) struct Registry {
    usage: RegistryUsage,
    families: Vec<Family>,
    damaged: Vec<SegmentError>,
}

/// A family, and the sum of its series.
struct Family {
    name: String,
    series: u64,
    low: u128,
    high: u128,
}

impl Registry {
    /// Reads the registry of a segment, if there is one.
    pub(super) fn of(view: &SegmentView, usage: RegistryUsage) -> Result<Registry, SegmentError> {
        let scrape = view.registry()?.scrape()?;
        let (families, damaged) = (families(&scrape), scrape.damaged().to_vec());
        Ok(Registry { usage, families, damaged })
    }

    /// Returns whether a record is damaged.
    pub(super) fn is_damaged(&self) -> bool {
        !self.damaged.is_empty()
    }

    /// Returns what the line `registry` says.
    pub(super) fn describe(&self) -> String {
        let RegistryUsage { capacity, series, refused, .. } = self.usage;
        format!("{series} series used of {capacity}, {refused} refused")
    }

    /// Writes a line for each family, and for each fault.
    pub(super) fn write_lines(&self, text: &mut String) {
        for Family { name, series, low, high } in &self.families {
            let range = if low == high { format!("{low}") } else { format!("{low} to {high}") };
            let _ = writeln!(text, "  {name:?} ({series} series)  {range}");
        }
        for error in &self.damaged {
            let _ = writeln!(text, "  {error}");
        }
    }

    pub(super) fn to_json(&self) -> Value {
        let family = |Family { name, series, low, high }: &Family| {
            // A sum of more than 2^64 is rounded, as JSON numbers are elsewhere.
            let number = |n: u128| u64::try_from(n).map_or(json!(n as f64), |n| json!(n));
            json!({ "name": name, "series": series, "low": number(*low), "high": number(*high) })
        };
        json!({
            "capacity": self.usage.capacity,
            "series": self.usage.series,
            "refused": self.usage.refused,
            "families": self.families.iter().map(family).collect::<Vec<_>>(),
            "damaged": self.damaged.iter().map(ToString::to_string).collect::<Vec<_>>(),
        })
    }
}

/// Returns the families that have series, which follow each other in a scrape.
fn families(scrape: &Scrape) -> Vec<Family> {
    let mut families: Vec<Family> = Vec::new();
    for sample in scrape.samples() {
        let is_same = families.last().is_some_and(|family| family.name == sample.name());
        if !is_same {
            families.push(Family { name: sample.name().to_owned(), series: 0, low: 0, high: 0 });
        }
        if let Some(family) = families.last_mut() {
            family.series += 1;
            family.low += u128::from(sample.low());
            family.high += u128::from(sample.high());
        }
    }
    families
}
