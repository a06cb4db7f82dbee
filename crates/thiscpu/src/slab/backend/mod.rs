//! A backend: what is behind the lanes of a cache, for each NUMA node some barns and a slabs.
//!
//! Whoever comes node has a sheaf in hand, or wants one, and is in no section. A sheaf that a thread has in hand when
//! the process is forked is lost to the child, with its objects: they stay in use there for ever.

mod barn;
mod capacity;
pub(crate) mod node_slabs;

use core::ptr;

use super::arena::CHUNK_BYTES;
use super::arena::slab::{Shape, Slab};
use super::lane::encoding;
use super::lane::sheaf::{self, CAPACITIES, Sheaf};
use crate::sys::Host;
use crate::sys::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};
use crate::sys::lock::Lock;
use crate::sys::machine::Machine as _;
use barn::{BARNS_PER_NODE, Barn};
use capacity::Capacity;
use node_slabs::{CacheInfo, NodeSlabs};

#[repr(C, align(64))]
struct Node {
    barns: [Barn; BARNS_PER_NODE],
    slabs: NodeSlabs,
}

/// What a cache has once it is used. Its memory is used again by other caches, and never given back.
#[repr(C, align(64))]
pub(super) struct Backend {
    pub(super) info: CacheInfo,
    nodes: usize,
    capacity: Capacity,
    next: AtomicUsize,
    /// Which barn was last looked at for what is idle.
    trim_cursor: AtomicUsize,
    /// LockedArena by whoever destroys what is in retired slabs.
    pub(super) retiring: Lock,
    /// Whether somebody who cannot have that lock wants all of it to be destroyed.
    pub(super) all_requested: AtomicBool,
}

/// After so many trades who hands something in looks for what is idle, and gives so many sheaves of it back at most.
const TRADES_PER_TRIM: u32 = if cfg!(thiscpu_model) { 2 } else { 16 };
const SHEAVES_PER_TRIM: usize = 2;
/// A barn keeps so many bytes of objects that lie node and there, or this part of all that there are, whichever is more.
const SCATTERED_BYTES_MAX: usize = 1024 * 1024;
const SCATTERED_DIVISOR: usize = 8;
const SCATTERED_SIZE_MAX: usize = 4096;
/// Objects that are no further from each other are near.
const ADJACENT_BYTES: usize = 64 * 1024;

static LOCK: Lock = Lock::new();
/// Depots that no cache uses any more.
static UNUSED: AtomicUsize = AtomicUsize::new(0);
/// How many backends have a number.
static LAST_OWNER: AtomicU32 = AtomicU32::new(0);
/// Memory for backends that was never used, and where it ends.
static FRESH: AtomicUsize = AtomicUsize::new(0);
static FRESH_END: AtomicUsize = AtomicUsize::new(0);

