//! From what was asked for to what will run.

use std::time::Duration;

use crate::cpus;

/// How long a run is when nobody says otherwise.
pub const DEFAULT_SECONDS: f64 = 10.0;
/// The longest run that can be asked for: a week.
pub const SECONDS_MAX: f64 = 7.0 * 24.0 * 3600.0;
/// The most workers that can be asked for.
pub const THREADS_MAX: usize = 4096;
/// How many workers there are for each CPU when nobody says otherwise: most of them wait for a CPU
/// in the middle of something.
pub const THREADS_PER_CPU: usize = 8;

/// What was asked for; no value means the default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// How long.
    pub seconds: Option<f64>,
    /// How many workers.
    pub threads: Option<usize>,
    /// Where random numbers begin; by default somewhere else each time.
    pub seed: Option<u64>,
}

/// What will run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// How long workers work.
    pub duration: Duration,
    /// How many workers there are from beginning to end.
    pub threads: usize,
    /// Where random numbers begin.
    pub seed: u64,
}

impl Plan {
    /// Fills in what `options` leave open.
    #[must_use]
    pub fn new(options: &Options) -> Plan {
        let threads = || (THREADS_PER_CPU * cpus::allowed().len()).clamp(1, THREADS_MAX);
        Plan {
            duration: Duration::from_secs_f64(options.seconds.unwrap_or(DEFAULT_SECONDS)),
            threads: options.threads.unwrap_or_else(threads),
            // 32 bits, so that it is short to type and exact in every reader of JSON.
            seed: options.seed.unwrap_or_else(|| u64::from(fastrand::u32(..))),
        }
    }
}

/// Reads the length of a run.
///
/// # Errors
///
/// When `text` is no number of seconds that a run can take.
pub fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if seconds > 0.0 && seconds <= SECONDS_MAX => Ok(seconds),
        _ => Err(format!("a run takes greater than 0 and at most {SECONDS_MAX} seconds")),
    }
}

/// Reads a number of workers.
///
/// # Errors
///
/// When `text` is no such number.
pub fn parse_threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(threads @ 1..=THREADS_MAX) => Ok(threads),
        _ => Err(format!("a number of threads is from 1 to {THREADS_MAX}")),
    }
}

/// Reads a seed, in decimal or, after `0x`, in hexadecimal digits.
///
/// # Errors
///
/// When `text` is no number of 64 bits.
pub fn parse_seed(text: &str) -> Result<u64, String> {
    let seed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    seed.map_err(|_| "a seed is a number of at most 64 bits".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_run_is_refused() {
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
