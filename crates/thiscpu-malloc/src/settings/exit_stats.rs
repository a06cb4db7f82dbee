//! The setting `stats`: counting of calls, and the output when the process exits.

use core::ffi::CStr;
use core::sync::atomic::{
    AtomicU8,
    Ordering::{Acquire, Release},
};

use super::Value;
use super::saved_path::SavedPath;
use crate::fast_path::enable_counting;

/// What the preloaded library writes when the process exits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStats {
    /// Nothing.
    Off,
    /// The table, to standard error.
    Table,
    /// JSON, to this file, or else to standard error.
    Json(Option<&'static CStr>),
}

const OFF: u8 = 0;
const TABLE: u8 = 1;
const JSON: u8 = 2;
const JSON_FILE: u8 = 3;

static FORMAT: AtomicU8 = AtomicU8::new(OFF);
static FILE: SavedPath = SavedPath::new();

/// Returns what the preloaded library is to write when the process exits.
pub fn exit_stats() -> ExitStats {
    // Acquire: pairs with the Release in `apply`, before which the path was saved.
    match FORMAT.load(Acquire) {
        TABLE => ExitStats::Table,
        JSON => ExitStats::Json(None),
        JSON_FILE => ExitStats::Json(FILE.get()),
        _ => ExitStats::Off,
    }
}

pub(super) fn value() -> Value {
    match exit_stats() {
        ExitStats::Off => Value::Word("off"),
        ExitStats::Table => Value::Word("table"),
        ExitStats::Json(None) => Value::Word("json"),
        ExitStats::Json(Some(path)) => Value::File("json:", path),
    }
}

pub(super) fn apply(value: &[u8]) -> Result<(), &'static str> {
    let format = match value {
        b"off" => OFF,
        b"table" => TABLE,
        b"json" => JSON,
        file => {
            FILE.set(file.strip_prefix(b"json:").unwrap_or(file))?;
            JSON_FILE
        }
    };
    if format != OFF {
        enable_counting();
    }
    // Release: pairs with the Acquire in `exit_stats`.
    FORMAT.store(format, Release);
    Ok(())
}
