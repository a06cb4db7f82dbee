//! Answers to scrapes, until a signal ends the program.

use std::ffi::OsString;

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
        let looks: Vec<_> = self.0.iter_mut().map(State::look).collect();
        let answers = self.0.iter().zip(looks);
        let answers = answers.map(|(state, look)| Answer { target: &state.target, look });
        page::write(&answers.collect::<Vec<_>>(), formats)
    }
}

impl State {
    /// Looks at the segment, and tells an operator if it is gone, or there again.
    fn look(&mut self) -> Option<Look> {
        let (look, down) = match self.target.look() {
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
