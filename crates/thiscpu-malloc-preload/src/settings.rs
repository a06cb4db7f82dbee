//! The environment variables `THISCPU_MALLOC` and `THISCPU_TIER`, which are read when the library
//! is loaded, and the exit handler.
//!
//! The value of `THISCPU_MALLOC` is a list of settings, separated by commas; the last one of a name
//! counts. A wrong setting is only a warning, because every child inherits the environment. It is
//! removed from there, or marked, so that children do not repeat the warning.

use core::ffi::CStr;
use core::ptr;
use core::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Relaxed, Release},
};

use thiscpu::__internal::{WARNED_MARK, env_var, tier_or_best, write_line};
use thiscpu_malloc::export::{Assignment, ExitStats, exit_stats};
use thiscpu_malloc::{SettingError, settings};

use crate::errno::keep_errno;
use crate::{inherited, profile, rust_runtime, saved_stderr, stats_json, stats_table};

// SAFETY: the loader calls the functions in this section once, at load. The arguments that it
// passes may be ignored.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = start;

// SAFETY: the loader calls the functions in this section once, at exit, without arguments.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = end;

/// Whether `saved_stderr` has remembered standard error.
static KNOWS_STDERR: AtomicBool = AtomicBool::new(false);

extern "C" fn start() {
    rust_runtime::abort_on_panic();
    read_words();
    read_tier();
}

/// Applies the settings in `THISCPU_MALLOC`, and removes its wrong words.
fn read_words() {
    const NAME: &CStr = c"THISCPU_MALLOC";
    let words = env_var(NAME, |value| Words::default().read(value.unwrap_or_default()));
    if words.has_wrong {
        inherited::edit(NAME, |value| {
            inherited::retain_words(value, |number| words.valid >> number.min(127) & 1 != 0);
        });
    }
}

/// The words in `THISCPU_MALLOC`.
#[derive(Default)]
struct Words {
    /// A bit for each word that is a setting. The last one stands for all further words.
    valid: u128,
    has_wrong: bool,
}

impl Words {
    /// Warns of wrong words, and applies the last valid word of each setting.
    fn read(mut self, list: &[u8]) -> Words {
        let words = || list.split(|&byte| byte == b',');
        for (number, word) in words().enumerate() {
            match Assignment::parse(word) {
                Ok(None) => {}
                Ok(Some(_)) => self.valid |= 1 << number.min(127),
                Err(why) => {
                    self.has_wrong = true;
                    warn(word, &why);
                }
            }
        }
        for setting in settings() {
            let is_of_setting = |word: &Assignment| ptr::eq(word.setting, setting);
            let mut valid = words().filter_map(|word| Assignment::parse(word).ok().flatten());
            if let Some(Err(why)) = valid.rfind(is_of_setting).map(Assignment::apply) {
                warn(setting.name().as_bytes(), &why);
            }
        }
        update_exit();
        self
    }
}

fn warn(word: &[u8], why: &SettingError) {
    write_line(
        libc::STDERR_FILENO,
        format_args!(
            "thiscpu: warning: THISCPU_MALLOC: {} is ignored: {why}",
            word.trim_ascii().escape_ascii()
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

/// Prepares for what the settings now say that the exit writes.
pub(crate) fn update_exit() {
    // Only once, because each time takes a descriptor. Relaxed: no other thread uses what is
    // remembered before `KNOWS_STDERR` is set.
    static IS_REMEMBERED: AtomicBool = AtomicBool::new(false);
    if exit_stats() != ExitStats::Off && !IS_REMEMBERED.swap(true, Relaxed) {
        keep_errno(saved_stderr::remember);
        // Release: pairs with the Acquire in `end`, after which `saved_stderr` is read.
        KNOWS_STDERR.store(true, Release);
    }
}

/// Prints the table or the JSON, if one is enabled.
///
/// Runs when the process ends by `exit` or a return from `main`, but not by `_exit` or a signal.
extern "C" fn end() {
    profile::end();
    // Acquire: pairs with the Release in `update_exit`.
    if !KNOWS_STDERR.load(Acquire) {
        return;
    }
    let stderr = || keep_errno(saved_stderr::find);
    match exit_stats() {
        ExitStats::Off => {}
        ExitStats::Table => stderr().into_iter().for_each(stats_table::print),
        ExitStats::Json(None) => stderr().into_iter().for_each(stats_json::print),
        ExitStats::Json(Some(path)) => keep_errno(|| stats_json::append(path)),
    }
}
