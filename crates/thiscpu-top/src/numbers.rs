//! Numbers as people read them.

/// The prefixes of thousands.
const PREFIXES: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];

/// Returns a number in at most six characters, and a seventh for its sign.
pub(crate) fn compact(number: f64) -> String {
    let (mut size, mut prefix) = (number.abs(), 0);
    // A size that would be shown as 1000 has the next prefix.
    while size >= 999.5 && prefix + 1 < PREFIXES.len() {
        size /= 1000.0;
        prefix += 1;
    }
    let decimals = match size {
        0.0 => 0,
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    let sign = if number < 0.0 { "-" } else { "" };
    format!("{sign}{size:.decimals$}{}", PREFIXES[prefix])
}

/// Returns how much of something is in use, in percent.
pub(crate) fn percent(used: u64, all: u64) -> String {
    match all {
        0 => "-".to_owned(),
        _ => format!("{:.0}%", 100.0 * used as f64 / all as f64),
    }
}

/// Returns a number of bytes.
pub(crate) fn bytes(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = (0..units.len() - 1).find(|unit| bytes >> (10 * unit) < 1024).unwrap_or(4);
    match bytes as f64 / f64::powi(1024.0, unit as i32) {
        size if unit == 0 || size >= 10.0 => format!("{size:.0} {}", units[unit]),
        size => format!("{size:.1} {}", units[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compact_numbers_have_three_digits() {
        for (number, text) in [
            (0.0, "0"),
            (0.5, "0.50"),
            (9.999, "10.0"),
            (-12.34, "-12.3"),
            (999.4, "999"),
            (999.7, "1.00k"),
            (12_345.0, "12.3k"),
            (1e18, "1.00E"),
            (-9.3e18, "-9.30E"),
        ] {
            assert_eq!(compact(number), text);
        }
    }

    #[test]
    fn bytes_have_units() {
        assert_eq!([0, 1023, 1024, 12 << 20].map(bytes), ["0 B", "1023 B", "1.0 KiB", "12 MiB"]);
        assert_eq!((percent(1, 8), percent(0, 0)), ("12%".into(), "-".into()));
    }
}
