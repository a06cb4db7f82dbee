//! Backends: the barns and slabs behind the lanes of a cache, on each NUMA node.
//!
//! A caller has taken a sheaf out of a lane, or wants one, and is in no section. A sheaf that a
//! thread holds when the process forks is lost to the child: its objects stay allocated there.

pub(crate) mod barn;
pub(crate) mod cache_info;
mod capacity;
pub(crate) mod free_pages;
mod large_share;
mod memory;
pub(crate) mod node_slabs;

use core::ptr;

use super::arena::CHUNK_BYTES;
use super::arena::slab::{Shape, Slab};
use super::lane::encoding;
use super::lane::sheaf::{self, CAPACITIES, Sheaf};
use crate::sys::Host;
use crate::sys::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use crate::sys::degradation::{self, DegradationKind};
use crate::sys::lock::Lock;
use crate::sys::machine::Machine as _;
use barn::{Barn, Window};
use cache_info::CacheInfo;
use capacity::Capacity;
use large_share::{BARNS_PER_NODE, LargeShare};
use node_slabs::NodeSlabs;

#[repr(C, align(64))]
struct Node {
    barns: [Barn; BARNS_PER_NODE],
    slabs: NodeSlabs,
}

impl Node {
    fn new(node: usize, info: CacheInfo) -> Node {
        let size = info.shape.size;
        let share = |barn| info.is_large().then(|| LargeShare::new(node, barn, size));
        let barns = core::array::from_fn(|barn| Barn::new(share(barn)));
        Node { barns, slabs: NodeSlabs::default() }
    }
}

/// What a cache has once it is used.
///
/// When the cache is closed, another one uses the memory; it is never unmapped.
#[repr(C, align(64))]
pub(super) struct Backend {
    pub(super) info: CacheInfo,
    nodes: usize,
    capacity: Capacity,
    next: AtomicUsize,
    /// Number of objects returned to a slab of another shard or node than their sheaf's.
    ///
    /// Not of `sys::atomic`, because models need not explore the order of statistics.
    remote_frees: core::sync::atomic::AtomicU64,
    /// The barn whose idle objects were trimmed last.
    trim_cursor: AtomicUsize,
    /// Held by the thread that destroys the objects of retired slabs.
    pub(super) destroy_lock: Lock,
    /// Whether a thread that could not take `destroy_lock` wants all retired slabs destroyed.
    pub(super) all_requested: AtomicBool,
}

/// Trades of a barn after which a lane that hands a sheaf in trims idle objects.
const TRADES_PER_TRIM: u32 = if cfg!(thiscpu_model) { 2 } else { 16 };
const SHEAVES_PER_TRIM: usize = 2;

/// Bytes of scattered objects that a barn keeps.
///
/// Where the node's slabs divided by [`SCATTERED_DIVISOR`] are more, a barn keeps that.
const SCATTERED_BYTES_MAX: usize = 1024 * 1024;
const SCATTERED_DIVISOR: usize = 8;
const SCATTERED_SIZE_MAX: usize = 4096;
/// Distance up to which two objects count as adjacent.
const ADJACENT_BYTES: usize = 64 * 1024;

