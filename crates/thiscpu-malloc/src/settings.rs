//! The settings in one table: names, values, defaults and costs.
//!
//! The preloaded library reads settings from `THISCPU_MALLOC`, `thiscpu run` writes that variable,
//! `thiscpu doctor` shows it, and programs call [`set`]. All of them use this table, and a test
//! compares the document with it.

mod exit_stats;
mod form;
mod heap_profile;
mod saved_path;

use core::ffi::CStr;
use core::fmt;

use thiscpu::__internal::large::{Thp, set_thp, thp_mode};

use crate::background;
use crate::fast_path::{HARDENED, disable_hardening, enable_hardening, has_flag};

pub use exit_stats::{ExitStats, exit_stats};
pub use heap_profile::try_write_profile;

/// All settings, in the order of the document.
static SETTINGS: [Setting; 9] = [
    Setting {
        name: "stats",
        values: &["table", "json", "json:FILE", "off"],
        default: "off",
        cost: "a nanosecond per call, from then on until the process ends",
        apply: exit_stats::apply,
        value: exit_stats::value,
    },
    Setting {
        name: "harden",
        values: &["on", "off"],
        default: "off",
        cost: "at most 1 % of one CPU's time",
        apply: apply_harden,
        value: harden,
    },
    Setting {
        name: "thp",
        values: &["always", "dense", "never"],
        default: "dense",
        cost: "always: 2 MiB per page that a large block uses; never: time",
        apply: apply_thp,
        value: thp,
    },
    Setting {
        name: "profile",
        values: &["FILE", "off"],
        default: "off",
        cost: "at most 1 % of time at the default interval",
        apply: heap_profile::apply_file,
        value: heap_profile::file,
    },
    Setting {
        name: "profile_interval",
        values: &["BYTES"],
        default: "524288",
        cost: "some microseconds for each sample",
        apply: heap_profile::apply_interval,
        value: heap_profile::interval,
    },
    Setting {
        name: "profile_signal",
        values: &["USR2", "USR1", "HUP", "PROF", "QUIT", "URG", "WINCH", "off"],
        default: "off",
        cost: "nothing until the signal comes",
        apply: heap_profile::apply_signal,
        value: heap_profile::signal,
    },
    Setting {
        name: "profile_at_peak",
        values: &["on", "off"],
        default: "off",
        cost: "a file written, at most once a second",
        apply: heap_profile::apply_at_peak,
        value: heap_profile::at_peak,
    },
    Setting {
        name: "profile_pid",
        values: &["PID"],
        default: "0",
        cost: "nothing",
        apply: heap_profile::apply_owner,
        value: heap_profile::owner,
    },
    Setting {
        name: "background_thread",
        values: &["on", "off"],
        default: "off",
        cost: "a thread, and at most 2 % of one CPU's time",
        apply: apply_background_thread,
        value: background_thread,
    },
];

/// A setting of the allocator: its name, values, default and cost.
pub struct Setting {
    name: &'static str,
    /// A bare name means the first one.
    values: &'static [&'static str],
    default: &'static str,
    cost: &'static str,
    /// Makes a value take effect, or returns the reason why it cannot.
    apply: fn(&[u8]) -> Result<(), &'static str>,
    /// Returns the value that it has now.
    value: fn() -> Value,
}

/// The value that a setting has now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Word(&'static str),
    /// A word that ends with a path: the letters before the path, and the path.
    File(&'static str, &'static CStr),
    Number(u64),
}

impl Value {
    fn on_or_off(is_on: bool) -> Value {
        Value::Word(if is_on { "on" } else { "off" })
    }
}

impl Setting {
    /// Returns its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns its values. A name without a value stands for the first one.
    ///
    /// `FILE` stands for a path, `BYTES` for a number from 1 to 2^40, and `PID` for the ID of a
    /// process or 0.
    pub fn values(&self) -> &'static [&'static str] {
        self.values
    }

    /// Returns the value that it has if nothing sets it.
    pub fn default_value(&self) -> &'static str {
        self.default
    }

    /// Returns the value that it has now.
    pub(crate) fn value(&self) -> Value {
        (self.value)()
    }

    /// Returns what a value other than `off` costs.
    pub fn cost(&self) -> &'static str {
        self.cost
    }
}

impl fmt::Debug for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Returns all settings.
pub fn settings() -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter()
}

