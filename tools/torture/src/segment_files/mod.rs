//! Hostile files: images of a segment in use that are damaged, and then used.
//!
//! Worker processes damage one image after the other, and use each as a program would. A call ends
//! with a value or with an error that says why. A crash, a hang or a panic ends the run. The
//! segment lies between two guards, so an access outside of it is a crash.

mod change;
mod place;
mod plan;
mod report;
mod scene;
mod user;
mod worker;

use std::thread;
use std::time::{Duration, Instant};

use thiscpu_test_support::tool::{progress, stop};

use self::change::Changes;
pub(crate) use self::plan::Plan;
use self::report::Counts;
pub(crate) use self::report::Report;
use self::scene::Scene;
use self::worker::{Tallies, Worker};

/// How often the run looks at its workers.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Damages and uses as many images as `plan` says.
///
/// # Errors
///
/// If there is no segment, or no worker can be started.
pub(crate) fn run(plan: &Plan) -> Result<Report, String> {
    stop::listen();
    let began = Instant::now();
    let scene = Scene::new(&mut plan.random()).map_err(|why| why.to_string())?;
    let changes = Changes::new(&scene.images, plan.seed);
    let tallies = Tallies::new().map_err(|why| format!("no memory for workers: {why}"))?;
    let start = |number| Worker::start(number, plan, &changes, &tallies);
    let mut workers = (0..plan.processes())
        .map(start)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|why| format!("a worker did not start: {why}"))?;
    let (bar, mut failure) = (progress::bar(plan.images), None);
    while !workers.is_empty() && failure.is_none() && !stop::is_requested() {
        thread::sleep(LOOK_EVERY);
        bar.set_position(tallies.images());
        workers.retain_mut(|worker| match worker.ended() {
            None => true,
            Some(Ok(())) => false,
            Some(Err(why)) => {
                let (number, of) = (worker.image(), plan.images);
                let kept = changes.keep(number, plan.seed);
                failure = Some(format!("image {number} of {of}: {why}; {kept}"));
                false
            }
        });
    }
    drop(workers);
    let counts = Counts { kinds: scene.images.len(), elapsed: began.elapsed(), failure };
    Ok(Report::new(plan, &tallies, &counts))
}