impl Backend {
    /// Creates a cache's backend with the info for an owner number; `None` without memory.
    pub(super) fn create(info: impl FnOnce(u32) -> CacheInfo) -> Option<&'static Backend> {
        let nodes = Host::nodes();
        let bytes = size_of::<Backend>() + nodes * size_of::<Node>();
        let (at, owner) = memory::alloc(bytes)?;
        let info = info(owner);
        let backend = Backend {
            info,
            nodes,
            capacity: Capacity::of(info.shape, info.is_large()),
            next: AtomicUsize::new(0),
            remote_frees: core::sync::atomic::AtomicU64::new(0),
            trim_cursor: AtomicUsize::new(0),
            destroy_lock: Lock::new(),
            all_requested: AtomicBool::new(false),
        };
        // SAFETY: `memory::alloc` returned that many bytes, aligned to 64, which no one else uses.
        // They are a backend followed by its nodes.
        unsafe {
            for node in 0..nodes {
                let at = ((at + size_of::<Backend>()) as *mut Node).add(node);
                at.write(Node::new(node, info));
            }
            (at as *mut Backend).write(backend);
            Some(&*(at as *const Backend))
        }
    }

    /// Waits until threads that returned the last objects have unlocked the node slabs.
    pub(super) fn wait_for_unlock(&'static self) {
        for (node, Node { slabs, .. }) in self.nodes().iter().enumerate() {
            slabs.wait_for_unlock(node, self.info);
        }
    }

    fn nodes(&'static self) -> &'static [Node] {
        let first = (core::ptr::from_ref(self) as usize + size_of::<Backend>()) as *const Node;
        // SAFETY: `create` wrote that many nodes behind the backend, and their memory is never
        // unmapped.
        unsafe { core::slice::from_raw_parts(first, self.nodes) }
    }

    /// Returns the node that the calling thread is on at this moment.
    fn current_node(&self) -> usize {
        if self.nodes == 1 { 0 } else { Host::node().min(self.nodes - 1) }
    }

    /// Returns a sheaf that is not empty, for a lane; `None` if there is no memory.
    ///
    /// Then [`any_object`](Backend::any_object) may still find one object.
    pub(super) fn filled_sheaf(&'static self, lane: usize) -> Option<Sheaf> {
        self.filled_sheaf_for(usize::MAX, lane)
    }

    /// Returns a filled sheaf for a caller that uses `wanted` objects and hands in the rest.
    fn filled_sheaf_for(&'static self, wanted: usize, lane: usize) -> Option<Sheaf> {
        let node = self.current_node();
        let own = self.barn(node, lane);
        let (found, trades) = own.pop();
        self.capacity.adapt(trades, || own.is_busy(Host::coarse_time()));
        let now = Host::coarse_time();
        let steal = || {
            let mut others = self.nodes()[node].barns.iter().filter(|barn| !ptr::eq(*barn, own));
            others.find_map(|barn| barn.steal(now))
        };
        let sheaf = found.or_else(steal).or_else(|| self.sheaf_from_slabs(node, lane))?;
        own.count_requested(sheaf.count().min(wanted), now);
        Some(sheaf)
    }

    /// Fills a sheaf from the slabs of `node`, or of another node if `node` has no memory.
    fn sheaf_from_slabs(&'static self, node: usize, lane: usize) -> Option<Sheaf> {
        let (mut sheaf, shard) = (self.empty_sheaf(lane)?, lane % BARNS_PER_NODE);
        for node in self.nodes_from(node) {
            if self.nodes()[node].slabs.fill(&mut sheaf, shard, node, self.info) {
                return Some(sheaf);
            }
        }
        self.put_empty(sheaf, lane);
        None
    }

    /// Returns all nodes, beginning with `first`.
    fn nodes_from(&self, first: usize) -> impl Iterator<Item = usize> + use<> {
        core::iter::once(first).chain((0..self.nodes).filter(move |&node| node != first))
    }

    /// Returns one object from a slab, past barns.
    pub(super) fn object_from_slab(&'static self) -> Option<usize> {
        let mut nodes = self.nodes_from(self.current_node());
        nodes.find_map(|node| self.nodes()[node].slabs.take_one(0, node, self.info))
    }

    /// Returns one object from anywhere, for a lane that gets no sheaf.
    ///
    /// There may be no memory for a sheaf. Or there may be none for objects, and other threads had
    /// the locks of barns that hold some.
    pub(super) fn any_object(&'static self, lane: usize) -> Option<usize> {
        let mut nodes = self.nodes_from(self.current_node());
        let one =
            |node: usize| self.nodes()[node].slabs.take_one(lane % BARNS_PER_NODE, node, self.info);
        nodes.find_map(one).or_else(|| {
            let mut sheaf = self.barns().find_map(Barn::pop_any)?;
            let encoded = sheaf.pop();
            self.put(sheaf, lane);
            encoded
        })
    }

    /// Returns the barn of a node that a lane asks first.
    fn barn(&'static self, node: usize, lane: usize) -> &'static Barn {
        &self.nodes()[node].barns[lane % BARNS_PER_NODE]
    }

    fn barns(&'static self) -> impl Iterator<Item = &'static Barn> {
        self.nodes().iter().flat_map(|node| &node.barns)
    }

    /// Returns one object, for a caller that has no lane to put a sheaf into.
    pub(super) fn one_object(&'static self, lane: usize) -> Option<usize> {
        let Some(mut sheaf) = self.filled_sheaf_for(1, lane) else { return self.any_object(lane) };
        let encoded = sheaf.pop();
        self.put(sheaf, lane);
        encoded
    }

    pub(super) fn free_object(&'static self, encoded: usize) {
        self.free_with_mark(encoded, encoded);
    }

    pub(super) fn free_with_mark(&'static self, encoded: usize, mark: usize) {
        encoding::set_mark(self.info.mark_of(encoded), mark);
        let slab = node_slabs::find_object(self.info.key.decode(encoded), self.info).slab;
        let node = slab.node();
        self.nodes()[node].slabs.return_object(encoded, node, self.info);
    }

    /// Returns an empty sheaf for a lane, smaller than the capacity if memory is short.
    pub(super) fn empty_sheaf(&'static self, lane: usize) -> Option<Sheaf> {
        let barn = self.barn(self.current_node(), lane);
        let index = self.capacity.index();
        // Sheaves of large objects count with their capacity, so larger ones will not do.
        let most = if self.info.is_large() { CAPACITIES[index] } else { usize::MAX };
        while let Some(sheaf) = barn.pop_empty() {
            if (CAPACITIES[index]..=most).contains(&sheaf.capacity()) {
                return Some(sheaf);
            }
            sheaf::free(sheaf);
        }
        // Without memory for that capacity, a smaller sheaf will do, or an unused larger one.
        let larger = || (index + 1..CAPACITIES.len()).find_map(sheaf::reuse);
        let found = (self.capacity.smallest()..=index).rev().find_map(sheaf::alloc).or_else(larger);
        if found.is_none() {
            degradation::note(DegradationKind::Sheaves, libc::ENOMEM);
        }
        found
    }

    fn put_empty(&'static self, sheaf: Sheaf, lane: usize) {
        let barn = self.barn(self.current_node(), lane);
        if let Err(sheaf) = barn.push_empty(sheaf) {
            sheaf::free(sheaf);
        }
    }

    /// Takes a sheaf from a lane, whatever it holds.
    pub(super) fn put(&'static self, sheaf: Sheaf, lane: usize) {
        let node = self.current_node();
        // Objects of other nodes go back to those.
        let sheaf = if self.nodes > 1 {
            self.return_to_nodes(sheaf, Some(lane), |to| to != node)
        } else {
            sheaf
        };
        if sheaf.count() == 0 {
            return self.put_empty(sheaf, lane);
        }
        let barn = self.barn(node, lane);
        let should_flush = self.should_flush(barn, &sheaf, node);
        if let Err(sheaf) = barn.push(sheaf, self.info.shape.size, should_flush) {
            let sheaf = self.flush_to_slabs(sheaf, Some(lane));
            self.put_empty(sheaf, lane);
        }
        let trades = barn.trades();
        self.capacity.adapt(trades, || barn.is_busy(Host::coarse_time()));
        self.trim_idle(node, lane, trades);
    }

    /// Returns whether a sheaf is to be flushed because its objects are scattered.
    ///
    /// From their slabs they will be allocated in order of address again. That is worth its cost if
    /// enough memory is free in the barn, and if no thread is just filling a sheaf from the slabs.
    /// Constructed objects are never flushed for this, because they stay constructed in a barn.
    /// Objects of a page or more gain nothing from being adjacent.
    fn should_flush(&'static self, barn: &Barn, sheaf: &Sheaf, node: usize) -> bool {
        let Shape { size, chunks, mark } = self.info.shape;
        let bytes = barn.objects() * size;
        if bytes < SCATTERED_BYTES_MAX || size >= SCATTERED_SIZE_MAX || mark != 0 {
            return false;
        }
        let slabs = &self.nodes()[node].slabs;
        bytes >= slabs.slabs() * chunks * CHUNK_BYTES / SCATTERED_DIVISOR
            && sheaf.is_scattered(ADJACENT_BYTES)
            && !slabs.is_busy()
    }

    /// Flushes objects that have been idle for a while, once in a number of trades.
    ///
    /// Looks at the lane's own barn and at one other, in turn, whose lanes may all have stopped
    /// trading. Only threads that free call this, so that allocation does not wait for it.
    fn trim_idle(&'static self, node: usize, lane: usize, trades: u64) {
        if !self.barn(node, lane).is_trim_due(trades, TRADES_PER_TRIM) {
            return;
        }
        let now = Host::coarse_time();
        // Relaxed: two threads that trim the same barn do no harm.
        let cursor = self.trim_cursor.load(Relaxed).wrapping_add(1);
        self.trim_cursor.store(cursor, Relaxed);
        for number in [lane, cursor] {
            let barn = self.barn(node, number);
            for sheaf in core::iter::from_fn(|| barn.pop_idle(now)).take(SHEAVES_PER_TRIM) {
                let sheaf = self.flush_to_slabs(sheaf, Some(number));
                self.put_empty(sheaf, lane);
            }
        }
    }

    /// Returns all objects of a sheaf to their slabs.
    ///
    /// If it is known in which lane, or whose barn, the sheaf was, remote objects are counted.
    pub(super) fn flush_to_slabs(&'static self, sheaf: Sheaf, lane: Option<usize>) -> Sheaf {
        self.return_to_nodes(sheaf, lane, |_| true)
    }

    /// Returns the objects of the wanted nodes to those; visits only nodes with an object in it.
    fn return_to_nodes(
        &'static self,
        mut sheaf: Sheaf,
        lane: Option<usize>,
        is_wanted: impl Fn(usize) -> bool,
    ) -> Sheaf {
        let (shard, own) = (lane.map(|lane| lane % BARNS_PER_NODE), self.current_node());
        let node_of =
            |encoded| node_slabs::find_object(self.info.key.decode(encoded), self.info).slab.node();
        while let Some(node) = sheaf.pointers().map(node_of).find(|&node| is_wanted(node)) {
            let before = sheaf.count();
            let (rest, local) =
                self.nodes()[node].slabs.return_objects(sheaf, shard, node, self.info);
            sheaf = rest;
            let returned = before - sheaf.count();
            let remote = if node == own { returned - local } else { returned };
            // Relaxed: it counts, and orders nothing.
            self.remote_frees.fetch_add(remote as u64, Relaxed);
        }
        sheaf
    }

    /// Returns how many retired slabs a call to free destroys.
    ///
    /// As many as the objects of one sheaf may have filled, and one that others left behind.
    pub(super) fn slabs_to_destroy(&self) -> usize {
        1 + self.capacity().div_ceil(self.info.shape.objects())
    }

    /// Returns whether any slab is retired; an estimate.
    pub(super) fn has_retired(&'static self) -> bool {
        self.nodes().iter().any(|node| node.slabs.has_retired())
    }

    /// Takes a retired slab, whose objects the caller is to destroy, with its node.
    pub(super) fn take_retired(
        &'static self,
    ) -> Option<(&'static Slab, &'static NodeSlabs, usize)> {
        let mut nodes =
            self.nodes().iter().enumerate().filter(|(_, node)| node.slabs.has_retired());
        nodes.find_map(|(number, Node { slabs, .. })| {
            Some((slabs.take_retired(number, self.info)?, slabs, number))
        })
    }

    /// Flushes the given sheaves and all that barns hold, and makes new sheaves small again.
    pub(super) fn flush_barns(&'static self, sheaves: impl Iterator<Item = Sheaf>) {
        // As many as the barn holds now, because other threads may hand more in.
        let all = self.barns().enumerate().flat_map(|(number, barn)| {
            let mut left = barn.sheaves();
            core::iter::from_fn(move || {
                left = left.checked_sub(1)?;
                Some((Some(number), barn.drain()?))
            })
        });
        for (lane, sheaf) in sheaves.map(|sheaf| (None, sheaf)).chain(all) {
            sheaf::free(self.flush_to_slabs(sheaf, lane));
        }
        self.reset_capacity();
    }

    pub(super) fn reset_capacity(&self) {
        self.capacity.reset();
    }

    /// Counts a swap of a lane's sheaves; many swaps make new sheaves of large objects larger.
    pub(super) fn count_swap(&'static self, lane: usize) {
        let is_busy = || self.barn(self.current_node(), lane).is_busy(Host::coarse_time());
        self.capacity.count_swap(is_busy);
    }

    /// Makes new sheaves one step smaller, because a lane has exceeded its limit.
    pub(super) fn lower_capacity(&self) {
        self.capacity.lower();
    }

    pub(super) fn remote_frees(&self) -> u64 {
        self.remote_frees.load(Relaxed)
    }

    pub(super) fn trades(&'static self) -> u64 {
        self.barns().map(Barn::trades).sum()
    }

    pub(super) fn objects_in_barns(&'static self) -> usize {
        self.barns().map(Barn::objects).sum()
    }

    /// Returns how many objects of barns no lane has needed in this window so far.
    pub(super) fn unused_objects(&'static self, window: Window) -> usize {
        self.barns().map(|barn| barn.unused_objects(window)).sum()
    }

    /// Flushes a sheaf of unused objects; returns how many these were, or 0 if there is none.
    pub(super) fn flush_unused(&'static self, window: Window) -> usize {
        let mut barns = self.barns().enumerate();
        let found = barns.find_map(|(number, barn)| Some((number, barn.pop_unused(window)?)));
        found.map_or(0, |(number, sheaf)| {
            let count = sheaf.count();
            sheaf::free(self.flush_to_slabs(sheaf, Some(number)));
            count
        })
    }

    pub(super) fn begin_window(&'static self, window: Window) {
        self.barns().for_each(|barn| barn.begin_window(window));
    }

    pub(super) fn slabs(&'static self) -> usize {
        self.nodes().iter().map(|node| node.slabs.slabs()).sum()
    }

    pub(super) fn capacity(&self) -> usize {
        CAPACITIES[self.capacity.index()]
    }

    /// Returns how many objects are in lanes, barns and sheaves, or allocated.
    pub(super) fn objects_outside_slabs(&self) -> usize {
        node_slabs::slabs_of_cache(self.info).map(|slab| slab.outside()).sum()
    }

    /// Counts as [`objects_outside_slabs`](Backend::objects_outside_slabs), under the locks.
    ///
    /// So each thread that returned an object before has unlocked the node slabs.
    pub(super) fn objects_outside_slabs_locked(&'static self) -> usize {
        let nodes = self.nodes().iter().enumerate();
        nodes.map(|(number, node)| node.slabs.objects_outside_slabs(number, self.info)).sum()
    }
}
