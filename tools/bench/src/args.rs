//! The command line.

use std::path::PathBuf;

use crate::{contenders::Name, workloads::Workload};

/// The most threads that can be requested.
const THREADS_MAX: usize = 4096;

/// The longest slice that can be requested, in seconds.
const SECONDS_MAX: f64 = 3600.0;

/// The options of `thiscpu-bench bench`.
#[derive(Debug, Default, clap::Args)]
#[command(after_long_help = include_str!("help.txt"))]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) options: Options,

    /// List the cases that would run, contenders and metrics, and exit
    #[arg(long)]
    pub(crate) list: bool,

    /// Compare ratios with an earlier results.csv; exit with 4 on a regression
    #[arg(long, value_name = "OLD.csv", conflicts_with = "runs")]
    pub(crate) compare: Option<PathBuf>,

    /// Write a page with plots, results.csv and results.json to DIR
    ///
    /// DIR is created if it does not exist. An earlier report in it is replaced; a directory with
    /// other files and no report is refused.
    #[arg(long, value_name = "DIR", conflicts_with = "runs")]
    pub(crate) report: Option<PathBuf>,

    /// Print one JSON object per line instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

/// The options that decide what is measured. An empty list, or no value, means the default.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// Run these workloads, such as add, budget and alloc [default: all]
    #[arg(value_name = "WORKLOAD")]
    pub(crate) workloads: Vec<Workload>,

    /// Run these cases of the workloads, such as pair-64,resident-64 [default: all]
    #[arg(long = "case", value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) cases: Vec<String>,

    /// Measure these contenders [default: all]
    #[arg(long = "contender", value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) contenders: Vec<Name>,

    /// Run with these numbers of threads, such as 1,2,16 [default: depends on the case]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = parse_threads)]
    pub(crate) threads: Vec<usize>,

    /// Measure a contender for S seconds at a time [default: 0.05]
    #[arg(long, value_name = "S", value_parser = parse_seconds, allow_negative_numbers = true)]
    pub(crate) seconds: Option<f64>,

    /// Measure everything N times [default: 7; walk: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000),
          allow_negative_numbers = true)]
    pub(crate) rounds: Option<u32>,

    /// Walk N times, and name the cells that are slow or large in most walks [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100),
          allow_negative_numbers = true)]
    pub(crate) runs: Option<u32>,

    /// Run everything in 20 seconds, with short slices: a trial, not for figures
    #[arg(long, conflicts_with_all = ["seconds", "rounds", "audited_min"])]
    pub(crate) quick: bool,

    /// Audit at least N calls of each contender in each audited case [default: a few]
    ///
    /// Audited are the cases near, oscillate and exhausted of budget, and the cases audit of ledger
    /// and rate.
    /// By default an audit takes a fraction of a second.
    #[arg(long = "audit", value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(crate) audited_min: u64,
}

#[cfg(test)]
impl Options {
    /// Parses options as the command line does.
    pub(crate) fn of(text: &str) -> Self {
        let command = <Self as clap::Args>::augment_args(clap::Command::new("bench"));
        let matches = command.no_binary_name(true).get_matches_from(text.split_whitespace());
        clap::FromArgMatches::from_arg_matches(&matches).unwrap()
    }
}

/// Parses a number of threads, from 1 to [`THREADS_MAX`].
fn parse_threads(text: &str) -> Result<usize, String> {
    match text.trim().parse() {
        Ok(threads) if (1..=THREADS_MAX).contains(&threads) => Ok(threads),
        _ => Err(format!("expected a whole number from 1 to {THREADS_MAX}")),
    }
}

/// Parses the length of a slice, from a nanosecond to [`SECONDS_MAX`].
fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.trim().parse() {
        Ok(seconds) if (1e-9..=SECONDS_MAX).contains(&seconds) => Ok(seconds),
        _ => Err(format!("expected a number of seconds greater than 0, at most {SECONDS_MAX}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_out_of_range_are_refused() {
        for text in ["0", "-1", "4097", "99999999999999999999", "1e3", "", "two"] {
            assert!(parse_threads(text).unwrap_err().contains("from 1 to 4096"), "{text}");
        }
        for text in ["0", "-0.5", "nan", "inf", "3601", "1e-12", "", "soon"] {
            assert!(parse_seconds(text).unwrap_err().contains("greater than 0"), "{text}");
        }
        assert_eq!(parse_threads("4096"), Ok(4096));
        assert_eq!(parse_seconds("0.25"), Ok(0.25));
    }
}
