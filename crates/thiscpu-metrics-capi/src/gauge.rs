//! Gauges.

use std::ffi::c_char;

use thiscpu_metrics::Gauge;

use crate::ffi::{catch, create, deref, destroy, take, text, text_or_empty};
use crate::labels::{ThiscpuMetricsLabel, labels};
use crate::registry::ThiscpuMetricsRegistry;
use crate::status::Status;

/// A handle of a series that goes up and down. Rust: `Gauge`.
///
/// - Threads: any number may change the series at once.
/// - Signal handlers: none of its functions.
pub struct ThiscpuMetricsGauge(pub(crate) Gauge);

/// Creates a series and stores its handle in `*gauge`.
///
/// `help` may be NULL or empty: then the series has no help text, or that of others of its name.
/// `labels` are `label_count` labels.
///
/// - NULL: allowed for `help`, and for `labels` if there are none.
/// - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`; `REJECTED` if a name is invalid, if the series
///   exists, or if the name has another kind or help text.
/// - Blocks: for a current scrape.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_metrics_gauge_create(
    registry: *const ThiscpuMetricsRegistry,
    name: *const c_char,
    help: *const c_char,
    labels: *const ThiscpuMetricsLabel,
    label_count: usize,
    gauge: *mut *mut ThiscpuMetricsGauge,
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
        Ok(ThiscpuMetricsGauge(registry.0.gauge(name, help, &labels)?))
    };
    // SAFETY: the header requires that `gauge` is null or valid for writes.
    unsafe { create(gauge, new) }
}

/// Destroys a handle. The series stays, with its value.
///
/// `thiscpu_metrics_gauge_remove` removes it.
///
/// - NULL: allowed; does nothing.
/// - Returns: `OK`.
/// - Blocks: never.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_metrics_gauge_destroy(gauge: *mut ThiscpuMetricsGauge) -> Status {
    // SAFETY: the header requires that the handle is null or live, and not used any more.
    unsafe { destroy(gauge) }
}

/// Removes a series from the registry that created it, and destroys the handle.
///
/// Values that no scrape has shown are lost. Costs one fence.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `FENCE_DENIED`.
/// - Blocks: for a current scrape.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_metrics_gauge_remove(
    registry: *const ThiscpuMetricsRegistry,
    gauge: *mut ThiscpuMetricsGauge,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that both handles are null or live.
        let registry = unsafe { deref(gauge).and_then(|_| deref(registry)) }?;
        // SAFETY: the handle is live, and not used any more.
        if let Some(gauge) = unsafe { take(gauge) }? {
            registry.0.remove_handle(gauge.0);
        }
        Ok(())
    })
}

/// Sets the value.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_metrics_gauge_set(
    gauge: *const ThiscpuMetricsGauge,
    value: f64,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that the handle is null or live.
        unsafe { deref(gauge) }?.0.set(value);
        Ok(())
    })
}

/// Adds `amount`, which may be negative.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_metrics_gauge_add(
    gauge: *const ThiscpuMetricsGauge,
    amount: f64,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that the handle is null or live.
        unsafe { deref(gauge) }?.0.increment(amount);
        Ok(())
    })
}
