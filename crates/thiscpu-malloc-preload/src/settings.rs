//! The environment variable `THISCPU_MALLOC`, read when the library is loaded, and the exit
//! handler.
//!
//! Its value is a list of words, separated by commas. `stats` counts calls and prints the table at
//! exit; `harden` guards a sample of blocks. Unknown words are only warnings, because every child
//! inherits the environment.

use core::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};

use thiscpu::__internal::{env_var, write_line};

use crate::errno::keep_errno;
use crate::{rust_runtime, saved_stderr, stats_table};

// SAFETY: the loader calls the functions in this section once, at load. The arguments that it
// passes may be ignored.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = start;

// SAFETY: the loader calls the functions in this section once, at exit, without arguments.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = end;

/// Whether to print the table at exit.
static PRINTS_AT_EXIT: AtomicBool = AtomicBool::new(false);

extern "C" fn start() {
    rust_runtime::abort_on_panic();
    env_var(c"THISCPU_MALLOC", |value| {
        for word in value.unwrap_or_default().split(|&byte| byte == b',') {
            match word.trim_ascii() {
                b"" => {}
                b"stats" => enable_table(),
                b"harden" => harden(),
                unknown => write_line(
                    libc::STDERR_FILENO,
                    format_args!(
                        "thiscpu: warning: THISCPU_MALLOC has an unknown word, \
                         which is ignored: {} (known words: stats, harden)",
                        unknown.escape_ascii()
                    ),
                ),
            }
        }
    });
}

fn harden() {
    if !thiscpu_malloc::enable_hardening() {
        write_line(
            libc::STDERR_FILENO,
            format_args!(
                "thiscpu: warning: THISCPU_MALLOC=harden is ignored: cannot reserve memory for \
                 guarded blocks"
            ),
        );
    }
}

fn enable_table() {
    thiscpu_malloc::enable_counting();
    keep_errno(saved_stderr::remember);
    // Release: pairs with the Acquire in `end`, after which `saved_stderr` is read.
    PRINTS_AT_EXIT.store(true, Release);
}

/// Prints the table, if it is enabled.
///
/// Runs when the process ends by `exit` or a return from `main`, but not by `_exit` or a signal.
extern "C" fn end() {
    // Acquire: pairs with the Release in `want_table`.
    if PRINTS_AT_EXIT.load(Acquire) {
        keep_errno(saved_stderr::find).into_iter().for_each(stats_table::print);
    }
}
