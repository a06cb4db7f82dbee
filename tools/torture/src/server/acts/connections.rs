//! Short-lived threads that leave blocks to those after them, as a thread for each connection does.

use fastrand::Rng;

use super::super::stage::Stage;
use super::churn::{self, Exchange, LEFT_MAX};
use crate::violation::Checked;

/// The number of connections at a time.
const CONNECTIONS: usize = 16;
/// The most steps of a connection.
const STEPS_MAX: usize = 400;

pub(super) fn run(stage: &Stage<'_>, random: &mut Rng) -> Checked {
    let exchange = Exchange::new(LEFT_MAX);
    while !stage.is_over() {
        stage.run_threads(CONNECTIONS, random, |_, random| {
            let steps = random.usize(..STEPS_MAX);
            churn::run(stage, random, &exchange, steps)
        })?;
    }
    exchange.free_all(stage)
}
