//! Histograms.

use std::ffi::c_char;

use thiscpu_metrics::Histogram;

use crate::ffi::{catch, create, deref, destroy, take, text, text_or_empty};
use crate::labels::{ThiscpuMetricsLabel, labels};
use crate::registry::ThiscpuMetricsRegistry;
use crate::status::Status;

/// A handle of a series of observations, which are counted in buckets. Rust: `Histogram`.
///
/// - Threads: any number may change the series at once.
/// - Signal handlers: none of its functions.
pub struct ThiscpuMetricsHistogram(pub(crate) Histogram);

/// Creates a series and stores its handle in `*histogram`.
///
/// `help` may be NULL or empty: then the series has no help text, or that of others of its name.
/// `labels` are `label_count` labels. The options of the registry say which buckets it has.
///
/// - NULL: allowed for `help`, and for `labels` if there are none.
/// - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`; `REJECTED` if a name is invalid, if the series
///   exists, or if the name has another kind or help text.
/// - Blocks: for a current scrape.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_metrics_histogram_create(
    registry: *const ThiscpuMetricsRegistry,
    name: *const c_char,
    help: *const c_char,
    labels: *const ThiscpuMetricsLabel,
    label_count: usize,
    histogram: *mut *mut ThiscpuMetricsHistogram,
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
        Ok(ThiscpuMetricsHistogram(registry.0.histogram(name, help, &labels)?))
    };
    // SAFETY: the header requires that `histogram` is null or valid for writes.
    unsafe { create(histogram, new) }
}

/// Destroys a handle. The series stays, with its value.
///
/// `thiscpu_metrics_histogram_remove` removes it.
///
/// - NULL: allowed; does nothing.
/// - Returns: `OK`.
/// - Blocks: never.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_metrics_histogram_destroy(
    histogram: *mut ThiscpuMetricsHistogram,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and not used any more.
    unsafe { destroy(histogram) }
}

/// Removes a series from the registry that created it, and destroys the handle.
///
/// Values that no scrape has shown are lost. Costs one fence.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `FENCE_DENIED`.
/// - Blocks: for a current scrape.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_metrics_histogram_remove(
    registry: *const ThiscpuMetricsRegistry,
    histogram: *mut ThiscpuMetricsHistogram,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that both handles are null or live.
        let registry = unsafe { deref(histogram).and_then(|_| deref(registry)) }?;
        // SAFETY: the handle is live, and not used any more.
        if let Some(histogram) = unsafe { take(histogram) }? {
            registry.0.remove_handle(histogram.0);
        }
        Ok(())
    })
}

/// Records a value `count` times.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_metrics_histogram_record(
    histogram: *const ThiscpuMetricsHistogram,
    value: f64,
    count: u64,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that the handle is null or live.
        unsafe { deref(histogram) }?.0.record_many(value, count);
        Ok(())
    })
}

/// Records a value, and attaches `labels` to its bucket as an exemplar.
///
/// An exemplar names one event, usually by the label `trace_id`. Scrapes in OpenMetrics show the
/// last one of each bucket, with `value` and the time. Names and values of its labels have at most
/// 128 characters together. Takes a lock and allocates, some 100 ns.
///
/// - NULL: allowed for `labels` if there are none.
/// - Returns: `OK`, `NULL_POINTER`; `REJECTED` if the labels are invalid, and then nothing is
///   recorded.
/// - Blocks: for a scrape that reads the exemplar.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_metrics_record_exemplar(
    histogram: *const ThiscpuMetricsHistogram,
    value: f64,
    labels: *const ThiscpuMetricsLabel,
    label_count: usize,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that the handle is null or live, and that labels are valid.
        let (histogram, labels) =
            unsafe { (deref(histogram)?, self::labels(labels, label_count)?) };
        Ok(histogram.0.record_with_exemplar(value, &labels)?)
    })
}
