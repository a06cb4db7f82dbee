//! Timers: guards that record how long they lived.

use std::time::{Duration, Instant};

use crate::histogram::Histogram;

/// A guard that records its lifetime in a histogram, in seconds.
///
/// [`Histogram::start_timer`] creates it. It records once: when it is stopped or dropped, also
/// during a panic. It keeps a handle of the histogram, so it may be sent to another thread.
#[derive(Debug)]
#[must_use = "a timer that is dropped at once records no time"]
pub struct Timer {
    histogram: Histogram,
    /// `None` once it has ended.
    began: Option<Instant>,
}

impl Histogram {
    /// Starts a timer, which records the seconds until it is dropped.
    ///
    /// Reads the clock here and at the end, some 20 ns each. May not be called from signal
    /// handlers, because the timer clones a handle.
    ///
    /// ```
    /// let registry = thiscpu_metrics::Registry::new();
    /// let latency = registry.histogram("latency_seconds", "Time of a request.", &[])?;
    /// {
    ///     let _timer = latency.start_timer();
    ///     // the request
    /// }
    /// assert!(registry.render().contains("latency_seconds_count 1\n"));
    /// # Ok::<(), thiscpu_metrics::Error>(())
    /// ```
    pub fn start_timer(&self) -> Timer {
        Timer { histogram: self.clone(), began: Some(Instant::now()) }
    }
}

impl Timer {
    /// Records the time, and returns it.
    pub fn stop(mut self) -> Duration {
        self.record()
    }

    /// Ends the timer without recording anything.
    pub fn discard(mut self) {
        self.began = None;
    }

    fn record(&mut self) -> Duration {
        let Some(began) = self.began.take() else { return Duration::ZERO };
        let elapsed = began.elapsed();
        self.histogram.record(elapsed.as_secs_f64());
        elapsed
    }
}

impl Drop for Timer {
    /// Records the time, unless the timer has ended.
    fn drop(&mut self) {
        self.record();
    }
}

#[cfg(test)]
mod tests {
    use crate::registry::Registry;

    #[test]
    fn timers_record_once_unless_they_are_discarded() {
        let registry = Registry::new();
        let time = registry.histogram("time", "", &[]).unwrap();
        let count = |wanted: u32| {
            let text = registry.render();
            assert!(text.contains(&format!("time_count {wanted}\n")), "{text}");
        };
        drop(time.start_timer());
        count(1);
        let elapsed = time.start_timer().stop();
        count(2);
        time.start_timer().discard();
        count(2);
        let timer = time.start_timer();
        std::thread::spawn(move || {
            let _timer = timer;
            panic!("deliberate");
        })
        .join()
        .unwrap_err();
        count(3);
        assert!(elapsed.as_secs() < 3_600);
    }
}