/// Why a setting has not changed.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum SettingError {
    /// No setting has this name.
    UnknownName,
    /// The setting has no such value.
    InvalidValue(&'static Setting),
    /// The value is valid, but cannot take effect now, for this reason.
    NotApplied(&'static str),
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, names: &mut dyn Iterator<Item = &str>| {
            names.enumerate().try_for_each(|(at, name)| match at {
                0 => f.write_str(name),
                _ => write!(f, ", {name}"),
            })
        };
        match self {
            SettingError::UnknownName => {
                f.write_str("no setting has this name; there are: ")?;
                list(f, &mut settings().map(Setting::name))
            }
            SettingError::InvalidValue(setting) => {
                f.write_str("its values are: ")?;
                list(f, &mut setting.values.iter().copied())?;
                write!(f, " (default: {})", setting.default)
            }
            SettingError::NotApplied(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for SettingError {}

/// Changes a setting from now on.
///
/// The guide has the names and values. Takes a lock and some system calls, so signal handlers must
/// not call it. The path of a file takes a page for good.
///
/// # Errors
///
/// If no setting has the name, if the setting does not have the value, or if the value cannot take
/// effect. Nothing has changed then.
///
/// ```
/// # use thiscpu_malloc::{SettingError, is_counting, set};
/// set("stats", "table")?;
/// assert!(is_counting());
/// assert!(matches!(set("stats", "everything"), Err(SettingError::InvalidValue(_))));
/// # Ok::<(), SettingError>(())
/// ```
pub fn set(name: &str, value: &str) -> Result<(), SettingError> {
    Assignment::new(name.as_bytes(), Some(value.as_bytes()))?.apply()
}

/// A valid value for a setting.
#[derive(Clone, Copy, Debug)]
pub struct Assignment<'a> {
    /// The setting that [`Assignment::apply`] changes.
    pub setting: &'static Setting,
    /// A value that has one of its forms.
    pub value: &'a [u8],
}

impl<'a> Assignment<'a> {
    /// Parses a word of `THISCPU_MALLOC`, `NAME=VALUE` or `NAME`; `None` if it is blank.
    ///
    /// # Errors
    ///
    /// If no setting has the name, or the setting does not have the value.
    pub fn parse(word: &'a [u8]) -> Result<Option<Assignment<'a>>, SettingError> {
        let mut parts = word.trim_ascii().splitn(2, |&byte| byte == b'=');
        match (parts.next().unwrap_or_default(), parts.next()) {
            (b"", None) => Ok(None),
            (name, value) => Assignment::new(name, value).map(Some),
        }
    }

    /// Checks a name, and a value or its absence.
    ///
    /// # Errors
    ///
    /// If no setting has the name, or the setting does not have the value.
    pub fn new(name: &[u8], value: Option<&'a [u8]>) -> Result<Assignment<'a>, SettingError> {
        let setting = SETTINGS
            .iter()
            .find(|setting| setting.name.as_bytes() == name)
            .ok_or(SettingError::UnknownName)?;
        let fits = |value: &&[u8]| setting.values.iter().any(|form| form::fits(form, value));
        match value.or(form::word(setting.values[0])).filter(fits) {
            Some(value) => Ok(Assignment { setting, value }),
            None => Err(SettingError::InvalidValue(setting)),
        }
    }

    /// Makes the value take effect.
    ///
    /// # Errors
    ///
    /// If it cannot. Nothing has changed then.
    pub fn apply(self) -> Result<(), SettingError> {
        (self.setting.apply)(self.value).map_err(SettingError::NotApplied)
    }
}

fn harden() -> Value {
    Value::on_or_off(has_flag(HARDENED))
}

fn apply_harden(value: &[u8]) -> Result<(), &'static str> {
    if value == b"off" {
        disable_hardening();
        return Ok(());
    }
    enable_hardening().then_some(()).ok_or("cannot reserve guarded pages, or handle SIGSEGV")
}

fn thp() -> Value {
    Value::Word(match thp_mode() {
        Thp::Always => "always",
        Thp::Dense => "dense",
        Thp::Never => "never",
    })
}

fn apply_thp(value: &[u8]) -> Result<(), &'static str> {
    set_thp(match value {
        b"always" => Thp::Always,
        b"never" => Thp::Never,
        _ => Thp::Dense,
    });
    Ok(())
}

fn apply_background_thread(value: &[u8]) -> Result<(), &'static str> {
    background::enable(value == b"on").then_some(()).ok_or("cannot start a thread")
}

fn background_thread() -> Value {
    Value::on_or_off(background::is_enabled())
}
