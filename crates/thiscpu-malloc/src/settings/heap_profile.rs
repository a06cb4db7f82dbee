//! The settings of heap profiles: when they are written, and where to.
//!
//! One process writes the file of the setting `profile`; others, which have inherited the settings,
//! write `FILE.PID`.

use core::ffi::{CStr, c_int};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::Relaxed};
use core::{mem, ptr, str};

use thiscpu::__internal::write_line;

use super::Value;
use super::form::number;
use super::saved_path::SavedPath;
use crate::profile;

/// The signals that may write the profile, and their names.
const SIGNALS: [(&str, c_int); 8] = [
    ("off", 0),
    ("USR2", libc::SIGUSR2),
    ("USR1", libc::SIGUSR1),
    ("HUP", libc::SIGHUP),
    ("PROF", libc::SIGPROF),
    ("QUIT", libc::SIGQUIT),
    ("URG", libc::SIGURG),
    ("WINCH", libc::SIGWINCH),
];

static FILE: SavedPath = SavedPath::new();
// Relaxed, for all of these: each is a value of its own.
static INTERVAL: AtomicU64 = AtomicU64::new(profile::DEFAULT_INTERVAL);
/// The signal whose handler writes the profile, or 0.
static SIGNAL: AtomicI32 = AtomicI32::new(0);
/// The process that writes `FILE` itself, or 0 before `FILE` is known.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// Begins a profile that is to be written to a file, or ends it.
pub(super) fn apply_file(value: &[u8]) -> Result<(), &'static str> {
    if value == b"off" {
        profile::stop();
        FILE.clear();
        return Ok(());
    }
    FILE.set(value)?;
    if OWNER.load(Relaxed) == 0 {
        OWNER.store(process(), Relaxed);
    }
    profile::start(INTERVAL.load(Relaxed));
    Ok(())
}

/// Sets the interval of a profile that is on, or of the next one.
pub(super) fn apply_interval(value: &[u8]) -> Result<(), &'static str> {
    let interval = number(value).unwrap_or(profile::DEFAULT_INTERVAL);
    INTERVAL.store(interval, Relaxed);
    if profile::is_on() {
        profile::start(interval);
    }
    Ok(())
}

/// Writes the profile whenever a signal comes, or no longer.
pub(super) fn apply_signal(value: &[u8]) -> Result<(), &'static str> {
    let named = SIGNALS.iter().find(|(name, _)| name.as_bytes() == value);
    let signal = named.map_or(0, |&(_, signal)| signal);
    let before = SIGNAL.load(Relaxed);
    if signal == before {
        return Ok(());
    }
    if signal != 0 && !replace_handler(signal, libc::SIG_DFL, handler()) {
        return Err("the program handles this signal");
    }
    if before != 0 {
        replace_handler(before, handler(), libc::SIG_DFL);
    }
    SIGNAL.store(signal, Relaxed);
    Ok(())
}

/// Writes the profile at new peaks, or no longer.
pub(super) fn apply_at_peak(value: &[u8]) -> Result<(), &'static str> {
    profile::call_at_peaks((value == b"on").then_some(write));
    Ok(())
}

/// Sets the process that writes the file itself. 0 stands for this one.
pub(super) fn apply_owner(value: &[u8]) -> Result<(), &'static str> {
    let owner = number(value).and_then(|id| i32::try_from(id).ok()).filter(|&id| id != 0);
    OWNER.store(owner.unwrap_or_else(process), Relaxed);
    Ok(())
}

pub(super) fn file() -> Value {
    FILE.get().map_or(Value::Word("off"), |path| Value::File("", path))
}

pub(super) fn interval() -> Value {
    Value::Number(INTERVAL.load(Relaxed))
}

pub(super) fn signal() -> Value {
    let signal = SIGNAL.load(Relaxed);
    let known = SIGNALS.iter().find(|&&(_, number)| number == signal);
    Value::Word(known.map_or("off", |&(name, _)| name))
}

pub(super) fn at_peak() -> Value {
    Value::on_or_off(profile::calls_at_peaks())
}

pub(super) fn owner() -> Value {
    Value::Number(u64::from(OWNER.load(Relaxed).unsigned_abs()))
}

fn process() -> libc::pid_t {
    // SAFETY: getpid has no preconditions.
    unsafe { libc::getpid() }
}

fn handler() -> libc::sighandler_t {
    on_signal as extern "C" fn(c_int) as usize
}

/// Replaces a signal's handler; returns false if it has another one than `from`.
fn replace_handler(signal: c_int, from: libc::sighandler_t, to: libc::sighandler_t) -> bool {
    // SAFETY: `sigaction` is plain data, for which zeros are valid. `to` is SIG_DFL, or a handler
    // that is async-signal-safe.
    unsafe {
        let mut old: libc::sigaction = mem::zeroed();
        let is_expected =
            libc::sigaction(signal, ptr::null(), &raw mut old) == 0 && old.sa_sigaction == from;
        let mut new: libc::sigaction = mem::zeroed();
        new.sa_sigaction = to;
        new.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
        is_expected && libc::sigaction(signal, &raw const new, ptr::null_mut()) == 0
    }
}

extern "C" fn on_signal(_: c_int) {
    write();
}

/// Writes the profile to the file of this process, and says once if that fails.
fn write() {
    try_write_profile();
}

/// Writes the profile to the file of the setting `profile`, if there is one.
///
/// Says once if that fails. Returns false if another thread is writing it now. May be called from a
/// signal handler.
pub fn try_write_profile() -> bool {
    let Some(path) = FILE.get() else { return true };
    profile::write_file(path, OWNER.load(Relaxed)).unwrap_or_else(|error| {
        warn(path, error);
        true
    })
}

fn warn(path: &CStr, error: c_int) {
    static IS_SAID: AtomicBool = AtomicBool::new(false);
    if !IS_SAID.swap(true, Relaxed) {
        write_line(
            libc::STDERR_FILENO,
            format_args!(
                "thiscpu: warning: cannot write the heap profile to {}: error {error}",
                path.to_bytes().escape_ascii()
            ),
        );
    }
}
