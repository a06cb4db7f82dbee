//! The values of all series in the registry of a segment.

use std::ffi::c_char;

use thiscpu::{Sample, Scrape};

use crate::counter::ThiscpuBounds;
use crate::ffi::{OutParam, catch, create, deref, destroy, name, write};
use crate::segment::ThiscpuSegment;
use crate::segment_view::{ThiscpuSegmentView, to_c};
use crate::shared_registry::{ThiscpuRegistryUsage, strings};
use crate::status::Status;

/// The values of all series of a segment's registry at one instant. Rust: `Scrape`.
///
/// - Threads: any number may call all functions at once, except `thiscpu_scrape_destroy`.
/// - Lifetime: from `thiscpu_scrape_create` to `thiscpu_scrape_destroy`. It keeps no segment
///   attached.
/// - Signal handlers: none of its functions is allowed.
/// - After `fork`: the child has a scrape of its own.
pub struct ThiscpuScrape(Scrape);

/// Bytes of UTF-8 that a scrape has. They may contain zeros, and none follows them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ThiscpuString {
    /// The first byte.
    pub bytes: *const c_char,
    /// The number of bytes.
    pub len: usize,
}

impl ThiscpuString {
    fn new(text: &str) -> ThiscpuString {
        ThiscpuString { bytes: text.as_ptr().cast(), len: text.len() }
    }
}

/// What a scrape has; see `thiscpu_scrape_summary`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ThiscpuScrapeInfo {
    /// The number of series.
    pub samples: usize,
    /// The number of families and series that are damaged, and left out; at most a thousand.
    pub damaged: usize,
    /// How many inserts failed until then, because there was no room or memory.
    pub refused: u64,
    /// Whether all values are exact. Otherwise all bounds hold at one instant.
    pub is_exact: bool,
}

/// A series in a scrape; see `thiscpu_scrape_sample`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ThiscpuSample {
    /// The name of the family, which ends in `_total`.
    pub name: ThiscpuString,
    /// The help text of the family.
    pub help: ThiscpuString,
    /// The lowest value that the series can have had. It is the exact value if it equals `high`.
    pub low: u64,
    /// The highest value that the series can have had.
    pub high: u64,
    /// The number of labels, without those that have empty values.
    pub labels: usize,
}

/// Reads all series of a segment at one instant, and stores a scrape in `*scrape`.
///
/// Series that are inserted meanwhile may be missing. Costs, for each lane, an exchange and a few
/// loads for each series, and memory for the result.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `INVALID_SEGMENT`; `NO_SUCH_OBJECT` if the segment
///   has no registry; `SYSTEM` with `errno`.
/// - Blocks: never for long.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_scrape_create(
    segment: *mut ThiscpuSegment,
    scrape: *mut *mut ThiscpuScrape,
) -> Status {
    let new = || {
        // SAFETY: the header requires that the handle is null or live.
        let segment = unsafe { deref(segment) }?;
        Ok(ThiscpuScrape(segment.0.registry()?.scrape()?))
    };
    // SAFETY: the header requires that `scrape` is null or valid for writes.
    unsafe { create(scrape, new) }
}

/// Reads bounds of all series of a view at one instant, and stores a scrape in `*scrape`.
///
/// Of a series that nobody changes meanwhile, both bounds are the exact value. They are 0 and
/// `UINT64_MAX` if the value is unknown: it has exceeded 2^63 - 1, or adders kept saving large
/// amounts.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `INVALID_SEGMENT`; `NO_SUCH_OBJECT` if the segment
///   has no registry.
/// - Blocks: never for long.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_scrape_create_by_view(
    view: *mut ThiscpuSegmentView,
    scrape: *mut *mut ThiscpuScrape,
) -> Status {
    let new = || {
        // SAFETY: the header requires that the handle is null or live.
        let view = unsafe { deref(view) }?;
        Ok(ThiscpuScrape(view.0.registry()?.scrape()?))
    };
    // SAFETY: the header requires that `scrape` is null or valid for writes.
    unsafe { create(scrape, new) }
}

/// Destroys a scrape, whose strings are not valid any more.
///
/// - NULL: allowed; does nothing.
/// - Returns: `OK`.
/// - Blocks: never.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_scrape_destroy(scrape: *mut ThiscpuScrape) -> Status {
    // SAFETY: the header requires that the handle is null or live, and that no thread uses it any
    // more.
    unsafe { destroy(scrape) }
}

