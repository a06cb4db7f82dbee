//! The environment variables `THISCPU_MALLOC` and `THISCPU_TIER`, which are read when the library
//! is loaded, and the exit handler.
//!
//! The value of `THISCPU_MALLOC` is a list of words, separated by commas. `stats` counts calls and
//! prints the table at exit; `harden` guards a sample of blocks. A wrong setting is only a warning,
//! because every child inherits the environment. It is removed from there, or marked, so that
//! children do not repeat the warning.

use core::ffi::CStr;
use core::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Relaxed, Release},
};

use thiscpu::__internal::{WARNED_MARK, env_var, tier_or_best, write_line};

use crate::errno::keep_errno;
use crate::{inherited, rust_runtime, saved_stderr, stats_table};

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
    read_words();
    read_tier();
}

/// Does what `THISCPU_MALLOC` asks for, and removes its unknown words.
fn read_words() {
    const NAME: &CStr = c"THISCPU_MALLOC";
    let mut has_unknown = false;
    env_var(NAME, |value| {
        for word in value.unwrap_or_default().split(|&byte| byte == b',') {
            match word.trim_ascii() {
                b"" => {}
                b"stats" => enable_table(),
                b"harden" => harden(),
                unknown => {
                    has_unknown = true;
                    warn_unknown(unknown);
                }
            }
        }
    });
    if has_unknown {
        inherited::edit(NAME, |value| inherited::retain_words(value, &[b"stats", b"harden"]));
    }
}

fn warn_unknown(word: &[u8]) {
    write_line(
        libc::STDERR_FILENO,
        format_args!(
            "thiscpu: warning: THISCPU_MALLOC has an unknown word, which is ignored: {} (known \
             words: stats, harden)",
            word.escape_ascii()
        ),
    );
}

/// Marks a wrong `THISCPU_TIER` as warned about.
///
/// It stays wrong for programs that use thiscpu themselves. Choosing the tier has written the
/// warning then: by the first allocation, or else here, because the process may start children
/// before it allocates.
fn read_tier() {
    const NAME: &CStr = c"THISCPU_TIER";
    let is_wrong = env_var(NAME, |value| {
        value.is_some_and(|name| !name.is_empty() && name != tier_or_best().name().as_bytes())
    });
    if is_wrong {
        inherited::edit(NAME, |value| value[0].store(WARNED_MARK, Relaxed));
    }
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
    // Acquire: pairs with the Release in `enable_table`.
    if PRINTS_AT_EXIT.load(Acquire) {
        keep_errno(saved_stderr::find).into_iter().for_each(stats_table::print);
    }
}
