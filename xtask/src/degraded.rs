//! `cargo xtask degraded`: the library's guarantees in restricted processes.

use anyhow::{Result, bail, ensure};
use xshell::{Cmd, Shell, cmd};

use crate::arguments::Part;
use crate::tools::{self, Tool};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Run the environments of `cargo test` too, and all tests at full length under valgrind
    #[arg(long)]
    full: bool,
    /// Under valgrind, run only part K of N of the tests, such as 2/3
    #[arg(long, value_name = "K/N", default_value_t)]
    part: Part,
}

/// Parts of the names of environments in which only this task runs most tests.
///
/// These are sandboxes, and processes whose threads the library itself registers.
const ENVIRONMENTS: &str = "::sandbox_,::self_registered";

/// How many times shorter each test is under valgrind, and how many times longer it may take.
const SLOWNESS: u32 = 50;

/// Checks for invalid accesses and uses of undefined values.
///
/// Leaks are not checked: the library does not allocate, and forked children lack the threads that
/// would free the tests' memory. Scheduling is fair, because threads of some tests wait for each
/// other in loops.
const VALGRIND: &str = "valgrind --quiet --error-exitcode=99 --leak-check=no --fair-sched=yes";

/// Tests of what valgrind changes.
///
/// They count, limit or place memory, of which valgrind uses a part. They read an unused stack,
/// which valgrind takes for undefined. They need single steps, which it skips, or a `vfork` that is
/// no `fork`.
const NOT_UNDER_VALGRIND: [&str; 39] = [
    "stack_use::",
    "segment::handler_may_add_at_each_instruction",
    "segment_view::exact_budget_is_of_one_instant_when_limit_changes",
    "segment_kills::",
    "segment_budget_kills::",
    "segment_files::corrupt_bytes_do_no_harm",
    "segment_files::random_images_do_no_harm",
    "segment_files::limits_on_resources_are_errors",
    "degradations::lane_without_memory",
    "degradations::items_without_memory",
    "degradations::sheaves_without_memory",
    "memory_return::",
    "vforks::scopes_nest",
    "vforks::child_may_be_first_user",
    "memory::items_are_reused_and_zeroed",
    "budget::drop_frees_lanes",
    "budget::handler_may_release_huge_amounts",
    "budget::last_owned_lease_drops_the_budget",
    "slab::alloc_and_free_keep_errno",
    "slab::address_space_grows_with_use",
    "slab::small_address_space_is_fully_usable",
    "slab::first_use_fits_in_100_mib_of_address_space",
    "slab::first_use_fits_in_100_mib_of_data",
    "slab::first_use_fits_in_8_mib_of_address_space",
    "slab::first_use_fits_in_8_mib_of_data",
    "slab::lanes_are_made_once_memory_returns",
    "slab::failed_first_alloc_does_no_harm",
    "slab::freed_objects_are_reused_when_memory_ends",
    "slab::lanes_are_returned_when_backend_fails",
    "slab::free_chunks_stay_available_during_purge",
    "slab::prefilled_objects_survive_exhaustion",
    "slab::freed_objects_stay_readable_in_limited_address_space",
    "slab::freed_objects_stay_readable_in_limited_data",
    "slab::shrink_returns_pages",
    "slab::bulk_free_returns_pages",
    "slab::cache_works_when_memory_is_locked",
    "slab::closed_caches_return_pages",
    "slab::failed_large_alloc_keeps_no_address_space",
    "slab::steals_when_out_of_memory",
];

pub(crate) fn run(sh: &Shell, arguments: &Arguments) -> Result<()> {
    let mut failed = Vec::new();
    let mut check = |name: &'static str, cmd: Cmd| {
        eprintln!("{name}");
        if let Err(error) = cmd.quiet().run() {
            eprintln!("{name}: {error}");
            failed.push(name);
        }
    };
    check("tests under seccomp, without rseq, membarrier or both", under_seccomp(sh, arguments));
    check("torture with glibc's registration off", self_registered(sh));
    let valgrind = Tool { program: "valgrind", package: "valgrind libc6-dbg" };
    if tools::are_here(sh, "degraded: valgrind", &[valgrind])? {
        check("tests under valgrind", under_valgrind(sh, arguments)?);
        check("torture under valgrind", torture_under_valgrind(sh));
    }
    if failed.is_empty() { Ok(()) } else { bail!("failed: {}", failed.join("; ")) }
}

fn tests(sh: &Shell) -> Cmd<'_> {
    let tests = cmd!(sh, "cargo test --quiet --package thiscpu --test guarantees --");
    tests.env("THISCPU_TEST_LEVEL", "full")
}

fn under_seccomp<'a>(sh: &'a Shell, arguments: &Arguments) -> Cmd<'a> {
    let tests = tests(sh).env("THISCPU_TEST_SANDBOXES", "all");
    if arguments.full { tests } else { tests.arg(ENVIRONMENTS) }
}

fn torture(sh: &Shell) -> Cmd<'_> {
    cmd!(sh, "cargo run --quiet --package thiscpu-torture -- --seconds 2")
}

fn self_registered(sh: &Shell) -> Cmd<'_> {
    torture(sh).env("GLIBC_TUNABLES", "glibc.pthread.rseq=0").env("THISCPU_TIER", "rseq-cpu")
}

fn under_valgrind<'a>(sh: &'a Shell, arguments: &Arguments) -> Result<Cmd<'a>> {
    let skipped = NOT_UNDER_VALGRIND.iter().flat_map(|name| ["--skip", name]);
    let list = tests(sh).args(["::atomic", "--list"]).args(skipped).read()?;
    let names = list.lines().filter_map(|line| line.strip_suffix(": test"));
    let names: Vec<_> = arguments.part.select(names).collect();
    ensure!(!names.is_empty(), "no test is left: the parts are more than the tests");
    let tests = tests(sh).env("THISCPU_TEST_RUNNER", VALGRIND).args(["--exact", &names.join(",")]);
    let slowdown = if arguments.full { 1 } else { SLOWNESS };
    Ok(tests.env("THISCPU_TEST_SLOWDOWN", slowdown.to_string()))
}

/// Runs the program under valgrind, as cargo's runner.
fn torture_under_valgrind(sh: &Shell) -> Cmd<'_> {
    torture(sh)
        .args(["--threads", "4"])
        .env("THISCPU_TIER", "atomic")
        .env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER", VALGRIND)
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", VALGRIND)
}