/// Stores in `*info` how many series a scrape has, and what it lacks.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_scrape_summary(
    scrape: *mut ThiscpuScrape,
    info: *mut ThiscpuScrapeInfo,
) -> Status {
    let get = |ThiscpuScrape(scrape): &_| {
        let (samples, damaged) = (scrape.samples().len(), scrape.damaged().len());
        let (refused, is_exact) = (scrape.refused(), scrape.is_exact());
        Ok(ThiscpuScrapeInfo { samples, damaged, refused, is_exact })
    };
    // SAFETY: the header requires that the handle is null or live, and `info` null or valid for
    // writes.
    unsafe { write(scrape, info, get) }
}

/// Returns the series of an index.
fn sample(scrape: &ThiscpuScrape, index: usize) -> Result<Sample<'_>, Status> {
    scrape.0.sample(index).ok_or(Status::OutOfRange)
}

/// Stores series `index` of a scrape in `*sample`. Series of one family follow each other.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`; `OUT_OF_RANGE` if the index is too large.
/// - Blocks: never.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_scrape_sample(
    scrape: *mut ThiscpuScrape,
    index: usize,
    sample: *mut ThiscpuSample,
) -> Status {
    let get = |scrape: &_| {
        let sample = self::sample(scrape, index)?;
        let (name, help) = (ThiscpuString::new(sample.name()), ThiscpuString::new(sample.help()));
        let (low, high, labels) = (sample.low(), sample.high(), sample.labels().count());
        Ok(ThiscpuSample { name, help, low, high, labels })
    };
    // SAFETY: the header requires that the handle is null or live, and `sample` null or valid for
    // writes.
    unsafe { write(scrape, sample, get) }
}

/// Stores the name and the value of label `label` of series `index` in `*name` and `*value`.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`; `OUT_OF_RANGE` if an index is too large.
/// - Blocks: never.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_scrape_label(
    scrape: *mut ThiscpuScrape,
    index: usize,
    label: usize,
    name: *mut ThiscpuString,
    value: *mut ThiscpuString,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that the handle is null or live, and that `name` and `value`
        // are null or valid for writes.
        let (scrape, name, value) =
            unsafe { (deref(scrape)?, OutParam::new(name)?, OutParam::new(value)?) };
        let found = sample(scrape, index)?.labels().nth(label).ok_or(Status::OutOfRange)?;
        name.write(ThiscpuString::new(found.0));
        value.write(ThiscpuString::new(found.1));
        Ok(())
    })
}

/// Stores bounds of one series of a view in `*bounds`.
///
/// As `thiscpu_counter_view_bounds` does.
///
/// - NULL: allowed for `values` if `count` is 0.
/// - Returns: `OK`, `NULL_POINTER`, `INVALID_NAME`, `INVALID_SEGMENT`, `WRONG_KIND`;
///   `NO_SUCH_OBJECT` if there is no such series, or no registry.
/// - Blocks: never for long.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_segment_view_series_bounds(
    view: *mut ThiscpuSegmentView,
    family: *const c_char,
    values: *const *const c_char,
    count: usize,
    bounds: *mut ThiscpuBounds,
) -> Status {
    let get = |view: &ThiscpuSegmentView| {
        // SAFETY: the header requires that `family` is null or a string, and `values` null or
        // valid.
        let (family, values) = unsafe { (name(family)?, strings(values, count)?) };
        let found = view.0.registry()?.find(family, &values)?;
        found.map(to_c).ok_or(Status::NoSuchObject)
    };
    // SAFETY: the header requires that the handle is null or live, and `bounds` null or valid for
    // writes.
    unsafe { write(view, bounds, get) }
}

/// Stores in `*usage` how much of a view's registry is in use.
///
/// As `thiscpu_segment_registry_usage` does.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `INVALID_SEGMENT`; `NO_SUCH_OBJECT` if the segment has no
///   registry.
/// - Blocks: never for long.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_segment_view_registry_usage(
    view: *mut ThiscpuSegmentView,
    usage: *mut ThiscpuRegistryUsage,
) -> Status {
    let get = |view: &ThiscpuSegmentView| Ok(view.0.registry()?.usage()?.into());
    // SAFETY: the header requires that the handle is null or live, and `usage` null or valid for
    // writes.
    unsafe { write(view, usage, get) }
}
