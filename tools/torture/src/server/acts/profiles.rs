//! Heap profiles that are begun, written and ended while threads allocate.

use std::io::{Error, Read as _, Seek as _};

use fastrand::Rng;
use thiscpu_malloc::profile;

use super::super::{sizes, stage::Stage};
use super::churn::{self, Exchange, LEFT_MAX};
use crate::violation::{Checked, Violation, holds};

/// The number of threads that allocate meanwhile.
const OTHERS: usize = 2;
/// The steps of the thread with the profiles before the next one.
const STEPS: usize = 500;

pub(super) fn run(stage: &Stage<'_>, random: &mut Rng) -> Checked {
    let exchange = Exchange::new(LEFT_MAX);
    let result = stage.run_threads(1 + OTHERS, random, |number, random| match number {
        0 => write_profiles(stage, random, &exchange),
        _ => churn::run(stage, random, &exchange, usize::MAX),
    });
    profile::stop();
    result?;
    exchange.free_all(stage)
}

fn write_profiles(stage: &Stage<'_>, random: &mut Rng, exchange: &Exchange) -> Checked {
    let no_file = |_: Error| Violation { what: "a file for profiles", low: 1, high: 1, found: 0 };
    let mut file = tempfile::tempfile().map_err(no_file)?;
    while !stage.is_over() {
        match random.u8(..4) {
            0 => profile::stop(),
            _ => profile::start(sizes::spread(random, 1..=1 << 20) as u64),
        }
        churn::run(stage, random, exchange, STEPS)?;
        file.set_len(0).and_then(|()| file.rewind()).map_err(no_file)?;
        profile::write(&file).map_err(no_file)?;
        let mut text = String::new();
        file.rewind().and_then(|()| file.read_to_string(&mut text)).map_err(no_file)?;
        holds("a profile is whole", is_whole(&text))?;
    }
    Ok(())
}

/// Returns whether a profile begins with its sums, and ends with the process's mappings.
fn is_whole(text: &str) -> bool {
    text.starts_with("heap profile: ")
        && text.contains("\nMAPPED_LIBRARIES:\n")
        && text.ends_with('\n')
}
