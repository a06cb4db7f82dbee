//! The statistics as JSON, written without allocation.

use core::ffi::{CStr, c_char};
use core::fmt::{self, Write};

use crate::fast_path::is_counting;
use crate::settings::{Value, settings};
use crate::stats::{ClassStats, Stats, class_stats, totals};

unsafe extern "C" {
    static program_invocation_short_name: *const c_char;
}

/// Returns the statistics as one line of JSON, as [`write_stats_json`] writes them.
pub fn stats_json() -> String {
    let mut text = String::new();
    // A string accepts all text.
    let _ = write_stats_json(&mut text);
    text
}

/// Writes the statistics as one line of JSON, without a line feed.
///
/// The object has the members `version` (1), `pid`, `program`, `is_counting`, `settings` (an object
/// with the value that each one has now), `classes`, and one for each field of [`Stats`]. `classes`
/// is an array with an object for each size class that was ever used, which has a member for each
/// field of [`ClassStats`]. All numbers are integers. `allocations`, `frees` and `hits` are `null`
/// if calls are not counted. Later versions of this crate may add members; `version` changes if one
/// is removed or gets another meaning.
///
/// Costs what [`stats`](crate::stats()) does. Allocates nothing, and holds no lock while it writes,
/// so `out` may allocate. Must not be called from a signal handler.
///
/// # Errors
///
/// Those of `out`.
pub fn write_stats_json(out: &mut dyn Write) -> fmt::Result {
    // SAFETY: getpid has no preconditions. The C library has set the name, which ends with a zero
    // byte.
    let (process, name) =
        unsafe { (libc::getpid(), CStr::from_ptr(program_invocation_short_name)) };
    write!(out, "{{\"version\":1,\"pid\":{process},\"program\":\"{}\"", Escaped(name.to_bytes()))?;
    write!(out, ",\"is_counting\":{}", is_counting())?;
    write_settings(out)?;
    // The totals are those of the classes as they were written. They come last, because an array of
    // all classes would take much of the stack.
    out.write_str(",\"classes\":[")?;
    let (mut written, mut before) = (Ok(()), "{");
    let now = totals(class_stats().inspect(|class| {
        if class.is_used() && written.is_ok() {
            written = out
                .write_str(before)
                .and_then(|()| write_class(class, out))
                .and_then(|()| out.write_str("}"));
            before = ",{";
        }
    }));
    written?;
    out.write_str("]")?;
    write_totals(&now, out)?;
    out.write_str("}")
}

fn write_settings(out: &mut dyn Write) -> fmt::Result {
    for (number, setting) in settings().enumerate() {
        let before = if number == 0 { ",\"settings\":{" } else { "," };
        write!(out, "{before}\"{}\":", setting.name())?;
        match setting.value() {
            Value::Word(word) => write!(out, "\"{word}\"")?,
            Value::File(prefix, path) => {
                write!(out, "\"{prefix}{}\"", Escaped(path.to_bytes()))?;
            }
            Value::Number(number) => write!(out, "{number}")?,
        }
    }
    out.write_str("}")
}

fn write_totals(now: &Stats, out: &mut dyn Write) -> fmt::Result {
    // A pattern with all fields, so that a new one cannot be forgotten here.
    let &Stats {
        allocated_bytes,
        peak_allocated_bytes,
        free_bytes,
        free_blocks,
        large_blocks,
        large_bytes,
        guarded_blocks,
        guarded_blocks_total,
        system_bytes,
        peak_system_bytes,
        resident_bytes,
        mapped_bytes,
        retained_bytes,
        purgeable_bytes,
        purged_bytes,
        trades,
        remote_frees,
    } = now;
    for (name, value) in [
        ("allocated_bytes", allocated_bytes as u64),
        ("peak_allocated_bytes", peak_allocated_bytes as u64),
        ("free_bytes", free_bytes as u64),
        ("free_blocks", free_blocks as u64),
        ("large_blocks", large_blocks as u64),
        ("large_bytes", large_bytes as u64),
        ("guarded_blocks", guarded_blocks as u64),
        ("guarded_blocks_total", guarded_blocks_total as u64),
        ("system_bytes", system_bytes as u64),
        ("peak_system_bytes", peak_system_bytes as u64),
        ("resident_bytes", resident_bytes as u64),
        ("mapped_bytes", mapped_bytes as u64),
        ("retained_bytes", retained_bytes as u64),
        ("purgeable_bytes", purgeable_bytes as u64),
        ("purged_bytes", purged_bytes),
        ("trades", trades),
        ("remote_frees", remote_frees),
    ] {
        write!(out, ",\"{name}\":{value}")?;
    }
    Ok(())
}

fn write_class(class: &ClassStats, out: &mut dyn Write) -> fmt::Result {
    let &ClassStats {
        size,
        allocations,
        frees,
        hits,
        trades,
        remote_frees,
        slabs,
        allocated_bytes,
        free_bytes,
    } = class;
    write!(out, "\"size\":{size}")?;
    for (name, calls) in [("allocations", allocations), ("frees", frees), ("hits", hits)] {
        match is_counting() {
            true => write!(out, ",\"{name}\":{calls}")?,
            false => write!(out, ",\"{name}\":null")?,
        }
    }
    for (name, value) in [
        ("trades", trades),
        ("remote_frees", remote_frees),
        ("slabs", slabs as u64),
        ("allocated_bytes", allocated_bytes as u64),
        ("free_bytes", free_bytes as u64),
    ] {
        write!(out, ",\"{name}\":{value}")?;
    }
    Ok(())
}

/// Text as the inside of a JSON string, with invalid UTF-8 replaced by `?`.
struct Escaped<'a>(&'a [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for letter in chunk.valid().chars() {
                match letter {
                    '"' | '\\' => write!(f, "\\{letter}")?,
                    '\0'..='\x1f' => write!(f, "\\u{:04x}", letter as u32)?,
                    _ => f.write_char(letter)?,
                }
            }
            if !chunk.invalid().is_empty() {
                f.write_str("?")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped() {
        let escaped = Escaped(b"a\"b\\c\n\xffd").to_string();
        assert_eq!(escaped, "a\\\"b\\\\c\\u000a?d");
    }
}
