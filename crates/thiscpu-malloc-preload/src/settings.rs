//! `THISCPU_MALLOC`: a list of words, separated by commas. What happens as the library is loaded, and at exit.
//!
//! `stats` counts calls and prints the table at exit; `harden` has a share of blocks guarded. A word that is neither
//! is a warning: every child inherits the environment, whatever allocator it was written for.

use core::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};

use thiscpu::probe::{say, setting};

use crate::errno::keep_errno;
use crate::{rust_runtime, saved_stderr, stats_table};

// SAFETY: the loader calls what these sections list, once, with nothing that the functions look at.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = start;

// SAFETY: as above.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = end;

/// Whether the table is wanted at exit.
static PRINTS_AT_EXIT: AtomicBool = AtomicBool::new(false);

extern "C" fn start() {
    rust_runtime::abort_on_panic();
    setting(c"THISCPU_MALLOC", |value| {
        for word in value.unwrap_or_default().split(|&byte| byte == b',') {
            match word.trim_ascii() {
                b"" => {}
                b"stats" => enable_table(),
                b"harden" => harden(),
                unknown => say(
                    libc::STDERR_FILENO,
                    format_args!(
                        "thiscpu: warning, going on without it: THISCPU_MALLOC knows stats and harden, not {}",
                        unknown.escape_ascii()
                    ),
                ),
            }
        }
    });
}

fn harden() {
    if !thiscpu_malloc::enable_hardening() {
        say(
            libc::STDERR_FILENO,
            format_args!(
                "thiscpu: warning, going on without it: there is no memory for THISCPU_MALLOC=harden"
            ),
        );
    }
}

fn enable_table() {
    thiscpu_malloc::enable_counting();
    keep_errno(saved_stderr::remember);
    // Release: pairs with the Acquire in `end`; where to print is known.
    PRINTS_AT_EXIT.store(true, Release);
}

/// Runs where the process ends by `exit` or a return from `main`, and not where by `_exit` or a signal.
extern "C" fn end() {
    // Acquire: pairs with the Release in `want_table`.
    if PRINTS_AT_EXIT.load(Acquire) {
        keep_errno(saved_stderr::find).into_iter().for_each(stats_table::print);
    }
}
