//! Registries, and scrapes of them.

use std::ffi::c_char;
use std::time::Duration;

use thiscpu_metrics::{Builder, Format, Kind, Registry};

use crate::ffi::{TextBuffer, array, catch, create, deref, destroy, text, texts};
use crate::last_error::{note, note_fixed, silence_panics};
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
    /// Buckets of histograms by their names.
    pub buckets_by_name: *const ThiscpuMetricsBuckets,
    /// The number of elements of `buckets_by_name`.
    pub buckets_by_name_count: usize,
    /// Groups of counters.
    pub groups: *const ThiscpuMetricsGroup,
    /// The number of groups.
    pub group_count: usize,
}

/// The buckets of histograms of a name, or of all names that begin with a prefix.
///
/// A name, then the longest prefix, take precedence over other buckets.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ThiscpuMetricsBuckets {
    /// The name or the prefix.
    pub name: *const c_char,
    /// Whether `name` is a prefix.
    pub is_prefix: bool,
    /// 1 to 61 upper bounds, ascending. A bucket without a bound is added.
    pub bounds: *const f64,
    /// The number of bounds.
    pub bound_count: usize,
}

/// A group of counters: those with the same labels are read at one instant by each scrape.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ThiscpuMetricsGroup {
    /// The group's name, for errors.
    pub name: *const c_char,
    /// The names of 1 to 64 counters, each in no other group.
    pub metrics: *const *const c_char,
    /// The number of names.
    pub metric_count: usize,
}

impl ThiscpuMetricsOptions {
    /// Returns a builder with these options.
    ///
    /// # Safety
    ///
    /// Each array is null, misaligned, or has as many elements as its field says, whose texts are
    /// null or C strings.
    unsafe fn builder(&self) -> Result<Builder, Status> {
        let mut builder = Registry::builder().created_lines(self.created_lines);
        if self.bucket_count > 0 {
            // SAFETY: the caller guarantees that the array is as the fields say.
            builder = builder.default_buckets(unsafe { array(self.buckets, self.bucket_count) }?);
        }
        // SAFETY: the caller guarantees that the array is as the fields say.
        for own in unsafe { array(self.buckets_by_name, self.buckets_by_name_count) }? {
            // SAFETY: the caller guarantees that the text is null or a C string, and that the array
            // is as the fields say.
            let (name, bounds) = unsafe { (text(own.name)?, array(own.bounds, own.bound_count)?) };
            builder = match own.is_prefix {
                true => builder.buckets_for_prefix(name, bounds),
                false => builder.buckets_for(name, bounds),
            };
        }
        // SAFETY: the caller guarantees that the array is as the fields say.
        for own in unsafe { array(self.groups, self.group_count) }? {
            // SAFETY: the caller guarantees that the texts are null or C strings, and that the
            // array is as the fields say.
            let (name, metrics) =
                unsafe { (text(own.name)?, texts(own.metrics, own.metric_count)?) };
            builder = builder.group(name, &metrics);
        }
        if self.idle_timeout_ns > 0 {
            let kinds = [Kind::Counter, Kind::Gauge, Kind::Histogram];
            builder = builder.idle_timeout(&kinds, Duration::from_nanos(self.idle_timeout_ns));
        }
        Ok(builder)
    }
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
/// - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`; `REJECTED` if the buckets, the groups or
///   `THISCPU_TIER` are invalid.
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
            note(format_args!("{error}"));
            Status::Rejected
        })?;
        let builder = match options.is_null() {
            true => Registry::builder(),
            // SAFETY: the header requires that `options` is null or valid, with its arrays.
            false => unsafe { deref(options)?.builder() }?,
        };
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
    // SAFETY: the header requires that the handle is null or live, and not used any more.
    unsafe { destroy(registry) }
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
                note_fixed(c"unknown format: use a value of thiscpu_metrics_format");
                return Err(Status::Rejected);
            }
        };
        // SAFETY: the header requires that the handle is null or live, that `buffer` has room for
        // `bytes` bytes, and that `length` is null or valid for writes.
        let (registry, out) =
            unsafe { (deref(registry)?, TextBuffer::new(buffer, bytes, length)?) };
        out.write(&registry.0.render_as(format));
        Ok(())
    })
}
