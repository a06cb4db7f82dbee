//! `thiscpu run`: replaces this process with a program that runs on thiscpu-malloc.

mod elf;
mod library;
mod program;
mod sanitizer;
mod words;

use std::{
    convert::Infallible,
    ffi::{OsStr, OsString},
    io::ErrorKind,
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Command, ExitCode},
};

use anyhow::Context as _;

use crate::{malloc_settings, output};

const DETAILS: &str = "\
PROGRAM replaces this process (exec), with libthiscpu_malloc.so at the front of LD_PRELOAD. Programs
that it starts inherit that, unless they are statically linked or privileged. The library is
searched beside `thiscpu`, then in ../lib.

These are refused, because the dynamic loader would silently leave the library out: statically
linked programs; programs with more rights than their user (setuid, setgid, capabilities); programs
for another architecture or C library; scripts whose interpreter is such a program. A program with
its own malloc keeps using that, with a warning.

Programs that are built with AddressSanitizer, or another sanitizer that needs its own malloc, are
refused too: run them without thiscpu. Programs that PROGRAM starts are not checked.

--stats is short for --set stats=table, and --harden for --set harden=on. The last value of a
setting counts, also after those in THISCPU_MALLOC. `thiscpu doctor` lists the settings.

THISCPU_TIER=rseq-cid|rseq-cpu|atomic forces a tier; a wrong value is a warning here.

Exit status: the program's own; 125 if `thiscpu run` failed, or PROGRAM needs its own malloc; 126 if
PROGRAM was found but cannot be run on the library; 127 if PROGRAM was not found.";

/// Exit statuses as of `env`; this one is for a failure of its own.
pub(crate) const FAILED: u8 = 125;
const NOT_RUNNABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Options of `thiscpu run`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = DETAILS)]
pub(crate) struct Args {
    /// Print a table, or JSON, on standard error when the program, or a program it starts, exits
    ///
    /// With json:FILE, each process appends a line of JSON to FILE.
    #[arg(
        long,
        value_name = "json[:FILE]",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "table"
    )]
    stats: Option<OsString>,

    /// Guard a sample of the blocks, to catch uses after free and overflows
    #[arg(long)]
    harden: bool,

    /// Change a setting of the allocator; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = malloc_settings::parse)]
    set: Vec<String>,

    /// Write a heap profile to FILE when the program exits (read it with `thiscpu profile FILE`)
    ///
    /// Programs that it starts write FILE.PID.
    #[arg(long, value_name = "FILE")]
    heap_profile: Option<OsString>,

    /// Sample a block in each BYTES that are allocated, on average
    #[arg(
        long,
        value_name = "BYTES",
        requires = "heap_profile",
        default_value_t = thiscpu_malloc::profile::DEFAULT_INTERVAL,
        value_parser = clap::value_parser!(u64).range(1..=1 << 40)
    )]
    heap_profile_interval: u64,

    /// Write the heap profile whenever the program gets this signal, such as USR2
    #[arg(
        long,
        value_name = "SIGNAL",
        requires = "heap_profile",
        value_parser = malloc_settings::signals()
    )]
    heap_profile_signal: Option<String>,

    /// Write the heap profile when memory reaches a new peak, so that a killed program leaves one
    #[arg(long, requires = "heap_profile")]
    heap_profile_at_peak: bool,

    /// Preload this library instead of searching for one
    #[arg(long, value_name = "PATH")]
    library: Option<PathBuf>,

    /// The program to run, and its arguments
    #[arg(required = true, trailing_var_arg = true, value_names = ["PROGRAM", "ARGS"])]
    command: Vec<OsString>,
}

/// Runs the subcommand, which only returns if nothing was run.
pub(crate) fn main(args: &Args) -> ExitCode {
    let Err((status, why)) = exec(args);
    output::note(&format!("{why:#}"));
    ExitCode::from(status)
}

/// Replaces this process; an error comes with the exit status that it stands for.
fn exec(args: &Args) -> Result<Infallible, (u8, anyhow::Error)> {
    let (name, arguments) =
        args.command.split_first().context("no program given").map_err(|why| (FAILED, why))?;
    let path = program::find(name).map_err(|why| (NOT_FOUND, why))?;
    let is_missing = path.metadata().is_err_and(|why| why.kind() == ErrorKind::NotFound);
    let status = if is_missing { NOT_FOUND } else { NOT_RUNNABLE };
    let cannot_run = |why: anyhow::Error| {
        // The program would run: it is the library that must not be loaded into it.
        let status = if why.is::<sanitizer::Sanitizer>() { FAILED } else { status };
        (status, why.context(format!("cannot run {}", path.display())))
    };
    let warning = program::check(&path).map_err(cannot_run)?;
    let library = library::find(args.library.as_deref()).map_err(|why| (FAILED, why))?;
    let preloaded = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    sanitizer::check_preloaded(&preloaded).map_err(|why| (FAILED, why))?;
    if let Some(warning) = warning {
        output::note(&format!("warning: {warning}"));
    }
    let mut command = Command::new(&path);
    command.arg0(name).args(arguments);
    command.env("LD_PRELOAD", joined([library.as_os_str()], "LD_PRELOAD", Order::Before));
    let words = words::requested(args).map_err(|why| (FAILED, why))?;
    let settings =
        joined(words.iter().map(|word| &**word), malloc_settings::VARIABLE, Order::After);
    if !settings.is_empty() {
        command.env(malloc_settings::VARIABLE, settings);
    }
    Err(cannot_run(command.exec().into()))
}

/// Where new entries of a list go.
#[derive(Clone, Copy)]
enum Order {
    Before,
    After,
}

/// Returns the list in `variable` with `more` added.
fn joined<'a>(more: impl IntoIterator<Item = &'a OsStr>, variable: &str, order: Order) -> OsString {
    let known = std::env::var_os(variable).filter(|list| !list.is_empty());
    let more = more.into_iter().map(OsStr::to_owned);
    match order {
        Order::Before => more.chain(known).collect::<Vec<_>>().join(OsStr::new(":")),
        Order::After => known.into_iter().chain(more).collect::<Vec<_>>().join(OsStr::new(",")),
    }
}
