//! Answers to scrapes, until a signal ends the program.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use thiscpu_metrics::__internal::serve;
use thiscpu_metrics::Format;
use thiscpu_program::output;

use crate::look::Look;
use crate::own::Answer;
use crate::page;
use crate::target::Target;

/// The name of the program, for messages.
pub(crate) const NAME: &str = "thiscpu-export";

/// The most time that an answer takes for counters and budgets of all segments.
///
/// Prometheus waits for 10 s, unless it is told otherwise.
const PATIENCE: Duration = Duration::from_secs(5);

/// The segments of an answer.
pub(crate) struct Segments(Vec<State>);

/// A segment, and the reason for which it was not read last time.
struct State {
    target: Target,
    down: Option<String>,
    /// Whether some look has read it.
    was_read: bool,
}

impl Segments {
    /// Finds what a user asks for.
    pub(crate) fn find(targets: &[OsString], is_exact: bool) -> Result<Segments> {
        let names = match targets {
            [] => vec![None],
            names => names.iter().map(|name| Some(&**name)).collect(),
        };
        let state = |name| {
            let target = Target::find(name, is_exact)?;
            Ok(State { target, down: None, was_read: false })
        };
        names.into_iter().map(state).collect::<Result<_>>().map(Segments)
    }

    /// Returns a label that two segments have.
    pub(crate) fn doubled(&self) -> Option<&str> {
        let mut labels: Vec<_> = self.0.iter().map(|state| &*state.target.label).collect();
        labels.sort_unstable();
        labels.windows(2).find(|two| two[0] == two[1]).map(|two| two[0])
    }

    /// Returns whether a segment has an empty label, as that of a directory is.
    pub(crate) fn is_one_unnamed(&self) -> bool {
        self.0.iter().any(|state| state.target.label.is_empty())
    }

    /// Returns whether the last look has read all segments.
    pub(crate) fn are_up(&self) -> bool {
        self.0.iter().all(|state| state.down.is_none())
    }

    /// Looks at all segments once, and returns the text in each format.
    pub(crate) fn answer(&mut self, formats: &[Format]) -> Vec<String> {
        self.answer_until(Instant::now() + PATIENCE, formats)
    }

    /// Answers with the values that can be read until an instant; the segments share the time.
    fn answer_until(&mut self, end: Instant, formats: &[Format]) -> Vec<String> {
        let count = self.0.len() as u32;
        let looks = (0..count).rev().zip(&mut self.0).map(|(behind, state)| {
            // A part for each of those that are left, so that a slow one leaves them theirs.
            let now = Instant::now();
            let part = end.saturating_duration_since(now) / (behind + 1);
            state.look(now + part)
        });
        let looks: Vec<_> = looks.collect();
        let answers = self.0.iter().zip(looks);
        let answers = answers.map(|(state, look)| Answer { target: &state.target, look });
        page::write(&answers.collect::<Vec<_>>(), formats)
    }
}

impl State {
    /// Looks at the segment, and tells an operator if it is gone, or there again.
    fn look(&mut self, deadline: Instant) -> Option<Look> {
        let (look, down) = match self.target.look(deadline) {
            Ok(look) => (Some(look), None),
            Err(why) => (None, Some(why)),
        };
        let label = &self.target.label;
        match (&self.down, &down) {
            (_, Some(why)) if self.down != down => {
                output::note(NAME, &format!("segment {label}: {why}"));
            }
            (Some(_), None) => {
                let when = if self.was_read { "again" } else { "now" };
                output::note(NAME, &format!("segment {label}: it is read {when}"));
            }
            _ => {}
        }
        self.was_read |= down.is_none();
        self.down = down;
        look
    }
}

/// Answers scrapes on an address until SIGTERM or SIGINT.
pub(crate) fn run(mut segments: Segments, address: &str) -> Result<()> {
    // Before the first client can know the address.
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot wait for signals")?;
    // A wrong name is told at once, not at the first scrape.
    segments.answer(&[]);
    let endpoint = serve(address, move |formats| segments.answer(formats))?;
    output::note(NAME, &format!("listening on http://{}/metrics", endpoint.address()));
    signals.forever().next();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use thiscpu::Segment;

    #[test]
    fn segment_without_time_is_down_until_there_is_time() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = directory.path().join("shop");
        drop(Segment::create(&path).unwrap());
        let mut segments = Segments::find(&[path.into_os_string()], false).unwrap();
        let has = |text: &[String], sample: &str| {
            text[0].lines().any(|line| {
                let (name, labels_and_value) = line.split_once('{').unwrap_or_default();
                sample == format!("{name} {}", labels_and_value.rsplit(' ').next().unwrap())
            })
        };
        for _ in 0..2 {
            let text = segments.answer_until(Instant::now(), &[Format::Text]);
            assert!(has(&text, "thiscpu_segment_up 0") && !segments.are_up(), "{text:?}");
            let text = segments.answer(&[Format::Text]);
            assert!(has(&text, "thiscpu_segment_up 1") && segments.are_up(), "{text:?}");
            assert!(has(&text, "thiscpu_segment_replacements_total 0"), "{text:?}");
        }
    }
}
