//! Removal of series by name and labels.

use std::ffi::c_char;

use crate::ffi::{OutParam, catch, deref, text};
use crate::labels::{ThiscpuMetricsLabel, labels};
use crate::registry::ThiscpuMetricsRegistry;
use crate::status::Status;

/// Removes the series of this name and these labels.
///
/// Stores in `*removed` whether it existed. Values that no scrape has shown are lost. A handle that
/// is used later shows the series again, with all of its increments. Costs one fence.
///
/// - NULL: allowed for `removed`, and for `labels` if there are none.
/// - Returns: `OK`, `NULL_POINTER`, `REJECTED`, `FENCE_DENIED`.
/// - Blocks: for a current scrape.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_metrics_remove(
    registry: *const ThiscpuMetricsRegistry,
    name: *const c_char,
    labels: *const ThiscpuMetricsLabel,
    label_count: usize,
    removed: *mut bool,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that the handle is null or live, and texts and labels valid.
        let (registry, name, labels) =
            unsafe { (deref(registry)?, text(name)?, self::labels(labels, label_count)?) };
        // SAFETY: the header requires that `removed` is null or valid for writes.
        let out = unsafe { OutParam::optional(removed) }?;
        let existed = registry.0.remove(name, &labels);
        if let Some(out) = out {
            out.write(existed);
        }
        Ok(())
    })
}

/// Removes all series that have these labels, and perhaps others.
///
/// Otherwise like `thiscpu_metrics_remove`, with one fence for all.
/// Stores their number in `*removed`.
///
/// - NULL: allowed for `removed`, and for `labels` if there are none.
/// - Returns: `OK`, `NULL_POINTER`, `REJECTED`, `FENCE_DENIED`.
/// - Blocks: for a current scrape.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_metrics_remove_matching(
    registry: *const ThiscpuMetricsRegistry,
    labels: *const ThiscpuMetricsLabel,
    label_count: usize,
    removed: *mut usize,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that the handle is null or live, and labels valid.
        let (registry, labels) = unsafe { (deref(registry)?, self::labels(labels, label_count)?) };
        // SAFETY: the header requires that `removed` is null or valid for writes.
        let out = unsafe { OutParam::optional(removed) }?;
        let count = registry.0.remove_matching(&labels);
        if let Some(out) = out {
            out.write(count);
        }
        Ok(())
    })
}
