//! Counters.

use std::ffi::c_char;

use thiscpu_metrics::Counter;

use crate::ffi::{catch, create, deref, destroy, take, text, text_or_empty};
use crate::labels::{ThiscpuMetricsLabel, labels};
use crate::registry::ThiscpuMetricsRegistry;
use crate::status::Status;

/// A handle of a series that only grows. Rust: `Counter`.
///
/// - Threads: any number may change the series at once.
/// - Signal handlers: `_increment` only.
pub struct ThiscpuMetricsCounter(pub(crate) Counter);

/// Creates a series and stores its handle in `*counter`.
///
/// `help` may be NULL or empty: then the series has no help text, or that of others of its name.
/// `labels` are `label_count` labels. The name ends in `_total`, which is appended if necessary.
///
/// - NULL: allowed for `help`, and for `labels` if there are none.
/// - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`; `REJECTED` if a name is invalid, if the series
///   exists, or if the name has another kind or help text.
/// - Blocks: for a current scrape.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_metrics_counter_create(
    registry: *const ThiscpuMetricsRegistry,
    name: *const c_char,
    help: *const c_char,
    labels: *const ThiscpuMetricsLabel,
    label_count: usize,
    counter: *mut *mut ThiscpuMetricsCounter,
) -> Status {
    let new = || {
        // SAFETY: the header requires that the handle is null or live, and that texts and labels
        // are null or valid.
        let (registry, name, help, labels) = unsafe {
            (
                deref(registry)?,
                text(name)?,
                text_or_empty(help)?,
                self::labels(labels, label_count)?,
            )
        };
        Ok(ThiscpuMetricsCounter(registry.0.counter(name, help, &labels)?))
    };
    // SAFETY: the header requires that `counter` is null or valid for writes.
    unsafe { create(counter, new) }
}

/// Destroys a handle. The series stays, with its value.
///
/// `thiscpu_metrics_counter_remove` removes it.
///
/// - NULL: allowed; does nothing.
/// - Returns: `OK`.
/// - Blocks: never.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_metrics_counter_destroy(
    counter: *mut ThiscpuMetricsCounter,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and not used any more.
    unsafe { destroy(counter) }
}

/// Removes a series from the registry that created it, and destroys the handle.
///
/// Values that no scrape has shown are lost. Costs one fence.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `FENCE_DENIED`.
/// - Blocks: for a current scrape.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_metrics_counter_remove(
    registry: *const ThiscpuMetricsRegistry,
    counter: *mut ThiscpuMetricsCounter,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that both handles are null or live.
        let registry = unsafe { deref(counter).and_then(|_| deref(registry)) }?;
        // SAFETY: the handle is live, and not used any more.
        if let Some(counter) = unsafe { take(counter) }? {
            registry.0.remove_handle(counter.0);
        }
        Ok(())
    })
}

/// Adds `n`. Costs one restartable sequence, about 1 ns.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_metrics_counter_increment(
    counter: *const ThiscpuMetricsCounter,
    n: u64,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that the handle is null or live.
        unsafe { deref(counter) }?.0.increment(n);
        Ok(())
    })
}

/// Adds `n`, and attaches `labels` to the series as its exemplar.
///
/// An exemplar names one event, usually by the label `trace_id`. Scrapes in OpenMetrics show the
/// last one of each series, with `n` and the time. Names and values of its labels have at most 128
/// characters together. Takes a lock and allocates, some 100 ns.
///
/// - NULL: allowed for `labels` if there are none.
/// - Returns: `OK`, `NULL_POINTER`; `REJECTED` if the labels are invalid, and then nothing is
///   added.
/// - Blocks: for a scrape that reads the exemplar.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_metrics_increment_exemplar(
    counter: *const ThiscpuMetricsCounter,
    n: u64,
    labels: *const ThiscpuMetricsLabel,
    label_count: usize,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that the handle is null or live, and that labels are valid.
        let (counter, labels) = unsafe { (deref(counter)?, self::labels(labels, label_count)?) };
        Ok(counter.0.increment_with_exemplar(n, &labels)?)
    })
}

/// Raises the value to `value`, if that is larger.
///
/// Costs a fence if several CPUs use the series.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_metrics_counter_absolute(
    counter: *const ThiscpuMetricsCounter,
    value: u64,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that the handle is null or live.
        unsafe { deref(counter) }?.0.absolute(value);
        Ok(())
    })
}
