//! Series in the registry of a segment.

use std::ffi::c_char;
use std::slice;

use thiscpu::{RegistryUsage, SharedFamily, SharedSeries};

use crate::ffi::{catch, create, deref, destroy, name, write};
use crate::segment::ThiscpuSegment;
use crate::status::Status;

/// A family of counters in a segment's registry. Rust: `SharedFamily`.
///
/// It has a name, and labels. For each combination of values there is a series. The segment must
/// have been created with `series` in its options. Any process inserts families and series, without
/// a lock. A process may be killed at any instruction of an insert.
///
/// - Threads: any number may call all functions at once, except `thiscpu_shared_family_close`.
/// - Lifetime: from `thiscpu_shared_family_open` to `thiscpu_shared_family_close`. The family stays
///   in the segment.
/// - Signal handlers: none of its functions is allowed.
/// - After `fork`: the child has the handle of its parent. Any thread may fork at any time. The
///   handler of a fault's signal, such as SIGSEGV, must not fork while it interrupts an insert.
pub struct ThiscpuSharedFamily(SharedFamily);

/// A counter in a family of a segment's registry. Rust: `SharedSeries`.
///
/// It is only added to.
///
/// - Threads: any number may call all functions at once, except `thiscpu_shared_series_close`.
/// - Lifetime: from `thiscpu_shared_series_open` to `thiscpu_shared_series_close`. The series stays
///   in the segment.
/// - Signal handlers: `_add` and `_sum`.
/// - After `fork`: the child shares the series with its parent.
pub struct ThiscpuSharedSeries(SharedSeries);

/// How much of a segment's registry is in use; see `thiscpu_segment_registry_usage`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ThiscpuRegistryUsage {
    /// How many series the registry was created for.
    pub capacity: u64,
    /// The number of series. It can exceed the capacity by up to 64.
    pub series: u64,
    /// The number of families.
    pub families: u64,
    /// How many inserts failed, because there was no room or memory.
    pub refused: u64,
}

impl From<RegistryUsage> for ThiscpuRegistryUsage {
    fn from(usage: RegistryUsage) -> Self {
        let RegistryUsage { capacity, series, families, refused, .. } = usage;
        ThiscpuRegistryUsage { capacity, series, families, refused }
    }
}

/// The most strings that a caller may pass: more than labels of a family.
const STRINGS_MAX: usize = 1000;

/// Returns the strings that a caller in C passes.
///
/// # Safety
///
/// `strings` is null, misaligned, or leads to `count` pointers, each null or a string that lives
/// for `'a`. It may be null if `count` is 0.
pub(crate) unsafe fn strings<'a>(
    strings: *const *const c_char,
    count: usize,
) -> Result<Vec<&'a str>, Status> {
    if count == 0 {
        return Ok(Vec::new());
    }
    if count > STRINGS_MAX {
        return Err(Status::InvalidName);
    }
    // SAFETY: the caller guarantees that the pointer is null, misaligned or valid.
    unsafe { deref(strings) }?;
    // SAFETY: the pointer is aligned and not null. The caller guarantees as many pointers.
    let all = unsafe { slice::from_raw_parts(strings, count) };
    // SAFETY: the caller guarantees that each is null or a string.
    all.iter().map(|&text| unsafe { name(text) }).collect()
}

/// Finds the family of counters of a name in a segment, or makes it, and stores its handle.
///
/// `labels` has the names of `count` labels. The rules for names are those of Prometheus. The name
/// gets the suffix `_total` unless it has it. Labels have an order, and there are at most 64. The
/// process that makes the family decides about its help text.
///
/// - NULL: allowed for `labels` if `count` is 0.
/// - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `INVALID_NAME`, `INVALID_SEGMENT`, `SEGMENT_FULL`;
///   `NO_SUCH_OBJECT` if the segment has no registry; `WRONG_KIND` if the family has another type
///   or other labels; `SYSTEM` with `errno`.
/// - Blocks: while the system takes memory for the file.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_shared_family_open(
    segment: *mut ThiscpuSegment,
    name: *const c_char,
    help: *const c_char,
    labels: *const *const c_char,
    count: usize,
    family: *mut *mut ThiscpuSharedFamily,
) -> Status {
    let new = || {
        // SAFETY: the header requires that all pointers are null or valid.
        let (segment, name, help, labels) = unsafe {
            (deref(segment)?, self::name(name)?, self::name(help)?, strings(labels, count)?)
        };
        let registry = segment.0.registry()?;
        Ok(ThiscpuSharedFamily(registry.counter_family(name, help, &labels)?))
    };
    // SAFETY: the header requires that `family` is null or valid for writes.
    unsafe { create(family, new) }
}

