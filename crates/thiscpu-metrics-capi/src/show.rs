//! Values of the program that a registry shows.

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_void};

use thiscpu_metrics::{CallbackTop, CallbackValues};

use crate::ffi::{catch, deref, text, text_or_empty, texts};
use crate::labels::{ThiscpuMetricsLabel, labels};
use crate::last_error::note_fixed;
use crate::registry::ThiscpuMetricsRegistry;
use crate::status::Status;

/// A function of the program and its context.
#[derive(Clone, Copy)]
struct Callback<F> {
    function: F,
    context: *mut c_void,
}

// SAFETY: the header requires that the function may be called on any thread with its context.
unsafe impl<F: Send> Send for Callback<F> {}
// SAFETY: the header requires that the function may be called on several threads at once.
unsafe impl<F: Sync> Sync for Callback<F> {}

impl<F> Callback<F> {
    fn new(function: Option<F>, context: *mut c_void) -> Result<Callback<F>, Status> {
        let function = function.ok_or_else(|| {
            note_fixed(c"null pointer: a function, or the handle that it shows, is NULL; pass one");
            Status::NullPointer
        })?;
        Ok(Callback { function, context })
    }
}

type ValueFunction = unsafe extern "C" fn(value: *mut i64, context: *mut c_void) -> bool;
type ValuesFunction =
    unsafe extern "C" fn(values: *mut i64, count: usize, context: *mut c_void) -> bool;
type EachFunction =
    unsafe extern "C" fn(samples: *mut ThiscpuMetricsSamples<'_>, context: *mut c_void) -> bool;
type NameFunction =
    unsafe extern "C" fn(id: u64, buffer: *mut c_char, bytes: usize, context: *mut c_void);

impl Callback<ValueFunction> {
    fn call(&self) -> Option<i64> {
        let mut value = 0;
        // SAFETY: the header requires that the function may be called with its context while the
        // series exists.
        unsafe { (self.function)(&raw mut value, self.context) }.then_some(value)
    }
}

impl Callback<ValuesFunction> {
    fn call(&self, values: &mut [i64]) -> bool {
        // SAFETY: the header requires that the function may be called with its context, and an
        // array of as many values as there are series, while the series exist.
        unsafe { (self.function)(values.as_mut_ptr(), values.len(), self.context) }
    }
}

impl Callback<EachFunction> {
    fn call(&self, add: &mut dyn FnMut(u64, i64)) -> bool {
        let mut samples = ThiscpuMetricsSamples(RefCell::new(add));
        // SAFETY: the header requires that the function may be called with its context as long as
        // the registry lives, and that it uses the samples during the call only.
        unsafe { (self.function)(&raw mut samples, self.context) }
    }
}

impl Callback<NameFunction> {
    fn call(&self, id: u64) -> String {
        let mut buffer = [0u8; THISCPU_METRICS_SAMPLE_NAME_MAX];
        // SAFETY: the header requires that the function may be called with its context as long as
        // the registry lives, and that it writes at most that many bytes.
        unsafe { (self.function)(id, buffer.as_mut_ptr().cast(), buffer.len(), self.context) };
        // The last byte is a nul whatever the function has written.
        *buffer.last_mut().expect("the buffer has bytes") = 0;
        let name = CStr::from_bytes_until_nul(&buffer).unwrap_or_default();
        name.to_string_lossy().into_owned()
    }
}

/// Shows the values that a function stores as a series.
///
/// The series is a counter if the name ends in `_total`, else a gauge.
/// Each scrape calls `value` with `context`, on any thread and under the registry's lock. It stores
/// the value and returns true, or returns false, and the scrape leaves the series out. It must not
/// use the registry. `context` must be valid until the series is removed and no scrape runs.
/// `thiscpu_metrics_show_counter` and similar functions show handles of `thiscpu.h`.
///
/// - NULL: allowed for `help`, for `context`, and for `labels` if there are none.
/// - Returns: `OK`, `NULL_POINTER`, `REJECTED`.
/// - Blocks: for a current scrape.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_metrics_show(
    registry: *const ThiscpuMetricsRegistry,
    name: *const c_char,
    help: *const c_char,
    labels: *const ThiscpuMetricsLabel,
    label_count: usize,
    value: Option<unsafe extern "C" fn(value: *mut i64, context: *mut c_void) -> bool>,
    context: *mut c_void,
) -> Status {
    catch(|| {
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
        let callback = Callback::<ValueFunction>::new(value, context)?;
        Ok(registry.0.register_value(name, help, &labels, move || callback.call())?)
    })
}

