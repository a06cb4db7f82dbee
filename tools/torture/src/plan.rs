//! The options of a run, and the plan that they give.

use std::time::Duration;

use thiscpu_test_support::cpus;

/// The default length of a run in seconds.
pub const DEFAULT_SECONDS: f64 = 10.0;
/// The longest possible run in seconds: a week.
pub const SECONDS_MAX: f64 = 7.0 * 24.0 * 3600.0;
/// The greatest possible number of workers.
pub const THREADS_MAX: usize = 4096;
/// The default number of workers for each CPU.
///
/// Most of them wait for a CPU, in the middle of an operation.
pub const THREADS_PER_CPU: usize = 8;

/// The options of a run; `None` is the default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The length of the run.
    pub seconds: Option<f64>,
    /// The number of workers.
    pub threads: Option<usize>,
    /// The seed of all random numbers; a new one each time by default.
    pub seed: Option<u64>,
}

/// The plan of a run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The time that workers run.
    pub duration: Duration,
    /// The number of workers that stay for the whole run.
    pub threads: usize,
    /// The seed of all random numbers.
    pub seed: u64,
}

impl Plan {
    /// Fills in the defaults of `options`.
    #[must_use]
    pub fn new(options: &Options) -> Plan {
        let threads = || (THREADS_PER_CPU * cpus::allowed().len()).clamp(1, THREADS_MAX);
        Plan {
            duration: Duration::from_secs_f64(options.seconds.unwrap_or(DEFAULT_SECONDS)),
            threads: options.threads.unwrap_or_else(threads),
            // 32 bits are short to type, and every JSON parser keeps them exactly.
            seed: options.seed.unwrap_or_else(|| u64::from(fastrand::u32(..))),
        }
    }
}

/// Parses the length of a run.
///
/// # Errors
///
/// If `text` is not a number of seconds from above 0 to [`SECONDS_MAX`].
pub fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if seconds > 0.0 && seconds <= SECONDS_MAX => Ok(seconds),
        _ => Err(format!("a run takes more than 0 and at most {SECONDS_MAX} seconds")),
    }
}

/// Parses a number of workers.
///
/// # Errors
///
/// If `text` is not a number from 1 to [`THREADS_MAX`].
pub fn parse_threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(threads @ 1..=THREADS_MAX) => Ok(threads),
        _ => Err(format!("the number of threads is from 1 to {THREADS_MAX}")),
    }
}

/// Parses a seed, in decimal or, after `0x`, in hexadecimal digits.
///
/// # Errors
///
/// If `text` is not an integer of 64 bits.
pub fn parse_seed(text: &str) -> Result<u64, String> {
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
        assert_eq!(parse_seconds("0.5"), Ok(0.5));
        assert!(parse_threads("0").is_err() && parse_threads("4097").is_err());
        assert_eq!(parse_threads("4096"), Ok(4096));
        assert!(
            parse_seed("x").is_err() && parse_seed("0xg").is_err() && parse_seed("-1").is_err()
        );
        assert_eq!((parse_seed("0x10"), parse_seed("10")), (Ok(16), Ok(10)));
    }
}
