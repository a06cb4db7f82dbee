//! `thiscpu run`: starts a program on the allocator, in place of this one.

mod elf;
mod library;
mod program;

use std::{
    convert::Infallible,
    ffi::{OsStr, OsString},
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Command, ExitCode},
};

use anyhow::{Context as _, Result};

use crate::REFUSED;

/// What `--help` says below the options.
const DETAILS: &str = "\
PROGRAM is started with libthiscpu_malloc.so in LD_PRELOAD, before what is there already, in place
of this process; so are the programs that it starts, unless they are statically linked or
privileged. The library is looked for beside `thiscpu`, then in ../lib.

A statically linked program, one with more rights than its user (setuid, setgid, capabilities), one
for another architecture or C library, and a script whose interpreter is such a program are
refused: the dynamic loader would run them as if nothing had been asked for. One that has a malloc
of its own runs on that, with a warning.

THISCPU_TIER=rseq-cid|rseq-cpu|atomic forces what thiscpu runs on; a wrong one is a warning here.
Exit status: the program's own; 2 nothing was run.";

/// Options of `thiscpu run`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = DETAILS)]
pub(crate) struct Args {
    /// Print a table on standard error when the program exits, and each one that it starts
    #[arg(long)]
    stats: bool,

    /// Guard a share of the blocks, to catch uses after free and overflows
    #[arg(long)]
    harden: bool,

    /// The allocator, if it is not where it is looked for
    #[arg(long, value_name = "PATH")]
    library: Option<PathBuf>,

    /// What to run, and its arguments
    #[arg(required = true, trailing_var_arg = true, value_names = ["PROGRAM", "ARGS"])]
    command: Vec<OsString>,
}

/// Runs the subcommand. It only returns if it has run nothing.
pub(crate) fn main(args: &Args) -> ExitCode {
    let Err(why) = exec(args);
    eprintln!("error: {why:#}");
    ExitCode::from(REFUSED)
}

fn exec(args: &Args) -> Result<Infallible> {
    let (name, arguments) = args.command.split_first().context("there is no program to run")?;
    let path = program::find(name)?;
    let warning =
        program::check(&path).with_context(|| format!("{} is not run", path.display()))?;
    let library = library::find(args.library.as_deref())?;
    if let Some(warning) = warning {
        eprintln!("warning: {warning}");
    }
    let mut command = Command::new(&path);
    command.arg0(name).args(arguments);
    command.env("LD_PRELOAD", joined([library.as_os_str()], "LD_PRELOAD", Order::Before));
    let words = [("stats", args.stats), ("harden", args.harden)];
    let asked = words.into_iter().filter(|&(_, asked)| asked).map(|(word, _)| OsStr::new(word));
    let settings = joined(asked, "THISCPU_MALLOC", Order::After);
    if !settings.is_empty() {
        command.env("THISCPU_MALLOC", settings);
    }
    Err(command.exec()).with_context(|| format!("{} cannot be started", path.display()))
}

/// Where what is added goes.
#[derive(Clone, Copy)]
enum Order {
    Before,
    After,
}

/// The list in `variable` with `more`.
fn joined<'a>(more: impl IntoIterator<Item = &'a OsStr>, variable: &str, order: Order) -> OsString {
    let known = std::env::var_os(variable).filter(|list| !list.is_empty());
    let more = more.into_iter().map(OsStr::to_owned);
    match order {
        Order::Before => more.chain(known).collect::<Vec<_>>().join(OsStr::new(":")),
        Order::After => known.into_iter().chain(more).collect::<Vec<_>>().join(OsStr::new(",")),
    }
}
