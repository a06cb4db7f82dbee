//! `cargo xtask degraded`: the library's promises in processes that lack something.

use anyhow::{Result, bail};
use xshell::{Cmd, Shell, cmd};

use crate::tools::{self, Tool};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Also run the environments that `cargo test` runs, and everything at full length under valgrind
    #[arg(long)]
    full: bool,
}

/// The environments that a sandbox makes; most tests run in them here only.
const SANDBOXES: &str = "::sandbox_";

/// Under valgrind each test is so many times shorter, and may take so many times longer.
const SLOWNESS: u32 = 50;

/// What is checked: invalid accesses, and uses of undefined values. Not leaks: the library allocates
/// nothing, and forked children are without the threads that would free what the tests did.
/// Threads take turns fairly, because some tests wait for each other in loops.
const VALGRIND: &str = "valgrind --quiet --error-exitcode=99 --leak-check=no --fair-sched=yes";

/// These count or limit the memory of their process, and valgrind has memory of its own, which grows.
const NOT_UNDER_VALGRIND: [&str; 21] = [
    "memory::is_used_again",
    "budget::gives_memory_back",
    "slab::keeps_errno",
    "slab::nothing_is_reserved",
    "slab::little_address_space",
    "slab::little_at_first",
    "slab::little_data_at_first",
    "slab::least_at_first",
    "slab::least_data_at_first",
    "slab::lanes_once_there_is_memory",
    "slab::no_memory_at_first",
    "slab::no_memory_later",
    "slab::never_more_than_lanes",
    "slab::free_while_pages_are_dropped",
    "slab::reserved_are_there",
    "slab::shrink_gives_memory_back",
    "slab::much_freed_goes_back",
    "slab::all_locked",
    "slab::many_caches",
    "slab::no_room_behind_others",
    "slab::the_last_of_all",
];

pub(crate) fn run(sh: &Shell, arguments: &Arguments) -> Result<()> {
    let mut failed = Vec::new();
    let mut check = |what: &'static str, cmd: Cmd| {
        eprintln!("{what}");
        if let Err(why) = cmd.quiet().run() {
            eprintln!("{what}: {why}");
            failed.push(what);
        }
    };
    check("tests under seccomp, without rseq, membarrier, or both", under_seccomp(sh, arguments));
    check("torture with glibc's registration off", self_registered(sh));
    let valgrind = Tool { program: "valgrind", package: "valgrind libc6-dbg" };
    if tools::are_here(sh, "degraded: valgrind", &[valgrind])? {
        check("tests under valgrind", under_valgrind(sh, arguments));
        check("torture under valgrind", torture_under_valgrind(sh));
    }
    if failed.is_empty() { Ok(()) } else { bail!("failed: {}", failed.join("; ")) }
}

fn tests(sh: &Shell) -> Cmd<'_> {
    cmd!(sh, "cargo test --quiet --package thiscpu --test guarantees --")
}

fn under_seccomp<'a>(sh: &'a Shell, arguments: &Arguments) -> Cmd<'a> {
    let tests = tests(sh).env("THISCPU_TEST_SANDBOXES", "all");
    if arguments.full { tests } else { tests.arg(SANDBOXES) }
}

fn torture(sh: &Shell) -> Cmd<'_> {
    cmd!(sh, "cargo run --quiet --package thiscpu-torture -- --seconds 2")
}

fn self_registered(sh: &Shell) -> Cmd<'_> {
    torture(sh).env("GLIBC_TUNABLES", "glibc.pthread.rseq=0").env("THISCPU_TIER", "rseq-cpu")
}

fn under_valgrind<'a>(sh: &'a Shell, arguments: &Arguments) -> Cmd<'a> {
    let tests = tests(sh).env("THISCPU_TEST_RUNNER", VALGRIND).arg("::atomic");
    let tests = tests.args(NOT_UNDER_VALGRIND.iter().flat_map(|name| ["--skip", name]));
    if arguments.full { tests } else { tests.env("THISCPU_TEST_SLOWDOWN", SLOWNESS.to_string()) }
}

/// Cargo starts the program by valgrind.
fn torture_under_valgrind(sh: &Shell) -> Cmd<'_> {
    torture(sh)
        .args(["--threads", "4"])
        .env("THISCPU_TIER", "atomic")
        .env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER", VALGRIND)
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", VALGRIND)
}