/// Shows several values that a function stores at once as series of one name.
///
/// There are `count` series, each with the label `label`, whose values are in `label_values`. Each
/// scrape calls `values` with an array of `count` numbers, which it fills in this order. So values
/// that are of one instant are shown together. All else is as for `thiscpu_metrics_show`.
///
/// - NULL: allowed for `help`, for `context`, and for `labels` if there are none.
/// - Returns: `OK`, `NULL_POINTER`, `REJECTED`.
/// - Blocks: for a current scrape.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_metrics_show_values(
    registry: *const ThiscpuMetricsRegistry,
    name: *const c_char,
    help: *const c_char,
    labels: *const ThiscpuMetricsLabel,
    label_count: usize,
    label: *const c_char,
    label_values: *const *const c_char,
    count: usize,
    values: Option<
        unsafe extern "C" fn(values: *mut i64, count: usize, context: *mut c_void) -> bool,
    >,
    context: *mut c_void,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that the handle is null or live, and that texts, labels and
        // the array of `count` values of a label are null or valid.
        let (registry, name, help, labels, label, label_values) = unsafe {
            (
                deref(registry)?,
                text(name)?,
                text_or_empty(help)?,
                self::labels(labels, label_count)?,
                text(label)?,
                texts(label_values, count)?,
            )
        };
        let callback = Callback::<ValuesFunction>::new(values, context)?;
        let shown = CallbackValues::new(label, &label_values, move |values| callback.call(values));
        Ok(registry.0.register_with(name, help, &labels, shown)?)
    })
}

/// The size of the buffer for the value of a sample's label, in bytes.
pub const THISCPU_METRICS_SAMPLE_NAME_MAX: usize = 256;

/// The samples of a scrape, to which a function of the program adds.
pub struct ThiscpuMetricsSamples<'a>(RefCell<&'a mut dyn FnMut(u64, i64)>);

/// Adds a sample. Only for functions that `thiscpu_metrics_show_top` calls.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_metrics_samples_add(
    samples: *mut ThiscpuMetricsSamples<'_>,
    id: u64,
    value: i64,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that `samples` is null or from the current call of the
        // function that `thiscpu_metrics_show_top` was given.
        (unsafe { deref(samples) }?.0.borrow_mut())(id, value);
        Ok(())
    })
}

/// Shows the largest of the values that a function adds, which may be others at each scrape.
///
/// Each scrape calls `each`, which passes the id and the value of everything there is to
/// `thiscpu_metrics_samples_add`, and returns true. If it returns false, the scrape has none of
/// them. The `count` largest values are shown; those that are 0 are not. Each gets the label
/// `label`. Its value is the C string that `name` writes to a buffer of `bytes` bytes, which are at
/// most `THISCPU_METRICS_SAMPLE_NAME_MAX`; or the id, if `name` is NULL.
///
/// Both functions are called with `context`, on any thread and under the registry's lock. They must
/// not use the registry. The metric cannot be removed: `context` must be valid until the registry
/// and its endpoints are destroyed. `thiscpu_metrics_show_top_accounts` shows a ledger of
/// `thiscpu.h`.
///
/// - NULL: allowed for `help`, `name`, `context`, and for `labels` if there are none.
/// - Returns: `OK`, `NULL_POINTER`, `REJECTED`.
/// - Blocks: for a current scrape.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_metrics_show_top(
    registry: *const ThiscpuMetricsRegistry,
    metric: *const c_char,
    help: *const c_char,
    labels: *const ThiscpuMetricsLabel,
    label_count: usize,
    label: *const c_char,
    count: usize,
    each: Option<
        unsafe extern "C" fn(samples: *mut ThiscpuMetricsSamples<'_>, context: *mut c_void) -> bool,
    >,
    name: Option<
        unsafe extern "C" fn(id: u64, buffer: *mut c_char, bytes: usize, context: *mut c_void),
    >,
    context: *mut c_void,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that the handle is null or live, and that texts and labels
        // are null or valid.
        let (registry, metric, help, labels, label) = unsafe {
            (
                deref(registry)?,
                text(metric)?,
                text_or_empty(help)?,
                self::labels(labels, label_count)?,
                text(label)?,
            )
        };
        let each = Callback::<EachFunction>::new(each, context)?;
        let name = name.map(|function| Callback { function, context });
        let name = move |id: u64| match &name {
            Some(name) => Callback::<NameFunction>::call(name, id),
            None => id.to_string(),
        };
        let shown = CallbackTop::new(label, count, move |add| each.call(add), name);
        Ok(registry.0.register_with(metric, help, &labels, shown)?)
    })
}

/// Shows series of the process's thiscpu-malloc: totals, and some of each size class.
///
/// The allocator is `libthiscpu_malloc.so`, preloaded or linked. Without it, all values are 0. The
/// names begin with `malloc_`. A size class that was never used has no lines. The series cannot be
/// shown twice. A scrape then also visits the allocator's slabs and lanes.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`; `REJECTED` if a metric of one of the names exists, and then
///   none of the series is shown.
/// - Blocks: for a current scrape.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_metrics_show_malloc(
    registry: *const ThiscpuMetricsRegistry,
) -> Status {
    // SAFETY: the header requires that the handle is null or live.
    catch(|| Ok(unsafe { deref(registry) }?.0.register_malloc()?))
}