/// Finds the family of counters of a name in a segment, and stores its handle.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `INVALID_NAME`, `INVALID_SEGMENT`, `WRONG_KIND`;
///   `NO_SUCH_OBJECT` if there is no such family, or no registry; `SYSTEM` with `errno`.
/// - Blocks: never for long.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_shared_family_find(
    segment: *mut ThiscpuSegment,
    name: *const c_char,
    family: *mut *mut ThiscpuSharedFamily,
) -> Status {
    let new = || {
        // SAFETY: the header requires that the handle is null or live, and `name` null or a string.
        let (segment, name) = unsafe { (deref(segment)?, self::name(name)?) };
        let found = segment.0.registry()?.find_family(name)?;
        Ok(ThiscpuSharedFamily(found.ok_or(Status::NoSuchObject)?))
    };
    // SAFETY: the header requires that `family` is null or valid for writes.
    unsafe { create(family, new) }
}

/// Closes a handle, which no thread may use during or after this call. The family stays.
///
/// - NULL: allowed; does nothing.
/// - Returns: `OK`.
/// - Blocks: never for long.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_shared_family_close(family: *mut ThiscpuSharedFamily) -> Status {
    // SAFETY: the header requires that the handle is null or live, and that no thread uses it any
    // more.
    unsafe { destroy(family) }
}

/// Finds the series of some values in a family, or makes it, and stores its handle.
///
/// `values` has `count` values, one for each label, of up to 64 KiB. An empty value stands for no
/// label. Keep the handle of a series that is counted often.
///
/// - NULL: allowed for `values` if `count` is 0.
/// - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `INVALID_SEGMENT`, `SEGMENT_FULL`; `INVALID_NAME`
///   if a value is not UTF-8 or too long, or if there is another number of labels; `SYSTEM` with
///   `errno`.
/// - Blocks: while the system takes memory for the file.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_shared_series_open(
    family: *mut ThiscpuSharedFamily,
    values: *const *const c_char,
    count: usize,
    series: *mut *mut ThiscpuSharedSeries,
) -> Status {
    let new = || {
        // SAFETY: the header requires that the handle is null or live, and `values` null or valid.
        let (family, values) = unsafe { (deref(family)?, strings(values, count)?) };
        Ok(ThiscpuSharedSeries(family.0.series(&values)?))
    };
    // SAFETY: the header requires that `series` is null or valid for writes.
    unsafe { create(series, new) }
}

/// Finds the series of some values in a family, and stores its handle.
///
/// - NULL: allowed for `values` if `count` is 0.
/// - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `INVALID_NAME`, `INVALID_SEGMENT`;
///   `NO_SUCH_OBJECT` if there is no such series; `SYSTEM` with `errno`.
/// - Blocks: never for long.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_shared_series_find(
    family: *mut ThiscpuSharedFamily,
    values: *const *const c_char,
    count: usize,
    series: *mut *mut ThiscpuSharedSeries,
) -> Status {
    let new = || {
        // SAFETY: the header requires that the handle is null or live, and `values` null or valid.
        let (family, values) = unsafe { (deref(family)?, strings(values, count)?) };
        Ok(ThiscpuSharedSeries(family.0.find(&values)?.ok_or(Status::NoSuchObject)?))
    };
    // SAFETY: the header requires that `series` is null or valid for writes.
    unsafe { create(series, new) }
}

/// Closes a handle, which no thread may use during or after this call. The series stays.
///
/// - NULL: allowed; does nothing.
/// - Returns: `OK`.
/// - Blocks: never for long.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_shared_series_close(series: *mut ThiscpuSharedSeries) -> Status {
    // SAFETY: the header requires that the handle is null or live, and that no thread uses it any
    // more.
    unsafe { destroy(series) }
}

/// Adds `n` to a series.
///
/// More than 2^63 - 1 counts as that number. Costs one locked instruction on a cache line of this
/// CPU, and about twice that for amounts from 32,768 on.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_shared_series_add(
    series: *mut ThiscpuSharedSeries,
    n: u64,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that the handle is null or live.
        unsafe { deref(series) }?.0.add(n);
        Ok(())
    })
}

/// Stores the exact value of a series at one instant of the call in `*sum`.
///
/// It wraps around at 2^64. Read many series by `thiscpu_scrape_create`.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_shared_series_sum(
    series: *mut ThiscpuSharedSeries,
    sum: *mut u64,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `sum` null or valid for
    // writes.
    unsafe { write(series, sum, |series| Ok(series.0.sum())) }
}

/// Stores in `*usage` how much of a segment's registry is in use.
///
/// Costs a load for each entry of the index, of which there are three to six for each series.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `INVALID_SEGMENT`; `NO_SUCH_OBJECT` if the segment has no
///   registry.
/// - Blocks: never for long.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_segment_registry_usage(
    segment: *mut ThiscpuSegment,
    usage: *mut ThiscpuRegistryUsage,
) -> Status {
    let get = |segment: &ThiscpuSegment| Ok(segment.0.registry()?.usage()?.into());
    // SAFETY: the header requires that the handle is null or live, and `usage` null or valid for
    // writes.
    unsafe { write(segment, usage, get) }
}
