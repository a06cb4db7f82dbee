//! The options of `thiscpu-bench bench`.

use std::path::PathBuf;

use crate::{
    contenders::Name,
    plan::{Options, parse_seconds, parse_threads},
    workloads::Workload,
};

/// The options of `thiscpu-bench bench`.
#[derive(Debug, Default, clap::Args)]
#[command(after_long_help = include_str!("help.txt"))]
pub(crate) struct Args {
    /// What to run: add, commit, sum, threshold, memory, budget, fault, ledger, metrics, alloc
    /// [default: all]
    #[arg(value_name = "WORKLOAD")]
    workloads: Vec<Workload>,

    /// Which cases of these, such as pair-64,resident-64 [default: all]
    #[arg(long = "case", value_name = "NAME,...", value_delimiter = ',')]
    cases: Vec<String>,

    /// Whom to measure; may be given several times [default: all]
    #[arg(long = "contender", value_name = "NAME", value_delimiter = ',')]
    contenders: Vec<Name>,

    /// With how many threads, such as 1,2,16 [default: depends on the workload]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = parse_threads)]
    threads: Vec<usize>,

    /// Length of a slice, in which one contender is measured once [default: 0.05]
    #[arg(long, value_name = "S", value_parser = parse_seconds, allow_negative_numbers = true)]
    seconds: Option<f64>,

    /// How often everything is measured [default: 7]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000),
          allow_negative_numbers = true)]
    rounds: Option<u32>,

    /// In budget, audit at least so many calls of each contender in each case but far, in ledger so
    /// many charges in the case audit, with each number of threads [default: as many as fit into a
    /// quarter of the slices, in ledger into a few tenths of a second]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    audit: u64,

    /// Also write a page with plots to DIR, and the figures as JSON and CSV beside it. DIR is made if it is not
    /// there; an earlier report in it is replaced; one that has files and no report is refused
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,

    /// Print one JSON object a line instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

impl Args {
    pub(crate) fn options(&self) -> Options {
        Options {
            workloads: self.workloads.clone(),
            cases: self.cases.clone(),
            contenders: self.contenders.clone(),
            threads: self.threads.clone(),
            seconds: self.seconds,
            rounds: self.rounds,
            audited_min: self.audit,
        }
    }
}
