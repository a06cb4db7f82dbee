//! Series of `thiscpu-malloc`: statistics of the allocator of this process, read at each scrape.

use thiscpu_malloc::export::{ClassTotals, Totals};

use crate::{
    error::Kind,
    shown::{Description, Number, Observation, Shown},
};

/// A series of the whole allocator: its name, its help text, and its value.
type TotalSeries = (&'static str, &'static str, fn(&Totals) -> u64);
/// A series of each size class, with the class's size as label `size`.
type ClassSeries = (&'static str, &'static str, fn(&ClassTotals) -> u64);

const TOTAL_GAUGES: [TotalSeries; 6] = [
    ("malloc_allocated_bytes", "Bytes of blocks in use.", |now| now.allocated_bytes),
    ("malloc_free_bytes", "Bytes of free blocks of size classes.", |now| now.free_bytes),
    ("malloc_large_bytes", "Bytes of blocks in use that belong to no size class.", |now| {
        now.large_bytes
    }),
    ("malloc_resident_bytes", "Bytes that may have pages.", |now| now.resident_bytes),
    ("malloc_mapped_bytes", "Bytes of address space.", |now| now.mapped_bytes),
    ("malloc_retained_bytes", "Bytes of address space without pages.", |now| now.retained_bytes),
];

const TOTAL_COUNTERS: [TotalSeries; 1] =
    [("malloc_purged_bytes_total", "Bytes returned to the system so far.", |now| now.purged_bytes)];

const CLASS_GAUGES: [ClassSeries; 2] = [
    ("malloc_class_allocated_bytes", "Bytes of blocks in use.", |now| now.allocated_bytes),
    ("malloc_class_free_bytes", "Bytes of free blocks.", |now| now.free_bytes),
];

const CLASS_COUNTERS: [ClassSeries; 3] = [
    ("malloc_trades_total", "Sheaves traded with barns so far.", |now| now.trades),
    ("malloc_remote_frees_total", "Blocks returned to another share so far.", |now| {
        now.remote_frees
    }),
    ("malloc_hits_total", "Calls that their lane served, if calls are counted.", |now| now.hits),
];

/// The process's `thiscpu-malloc`.
pub(crate) struct Malloc;

impl Shown for Malloc {
    fn series(&self, _: &str) -> Vec<Description> {
        let new = |kind, (name, help)| Description::new(kind, str::to_owned(name), help);
        let gauges = TOTAL_GAUGES.map(|(name, help, _)| new(Kind::Gauge, (name, help))).into_iter();
        let counters = TOTAL_COUNTERS.map(|(name, help, _)| new(Kind::Counter, (name, help)));
        let mut all: Vec<_> = gauges.chain(counters).collect();
        let classes = read().classes;
        let gauges = CLASS_GAUGES.map(|(name, help, _)| new(Kind::Gauge, (name, help))).into_iter();
        let counters = CLASS_COUNTERS.map(|(name, help, _)| new(Kind::Counter, (name, help)));
        for series in gauges.chain(counters) {
            let sizes = classes.iter().map(|class| class.size.to_string());
            all.extend(sizes.map(|size| series.clone().label("size", size)));
        }
        all
    }

    fn observe(&self, _: &[i64], out: &mut Observation) {
        out.numbers.extend(values().into_iter().map(|value| value.map(Number::Unsigned)));
    }
}

/// What the allocator has.
struct Numbers {
    totals: Totals,
    classes: Vec<ClassTotals>,
}

/// Returns the value of each series; `None` for unused classes.
fn values() -> Vec<Option<u64>> {
    let Numbers { totals, classes } = read();
    let of_totals = TOTAL_GAUGES.iter().chain(&TOTAL_COUNTERS).map(|(.., value)| value(&totals));
    let mut values: Vec<Option<u64>> = of_totals.map(Some).collect();
    for (.., value) in CLASS_GAUGES.iter().chain(&CLASS_COUNTERS) {
        let is_used = |class: &ClassTotals| class.slabs != 0 || class.trades != 0;
        values.extend(classes.iter().map(|class| is_used(class).then(|| value(class))));
    }
    values
}

fn read() -> Numbers {
    let linked = Totals::now();
    match (linked.mapped_bytes, preloaded()) {
        (0, Some(preloaded)) => preloaded,
        _ => Numbers { totals: linked, classes: ClassTotals::all().collect() },
    }
}

type ReadTotals = unsafe extern "C" fn(*mut Totals, usize) -> usize;
type ReadClasses = unsafe extern "C" fn(*mut ClassTotals, usize, usize) -> usize;

/// Returns the numbers of a preloaded `libthiscpu_malloc.so`, if there is one.
fn preloaded() -> Option<Numbers> {
    // SAFETY: the names are C strings. The functions have these types in every version.
    let (read_totals, read_classes) = unsafe {
        let totals = libc::dlsym(libc::RTLD_DEFAULT, c"thiscpu_malloc_stats".as_ptr());
        let classes = libc::dlsym(libc::RTLD_DEFAULT, c"thiscpu_malloc_class_stats".as_ptr());
        if totals.is_null() || classes.is_null() {
            return None;
        }
        (
            std::mem::transmute::<*mut libc::c_void, ReadTotals>(totals),
            std::mem::transmute::<*mut libc::c_void, ReadClasses>(classes),
        )
    };
    let mut totals = Totals::default();
    let bytes = size_of::<ClassTotals>();
    // SAFETY: it gets an array of no elements, to which nothing is written.
    let count = unsafe { read_classes(std::ptr::null_mut(), bytes, 0) };
    let mut classes = vec![ClassTotals::default(); count];
    // SAFETY: both get memory of the size that they are told.
    let found = unsafe {
        read_totals(&raw mut totals, size_of::<Totals>());
        read_classes(classes.as_mut_ptr(), bytes, count)
    };
    // Registered series are matched by their place, so none may be missing.
    assert_eq!(found, count, "a library has as many size classes as before");
    Some(Numbers { totals, classes })
}
