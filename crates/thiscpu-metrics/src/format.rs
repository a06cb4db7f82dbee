//! Formats numbers for the text format.

/// The number of billionths in a unit.
pub(crate) const BILLION: i64 = 1_000_000_000;

/// Integers from here on are written with an exponent.
const EXPONENT_MIN: f64 = 1e16;

/// Appends a number.
pub(crate) fn push_number(value: f64, out: &mut String) {
    if value.is_nan() {
        out.push_str("NaN");
    } else if value.is_infinite() {
        out.push_str(if value > 0.0 { "+Inf" } else { "-Inf" });
    } else if value.abs() < EXPONENT_MIN && value as i64 as f64 == value {
        push_integer(value as i64, out);
    } else {
        out.push_str(ryu::Buffer::new().format_finite(value));
    }
}

/// Appends an integer.
pub(crate) fn push_integer(value: impl itoa::Integer, out: &mut String) {
    out.push_str(itoa::Buffer::new().format(value));
}

/// Appends whole units plus billionths, each of either sign, as one exact number.
pub(crate) fn push_fixed(whole: i64, billionths: i64, out: &mut String) {
    const UNIT: i128 = BILLION as i128;
    let all = i128::from(whole) * UNIT + i128::from(billionths);
    if all < 0 {
        out.push('-');
    }
    let all = all.unsigned_abs();
    push_integer(all / UNIT as u128, out);
    let billionths = all % UNIT as u128;
    if billionths > 0 {
        // The added unit keeps leading zeros, and is not written.
        let mut digits = itoa::Buffer::new();
        let digits = &digits.format(billionths + UNIT as u128)[1..];
        out.push('.');
        out.push_str(digits.trim_end_matches('0'));
    }
}

/// Returns the bound of a bucket as OpenMetrics writes it.
///
/// Both formats write it in this way, so that a bucket is one series.
pub(crate) fn bound(value: f64) -> String {
    const DECIMAL: std::ops::Range<f64> = 1e-4..1e6;
    if value == 0.0 || DECIMAL.contains(&value.abs()) {
        return format!("{value:?}");
    }
    let text = format!("{value:e}");
    let (mantissa, exponent) = text.split_once('e').expect("that format has an exponent");
    let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
    format!("{mantissa}e{sign}{digits:0>2}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(value: f64) -> String {
        let mut text = String::new();
        push_number(value, &mut text);
        text
    }

    #[test]
    fn numbers_parse_to_the_same_value() {
        for (value, wanted) in [
            (0.0, "0"),
            (-3.0, "-3"),
            (0.005, "0.005"),
            (1e16, "1e16"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(number(value), wanted);
        }
        for value in [1e300, 0.1 + 0.2, -1e-7, f64::MIN_POSITIVE, 9_007_199_254_740_993.0] {
            assert_eq!(number(value).parse(), Ok(value));
        }
    }

    #[test]
    fn bounds_are_canonical() {
        for (value, wanted) in [
            (0.0, "0.0"),
            (1.0, "1.0"),
            (-2.5, "-2.5"),
            (1e-4, "0.0001"),
            (1e-5, "1e-05"),
            (2.5e-10, "2.5e-10"),
            (100_000.0, "100000.0"),
            (1e6, "1e+06"),
            (123_456_789.0, "1.23456789e+08"),
            (1e300, "1e+300"),
        ] {
            assert_eq!(bound(value), wanted);
        }
    }

    #[test]
    fn units_and_billionths_format_as_one_number() {
        for (parts, wanted) in [
            ((0, 0), "0"),
            ((3, 250_000_000), "3.25"),
            ((0, -1), "-0.000000001"),
            ((-1, -500_000_000), "-1.5"),
            ((1, -500_000_000), "0.5"),
            ((2, 3_000_000_000), "5"),
            ((i64::MAX, 1), "9223372036854775807.000000001"),
        ] {
            let mut text = String::new();
            push_fixed(parts.0, parts.1, &mut text);
            assert_eq!(text, wanted);
        }
    }
}