impl Backend {
    /// A backend of a new cache, about which `info` says the rest. `None` if there is no memory.
    pub(super) fn create(info: impl FnOnce(u32) -> CacheInfo) -> Option<&'static Backend> {
        let nodes = Host::nodes();
        let bytes = size_of::<Backend>() + nodes * size_of::<Node>();
        let (at, owner) = alloc_memory(bytes)?;
        let info = info(owner);
        let backend = Backend {
            info,
            nodes,
            capacity: Capacity::of(info.shape),
            next: AtomicUsize::new(0),
            trim_cursor: AtomicUsize::new(0),
            retiring: Lock::new(),
            all_requested: AtomicBool::new(false),
        };
        // SAFETY: so many bytes, aligned to 64, are this function's alone.
        unsafe {
            for node in 0..nodes {
                let slabs = NodeSlabs::new();
                let barns = [const { Barn::new() }; BARNS_PER_NODE];
                ((at + size_of::<Backend>()) as *mut Node).add(node).write(Node { barns, slabs });
            }
            (at as *mut Backend).write(backend);
            Some(&*(at as *const Backend))
        }
    }

    /// Waits for those who have given the last objects back and still have a slabs's lock.
    pub(super) fn wait_for_unlock(&'static self) {
        for (node, Node { slabs, .. }) in self.nodes().iter().enumerate() {
            slabs.wait_for_unlock(node, self.info);
        }
    }

    /// Gives the memory of an empty backend to other caches.
    pub(super) fn release(&'static self) {
        let _guard = LOCK.lock();
        self.next.store(UNUSED.load(Relaxed), Relaxed);
        UNUSED.store(core::ptr::from_ref(self) as usize, Relaxed);
    }

    fn nodes(&'static self) -> &'static [Node] {
        let first = (core::ptr::from_ref(self) as usize + size_of::<Backend>()) as *const Node;
        // SAFETY: so many follow it, written by `make`.
        unsafe { core::slice::from_raw_parts(first, self.nodes) }
    }

    /// The node of the calling thread, right now.
    fn current_node(&self) -> usize {
        if self.nodes == 1 { 0 } else { Host::node().min(self.nodes - 1) }
    }

    /// A sheaf with entries for a lane. `None` if there is no memory; then there may still be a
    /// [`any_object`](Backend::any_object).
    pub(super) fn filled_sheaf(&'static self, lane: usize) -> Option<Sheaf> {
        self.filled_sheaf_for(usize::MAX, lane)
    }

    /// The same for whoever wants no more than that, and hands in the rest.
    fn filled_sheaf_for(&'static self, wanted: usize, lane: usize) -> Option<Sheaf> {
        let node = self.current_node();
        let barns = &self.nodes()[node].barns;
        let own = &barns[lane % BARNS_PER_NODE];
        let (found, trades) = own.pop();
        self.capacity.adapt(trades, || own.is_busy(Host::coarse_time()));
        let now = Host::coarse_time();
        let steal = || {
            let mut others = barns.iter().filter(|barn| !ptr::eq(*barn, own));
            others.find_map(|barn| barn.steal(now))
        };
        let sheaf = found.or_else(steal).or_else(|| self.sheaf_from_slabs(node, lane))?;
        own.count_requested(sheaf.count().min(wanted), now);
        Some(sheaf)
    }

    /// The same from slabs; from another node's when this one has no memory.
    fn sheaf_from_slabs(&'static self, node: usize, lane: usize) -> Option<Sheaf> {
        let mut sheaf = self.empty_sheaf(lane)?;
        let most = sheaf.capacity();
        for node in self.nodes_from(node) {
            if self.nodes()[node].slabs.fill(
                &mut sheaf,
                most,
                lane % BARNS_PER_NODE,
                node,
                self.info,
            ) {
                return Some(sheaf);
            }
        }
        self.put_empty(sheaf, lane);
        None
    }

    /// All nodes, that one first.
    fn nodes_from(&self, first: usize) -> impl Iterator<Item = usize> + use<> {
        core::iter::once(first).chain((0..self.nodes).filter(move |&node| node != first))
    }

    /// One entry from wherever there is one, when there is no sheaf for a lane: because there is no memory for sheaves, or
    /// none for objects while others had the locks of what has some.
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

    fn barns(&'static self) -> impl Iterator<Item = &'static Barn> {
        self.nodes().iter().flat_map(|node| &node.barns)
    }

    /// One entry, for whom a sheaf is too much.
    pub(super) fn one_object(&'static self, lane: usize) -> Option<usize> {
        let Some(mut sheaf) = self.filled_sheaf_for(1, lane) else { return self.any_object(lane) };
        let encoded = sheaf.pop();
        self.put(sheaf, lane);
        encoded
    }

    /// Takes one entry back, straight into its slab.
    pub(super) fn free_object(&'static self, encoded: usize) {
        self.free_with_mark(encoded, encoded);
    }

    /// The same with that mark.
    pub(super) fn free_with_mark(&'static self, encoded: usize, mark: usize) {
        encoding::set_mark(self.info.mark_of(encoded), mark);
        let slab = node_slabs::find_object(self.info.key.decode(encoded), self.info).slab;
        let node = slab.node();
        self.nodes()[node].slabs.return_object(encoded, node, self.info);
    }

    /// A sheaf without entries; a smaller one than is wanted if there is no other. `None` if there is no memory.
    pub(super) fn empty_sheaf(&'static self, lane: usize) -> Option<Sheaf> {
        let barn = &self.nodes()[self.current_node()].barns[lane % BARNS_PER_NODE];
        let index = self.capacity.index();
        while let Some(sheaf) = barn.pop_empty() {
            if sheaf.capacity() >= CAPACITIES[index] {
                return Some(sheaf);
            }
            sheaf::free(sheaf);
        }
        // Where there is no memory for one a smaller one will do, or any that was given up.
        let larger = || (index + 1..CAPACITIES.len()).find_map(sheaf::reuse);
        (0..=index).rev().find_map(sheaf::alloc).or_else(larger)
    }

    fn put_empty(&'static self, sheaf: Sheaf, lane: usize) {
        let barn = &self.nodes()[self.current_node()].barns[lane % BARNS_PER_NODE];
        if let Err(sheaf) = barn.push_empty(sheaf) {
            sheaf::free(sheaf);
        }
    }

    /// Takes a sheaf from a lane, whatever is in it.
    pub(super) fn put(&'static self, sheaf: Sheaf, lane: usize) {
        let node = self.current_node();
        let sheaf = if self.nodes > 1 { self.return_remote(sheaf, node) } else { sheaf };
        if sheaf.count() == 0 {
            return self.put_empty(sheaf, lane);
        }
        let barn = &self.nodes()[node].barns[lane % BARNS_PER_NODE];
        let should_flush = self.should_flush(barn, &sheaf, node);
        if let Err(sheaf) = barn.push(sheaf, self.info.shape.size, should_flush) {
            let sheaf = self.flush_to_slabs(sheaf);
            self.put_empty(sheaf, lane);
        }
        let trades = barn.trades();
        self.capacity.adapt(trades, || barn.is_busy(Host::coarse_time()));
        self.trim_idle(node, lane, trades);
    }

    /// Whether objects lie node and there that would be allocated side by side if they went back to their slabs: where a part of all objects
    /// that is worth it is free, and nobody else is about to fill sheaves. What is constructed stays so while it is in a barn. Objects of
    /// a page or more need no neighbours.
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

    /// Now and then gives what a barn has, and nobody has needed for a while, back to the slabs: that of the lane and, in
    /// trim_cursor, those that may have been left by all who used them. Not for those who allocate, who do not wait for it.
    fn trim_idle(&'static self, node: usize, lane: usize, trades: u64) {
        if !self.nodes()[node].barns[lane % BARNS_PER_NODE].is_trim_due(trades, TRADES_PER_TRIM) {
            return;
        }
        let now = Host::coarse_time();
        // Relaxed: two who have the same trim_cursor do no harm.
        let cursor = self.trim_cursor.load(Relaxed).wrapping_add(1);
        self.trim_cursor.store(cursor, Relaxed);
        for number in [lane, cursor] {
            let barn = &self.nodes()[node].barns[number % BARNS_PER_NODE];
            for sheaf in core::iter::from_fn(|| barn.pop_idle(now)).take(SHEAVES_PER_TRIM) {
                let sheaf = self.flush_to_slabs(sheaf);
                self.put_empty(sheaf, lane);
            }
        }
    }

    /// Gives the objects of other nodes back to those; what is left in the sheaf belongs node.
    fn return_remote(&'static self, sheaf: Sheaf, local: usize) -> Sheaf {
        self.return_to_nodes(sheaf, |node| node != local)
    }

    /// Gives all objects of a sheaf back to their slabs.
    pub(super) fn flush_to_slabs(&'static self, sheaf: Sheaf) -> Sheaf {
        self.return_to_nodes(sheaf, |_| true)
    }

    /// Gives the objects of such nodes back to those. Only nodes that there is an object of are gone to.
    fn return_to_nodes(
        &'static self,
        mut sheaf: Sheaf,
        is_wanted: impl Fn(usize) -> bool,
    ) -> Sheaf {
        let node_of =
            |encoded| node_slabs::find_object(self.info.key.decode(encoded), self.info).slab.node();
        while let Some(node) = sheaf.pointers().map(node_of).find(|&node| is_wanted(node)) {
            sheaf = self.nodes()[node].slabs.return_objects(sheaf, node, self.info);
        }
        sheaf
    }

    /// How many retired slabs a call ends that frees: as many as a sheaf's objects may have filled, and one more, for what
    /// others have left.
    pub(super) fn slabs_to_destroy(&self) -> usize {
        1 + self.capacity().div_ceil(self.info.shape.objects())
    }

    /// Whether there is such a slab as the next; about.
    pub(super) fn has_retired(&'static self) -> bool {
        self.nodes().iter().any(|node| node.slabs.has_retired())
    }

    /// A slab whose constructed objects are to be destroyed, which the caller has for itself, with its slabs and node.
    pub(super) fn take_retired(
        &'static self,
    ) -> Option<(&'static Slab, &'static NodeSlabs, usize)> {
        let mut nodes =
            self.nodes().iter().enumerate().filter(|(_, node)| node.slabs.has_retired());
        nodes.find_map(|(number, Node { slabs, .. })| {
            Some((slabs.take_retired(number, self.info)?, slabs, number))
        })
    }

    /// Gives all that barns hold, and these sheaves, back to the slabs, and begins with small sheaves again.
    pub(super) fn flush_barns(&'static self, sheaves: impl Iterator<Item = Sheaf>) {
        // As many as there are now, while others hand more in.
        let all = self.barns().flat_map(|barn| {
            let mut left = barn.sheaves();
            core::iter::from_fn(move || {
                left = left.checked_sub(1)?;
                barn.drain()
            })
        });
        for sheaf in sheaves.chain(all) {
            sheaf::free(self.flush_to_slabs(sheaf));
        }
        self.reset_capacity();
    }

    /// New sheaves are small again.
    pub(super) fn reset_capacity(&self) {
        self.capacity.reset();
    }

    pub(super) fn trades(&'static self) -> u64 {
        self.barns().map(Barn::trades).sum()
    }

    pub(super) fn objects_in_barns(&'static self) -> usize {
        self.barns().map(Barn::objects).sum()
    }

    /// How many objects barns hold that nobody has needed since [`Backend::begin_window`].
    pub(super) fn unused_objects(&'static self) -> usize {
        self.barns().map(Barn::unused_objects).sum()
    }

    /// Gives up to `most` sheaves of those back to the slabs. How many.
    pub(super) fn flush_unused(&'static self, most: usize) -> usize {
        let unused = self.barns().flat_map(|barn| core::iter::from_fn(|| barn.pop_unused()));
        unused.take(most).map(|sheaf| sheaf::free(self.flush_to_slabs(sheaf))).count()
    }

    /// From now on barns count anew what nobody needs.
    pub(super) fn begin_window(&'static self) {
        self.barns().for_each(Barn::begin_window);
    }

    pub(super) fn slabs(&'static self) -> usize {
        self.nodes().iter().map(|node| node.slabs.slabs()).sum()
    }

    pub(super) fn capacity(&self) -> usize {
        CAPACITIES[self.capacity.index()]
    }

    /// How many objects are in no slab: in lanes, barns and hands, or in use.
    pub(super) fn objects_outside_slabs(&self) -> usize {
        node_slabs::slabs_of_cache(self.info).map(|slab| slab.out()).sum()
    }

    /// The same, when everybody who gave one back before has done with this.
    pub(super) fn objects_outside_slabs_locked(&'static self) -> usize {
        let nodes = self.nodes().iter().enumerate();
        nodes.map(|(number, node)| node.slabs.objects_outside_slabs(number, self.info)).sum()
    }
}

/// Memory for a backend, and the number that says which slabs are its own. No two backends have the same; one that is used again
/// keeps its number, because it has no slab any more.
fn alloc_memory(bytes: usize) -> Option<(usize, u32)> {
    let bytes = bytes.next_multiple_of(64);
    let _guard = LOCK.lock();
    let unused = UNUSED.load(Relaxed);
    // SAFETY: the list holds backends that nobody uses, all of one size.
    if let Some(backend) = unsafe { (unused as *const Backend).as_ref() } {
        UNUSED.store(backend.next.load(Relaxed), Relaxed);
        return Some((unused, backend.info.owner));
    }
    // 0 is nobody's.
    let owner = LAST_OWNER.load(Relaxed).checked_add(1)?;
    if FRESH.load(Relaxed) + bytes > FRESH_END.load(Relaxed) {
        let mapping = bytes.next_power_of_two().max(64 * 1024);
        let memory = Host::map(mapping).ok()?;
        // In this order: a fork in between leaves nothing to use, and both are changed again.
        FRESH_END.store(0, Relaxed);
        FRESH.store(memory, Relaxed);
        FRESH_END.store(memory + mapping, Relaxed);
    }
    let at = FRESH.load(Relaxed);
    FRESH.store(at + bytes, Relaxed);
    LAST_OWNER.store(owner, Relaxed);
    Some((at, owner))
}
