//! Registries, and scrapes of them.

use std::ffi::c_char;
use std::time::Duration;

use thiscpu_metrics::{Format, Kind, Registry};

use crate::ffi::{catch, copy_text, create, deref, take};
use crate::last_error::{note, silence_panics};
use crate::status::Status;

/// A set of series that are read together. Rust: `Registry`.
///
/// A series stays until it is removed, with or without handles.
///
/// - Threads: any number may call all functions at once, except `thiscpu_metrics_registry_destroy`.
/// - Signal handlers: none of its functions.
/// - After `fork`: the child may call all functions, unless another thread of the parent was
///   creating a series or scraping at the time. Children of `vfork` may not.
pub struct ThiscpuMetricsRegistry(pub(crate) Registry);

/// Options of a registry. All fields may be 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ThiscpuMetricsOptions {
    /// The upper bounds of buckets of histograms, ascending; NULL for Prometheus' own.
    pub buckets: *const f64,
    /// The number of buckets.
    pub bucket_count: usize,
    /// The nanoseconds after which a series without changes is removed by a scrape; 0: never.
    pub idle_timeout_ns: u64,
    /// Whether OpenMetrics has lines with the creation time of counters and histograms.
    pub created_lines: bool,
}

/// A format of a scrape.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThiscpuMetricsFormat {
    /// The text format of Prometheus, version 0.0.4.
    Text = 0,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

/// Creates an empty registry and stores its handle in `*registry`.
///
/// - NULL: allowed for `options`, which then has the defaults.
/// - Returns: `OK`, `NULL_POINTER`; `REJECTED` if the buckets, or `THISCPU_TIER`, are invalid.
/// - Blocks: only in the first use of the library, while another thread determines the tier.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_metrics_registry_create(
    options: *const ThiscpuMetricsOptions,
    registry: *mut *mut ThiscpuMetricsRegistry,
) -> Status {
    silence_panics();
    let new = || {
        // Later calls would panic.
        thiscpu::tier().map_err(|error| {
            note(&error.to_string());
            Status::Rejected
        })?;
        let mut builder = Registry::builder();
        // SAFETY: the header requires that `options` is null or valid.
        if let Some(options) = unsafe { options.as_ref() } {
            if options.bucket_count > 0 {
                // SAFETY: the header requires that `buckets` has that many numbers.
                let buckets = unsafe {
                    deref(options.buckets)?;
                    std::slice::from_raw_parts(options.buckets, options.bucket_count)
                };
                builder = builder.default_buckets(buckets);
            }
            if options.idle_timeout_ns > 0 {
                let kinds = [Kind::Counter, Kind::Gauge, Kind::Histogram];
                builder =
                    builder.idle_timeout(&kinds, Duration::from_nanos(options.idle_timeout_ns));
            }
            builder = builder.created_lines(options.created_lines);
        }
        Ok(ThiscpuMetricsRegistry(builder.build()?))
    };
    // SAFETY: the header requires that `registry` is null or valid for writes.
    unsafe { create(registry, new) }
}

/// Destroys the handle of a registry.
///
/// Handles of its series stay valid, and an endpoint goes on serving it.
///
/// - NULL: allowed; does nothing.
/// - Returns: `OK`.
/// - Blocks: for a current scrape.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_metrics_registry_destroy(
    registry: *mut ThiscpuMetricsRegistry,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that the handle is null or live, and not used any more.
        drop(unsafe { take(registry) });
        Ok(())
    })
}

/// Writes all series to `buffer` in a `thiscpu_metrics_format`, with a nul behind them.
///
/// Stores the length of the whole text, without the nul, in `*length`. If it is not less than
/// `bytes`, the text was cut off; call again with a larger buffer. Each value was exact at an
/// instant of the call. Costs one fence.
///
/// - NULL: allowed for `length`, and for `buffer` if `bytes` is 0.
/// - Returns: `OK`, `NULL_POINTER`, `FENCE_DENIED`; `REJECTED` if `format` is unknown.
/// - Blocks: for other scrapes and registrations, and for callbacks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_metrics_render(
    registry: *const ThiscpuMetricsRegistry,
    format: i32,
    buffer: *mut c_char,
    bytes: usize,
    length: *mut usize,
) -> Status {
    catch(|| {
        let is = |one: ThiscpuMetricsFormat| format == one as i32;
        let format = match () {
            () if is(ThiscpuMetricsFormat::Text) => Format::Text,
            () if is(ThiscpuMetricsFormat::OpenMetrics) => Format::OpenMetrics,
            () => {
                note("unknown format: use a value of thiscpu_metrics_format");
                return Err(Status::Rejected);
            }
        };
        // SAFETY: the header requires that the handle is null or live.
        let text = unsafe { deref(registry) }?.0.render_as(format);
        // SAFETY: the header requires that `buffer` has room for `bytes` bytes, and that `length`
        // is null or valid for writes.
        unsafe { copy_text(&text, buffer, bytes, length) }
    })
}
