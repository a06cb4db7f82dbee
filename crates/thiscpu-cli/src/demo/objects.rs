//! Objects that one thread allocates and another frees, from a cache and from the C library.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::{self, NonNull};
use std::sync::atomic::{
    AtomicPtr, AtomicU64,
    Ordering::{AcqRel, Relaxed},
};
use std::time::Duration;

use anyhow::Result;
use indicatif::HumanCount;
use thiscpu::RawCache;

use super::{Row, Scene, crew};

pub(super) const SCENE: Scene = Scene {
    title: "Objects: freed by other threads",
    page: "docs/design/slab.md",
    workload: "alloc",
    run,
};

/// 256 bytes, as a request or a connection has.
const LAYOUT: Layout = Layout::new::<[u64; 32]>();

/// Places through which threads hand objects to each other.
const PLACES: usize = 1 << 10;

/// Something that allocates objects of [`LAYOUT`].
trait Heap: Sync {
    fn alloc(&self) -> Option<NonNull<u8>>;

    /// # Safety
    ///
    /// The caller owns `object`, which came from this heap, and no longer uses it.
    unsafe fn free(&self, object: NonNull<u8>);
}

impl Heap for RawCache {
    fn alloc(&self) -> Option<NonNull<u8>> {
        RawCache::alloc(self)
    }

    unsafe fn free(&self, object: NonNull<u8>) {
        // SAFETY: the caller owns the object, which came from this cache.
        unsafe { RawCache::free(self, object) };
    }
}

impl Heap for System {
    fn alloc(&self) -> Option<NonNull<u8>> {
        // SAFETY: the layout has a size.
        NonNull::new(unsafe { GlobalAlloc::alloc(self, LAYOUT) })
    }

    unsafe fn free(&self, object: NonNull<u8>) {
        // SAFETY: the caller owns the object, which came from `alloc` with this layout.
        unsafe { self.dealloc(object.as_ptr(), LAYOUT) };
    }
}

/// Objects on their way from the thread that allocated them to the thread that frees them.
struct Exchange<'a, H: Heap> {
    heap: &'a H,
    places: Vec<AtomicPtr<u8>>,
    /// Objects that another thread freed than the one that allocated them.
    remote: AtomicU64,
}

impl<'a, H: Heap> Exchange<'a, H> {
    fn new(heap: &'a H) -> Self {
        let places = (0..PLACES).map(|_| AtomicPtr::new(ptr::null_mut())).collect();
        Exchange { heap, places, remote: AtomicU64::new(0) }
    }

    /// Allocates an object for place `index` and frees the one that was there.
    fn trade(&self, thread: u64, index: usize) {
        let Some(new) = self.heap.alloc() else { return };
        // SAFETY: the object has 256 bytes, is aligned for words, and belongs to this thread.
        unsafe { new.cast::<[u64; 2]>().write([thread; 2]) };
        // AcqRel: the Release half pairs with the Acquire half in the next thread that trades at
        // this place, so that it sees what was written to the object.
        let old = self.places[index % PLACES].swap(new.as_ptr(), AcqRel);
        let Some(old) = NonNull::new(old) else { return };
        // SAFETY: the exchange gave the object to this thread alone, with the words written to it.
        let [_, owner] = unsafe { old.cast::<[u64; 2]>().read() };
        if owner != thread {
            // Relaxed: it counts only.
            self.remote.fetch_add(1, Relaxed);
        }
        // SAFETY: every object in a place came from this heap, and this thread owns it now.
        unsafe { self.heap.free(old) };
    }
}

impl<H: Heap> Drop for Exchange<'_, H> {
    fn drop(&mut self) {
        for place in &mut self.places {
            if let Some(object) = NonNull::new(*place.get_mut()) {
                // SAFETY: every object in a place came from this heap; no thread trades any more.
                unsafe { self.heap.free(object) };
            }
        }
    }
}

/// Returns nanoseconds per object, and how many objects another thread freed.
fn measure(heap: &impl Heap, name: &str, length: Duration) -> (f64, u64) {
    let exchange = Exchange::new(heap);
    let prepare = |thread: usize| {
        let exchange = &exchange;
        // Every thread passes all places, each with a step of its own, so that they meet.
        let (mut index, step) = (0, 2 * thread + 1);
        move || {
            index += step;
            exchange.trade(thread as u64 + 1, index);
        }
    };
    // Relaxed: it is shown only.
    let freed = || exchange.remote.load(Relaxed);
    let show = || format!("{name}: {} freed", HumanCount(freed()));
    let work = crew::run(length, prepare, show);
    (work.ns_each(), freed())
}

fn run(length: Duration) -> Result<Vec<Row>> {
    let cache = RawCache::new(LAYOUT);
    let (ours, remote) = measure(&cache, "thiscpu", length / 2);
    let (theirs, remote_of_theirs) = measure(&System, "C library", length / 2);
    let freed = "objects that another thread freed";
    Ok(vec![
        Row::of_times("256 bytes, allocated and freed", "C library", ours, theirs),
        Row::of_counts(freed, "C library", remote, remote_of_theirs),
    ])
}
