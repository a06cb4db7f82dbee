//! `thiscpu demo`: the library's guarantees on this machine, each beside the usual way to do it.
//!
//! Each scene runs for a few seconds with more threads than CPUs, shows what it sees meanwhile, and
//! leaves a few lines that name the page to read next and the benchmark that measures it in full.

mod counter;
mod crew;
mod ledger;
mod limit;
mod objects;
mod screen;

use std::time::Duration;

use anyhow::{Result, ensure};
use indicatif::HumanCount;

use crate::output;

/// Options of `thiscpu demo`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// Seconds that all scenes take together, from 1 to 600
    #[arg(long, default_value_t = SECONDS, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) seconds: f64,
}

pub(crate) const SECONDS: f64 = 16.0;

fn seconds(text: &str) -> Result<f64> {
    let seconds = text.parse()?;
    ensure!((1.0..=600.0).contains(&seconds), "it is out of range; give 1 to 600");
    Ok(seconds)
}

/// One thing to show, in lines of at most 40 characters.
struct Scene {
    title: &'static str,
    /// The page that explains it.
    page: &'static str,
    /// The workload of `thiscpu-bench bench` that measures it.
    workload: &'static str,
    run: fn(Duration) -> Result<Vec<Row>>,
}

/// One comparison of a scene: a figure with thiscpu and with the usual way.
struct Row {
    what: &'static str,
    /// The name of the usual way.
    usual_is: &'static str,
    thiscpu: String,
    usual: String,
}

impl Row {
    fn of_times(what: &'static str, usual_is: &'static str, thiscpu: f64, usual: f64) -> Self {
        Self {
            what,
            usual_is,
            thiscpu: format!("{thiscpu:.1} ns"),
            usual: format!("{usual:.1} ns"),
        }
    }

    fn of_counts(what: &'static str, usual_is: &'static str, thiscpu: u64, usual: u64) -> Self {
        let [thiscpu, usual] = [thiscpu, usual].map(|count| HumanCount(count).to_string());
        Self { what, usual_is, thiscpu, usual }
    }
}

const SCENES: [Scene; 4] = [counter::SCENE, limit::SCENE, ledger::SCENE, objects::SCENE];

/// Runs the subcommand.
pub(crate) fn main(seconds: f64) -> Result<()> {
    let tier = thiscpu::tier()?;
    let cpus = crew::cpus();
    let threads = crew::threads();
    output::print(&format!("tier {tier}, {cpus} CPUs, {threads} threads\n"))?;
    let length = Duration::from_secs_f64(seconds / SCENES.len() as f64);
    for (index, scene) in SCENES.iter().enumerate() {
        let title = format!("\n{}/{} {}\n", index + 1, SCENES.len(), scene.title);
        if !output::print(&title)? {
            return Ok(());
        }
        let rows = (scene.run)(length)?;
        output::print(&text(scene, &rows))?;
    }
    output::print(
        "\nThese are impressions of a few seconds.\n\
         For figures with their spread:\n  cargo run --release -p thiscpu-bench\n\
         For what this machine supports:\n  cargo run --release -- doctor\n",
    )?;
    Ok(())
}

/// Returns a scene's result as text.
fn text(scene: &Scene, rows: &[Row]) -> String {
    let mut text = String::new();
    let width = rows.iter().map(|row| row.usual_is.len()).max().unwrap_or(0).max("thiscpu".len());
    for row in rows {
        text += &format!("  {}\n", row.what);
        text += &format!("    {:width$}  {}\n", "thiscpu", row.thiscpu);
        text += &format!("    {:width$}  {}\n", row.usual_is, row.usual);
    }
    text += &format!("  read {}\n", scene.page);
    text += &format!("  run thiscpu-bench bench {}\n", scene.workload);
    text
}
