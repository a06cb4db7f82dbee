//! The plan of a run, as the command line gives it.

use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use thiscpu_test_support::cpus;

/// The longest possible run in seconds: a week.
const SECONDS_MAX: f64 = 7.0 * 24.0 * 3600.0;
const THREADS_MAX: usize = 4096;
/// The default number of workers for each CPU.
///
/// Most of them wait for a CPU, in the middle of an operation.
const THREADS_PER_CPU: usize = 8;

#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Plan {
    /// Run for S seconds
    #[arg(long = "seconds", value_name = "S", default_value = "10")]
    #[arg(value_parser = parse_seconds, allow_negative_numbers = true)]
    pub(crate) duration: Duration,

    /// Start N workers that stay for the whole run [default: 8 for each CPU]
    #[arg(long, value_name = "N", default_value_t = default_threads(), hide_default_value = true)]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..=THREADS_MAX as u64))]
    #[arg(allow_negative_numbers = true)]
    pub(crate) threads: usize,

    /// Start the random numbers at X, such as 7 or 0x7 [default: another seed each time]
    // 32 bits are short to type, and every JSON parser keeps them exactly.
    #[arg(long, value_name = "X", default_value_t = fastrand::u32(..).into())]
    #[arg(value_parser = parse_seed, allow_negative_numbers = true, hide_default_value = true)]
    pub(crate) seed: u64,
}

fn default_threads() -> usize {
    (THREADS_PER_CPU * cpus::allowed().len()).clamp(1, THREADS_MAX)
}

pub(crate) fn parse_seconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds) if seconds > 0.0 && seconds <= SECONDS_MAX => {
            Ok(Duration::from_secs_f64(seconds))
        }
        _ => Err(format!("a run takes more than 0 and at most {SECONDS_MAX} seconds")),
    }
}

/// Parses a seed, in decimal or, after `0x`, in hexadecimal digits.
pub(crate) fn parse_seed(text: &str) -> Result<u64, String> {
    let seed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    seed.map_err(|_| "a seed is an integer of at most 64 bits, such as 7 or 0x7".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_options_are_refused() {
        for text in ["0", "-1", "NaN", "inf", "", "1e9"] {
            assert!(parse_seconds(text).is_err(), "{text}");
        }
        assert_eq!(parse_seconds("0.5"), Ok(Duration::from_millis(500)));
        for text in ["x", "0xg", "-1"] {
            assert!(parse_seed(text).is_err(), "{text}");
        }
        assert_eq!((parse_seed("0x10"), parse_seed("10")), (Ok(16), Ok(10)));
    }
}
