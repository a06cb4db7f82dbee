//! A depot: what is behind the lanes of a cache, for each NUMA node some stocks and a barn.
//!
//! Whoever comes here has a sheaf in hand, or wants one, and is in no section. A sheaf that a thread has in hand when
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
use barn::{STOCKS, Stock};
use capacity::Capacity;
use node_slabs::{Barn, Kind};

#[repr(C, align(64))]
struct Node {
    stocks: [Stock; STOCKS],
    barn: Barn,
}

/// What a cache has once it is used. Its memory is used again by other caches, and never given back.
#[repr(C, align(64))]
pub(super) struct Depot {
    pub(super) kind: Kind,
    nodes: usize,
    capacity: Capacity,
    next: AtomicUsize,
    /// Which stock was last looked at for what is idle.
    turn: AtomicUsize,
    /// LockedArena by whoever destroys what is in retired slabs.
    pub(super) retiring: Lock,
    /// Whether somebody who cannot have that lock wants all of it to be destroyed.
    pub(super) all_wanted: AtomicBool,
}

/// After so many trades who hands something in looks for what is idle, and gives so many sheaves of it back at most.
const TRADES_TO_TIDY: u32 = if cfg!(thiscpu_model) { 2 } else { 16 };
const TIDIED_AT_ONCE: usize = 2;
/// A stock keeps so many bytes of objects that lie here and there, or this part of all that there are, whichever is more.
const SCATTERED_BYTES_MAX: usize = 1024 * 1024;
const SCATTERED_PART_MAX: usize = 8;
const SCATTERED_SIZE_MAX: usize = 4096;
/// Objects that are no further from each other are near.
const NEAR_BYTES: usize = 64 * 1024;

static LOCK: Lock = Lock::new();
/// Depots that no cache uses any more.
static UNUSED: AtomicUsize = AtomicUsize::new(0);
/// How many depots have a number.
static NUMBERED: AtomicU32 = AtomicU32::new(0);
/// Memory for depots that was never used, and where it ends.
static FRESH: AtomicUsize = AtomicUsize::new(0);
static FRESH_END: AtomicUsize = AtomicUsize::new(0);

impl Depot {
    /// A depot of a new cache, about which `kind` says the rest. `None` if there is no memory.
    pub(super) fn make(kind: impl FnOnce(u32) -> Kind) -> Option<&'static Depot> {
        let nodes = Host::nodes();
        let bytes = size_of::<Depot>() + nodes * size_of::<Node>();
        let (at, owner) = memory(bytes)?;
        let kind = kind(owner);
        let depot = Depot {
            kind,
            nodes,
            capacity: Capacity::of(kind.shape),
            next: AtomicUsize::new(0),
            turn: AtomicUsize::new(0),
            retiring: Lock::new(),
            all_wanted: AtomicBool::new(false),
        };
        // SAFETY: so many bytes, aligned to 64, are this function's alone.
        unsafe {
            for node in 0..nodes {
                let barn = Barn::new();
                let stocks = [const { Stock::new() }; STOCKS];
                ((at + size_of::<Depot>()) as *mut Node).add(node).write(Node { stocks, barn });
            }
            (at as *mut Depot).write(depot);
            Some(&*(at as *const Depot))
        }
    }

    /// Waits for those who have given the last objects back and still have a barn's lock.
    pub(super) fn settle(&'static self) {
        for (node, Node { barn, .. }) in self.nodes().iter().enumerate() {
            barn.settle(node, self.kind);
        }
    }

    /// Gives the memory of an empty depot to other caches.
    pub(super) fn give_up(&'static self) {
        let _guard = LOCK.lock();
        self.next.store(UNUSED.load(Relaxed), Relaxed);
        UNUSED.store(core::ptr::from_ref(self) as usize, Relaxed);
    }

    fn nodes(&'static self) -> &'static [Node] {
        let first = (core::ptr::from_ref(self) as usize + size_of::<Depot>()) as *const Node;
        // SAFETY: so many follow it, written by `make`.
        unsafe { core::slice::from_raw_parts(first, self.nodes) }
    }

    /// The node of the calling thread, right now.
    fn here(&self) -> usize {
        if self.nodes == 1 { 0 } else { Host::node().min(self.nodes - 1) }
    }

    /// A sheaf with entries for a lane. `None` if there is no memory; then there may still be a
    /// [`last_entry`](Depot::last_entry).
    pub(super) fn with_entries(&'static self, lane: usize) -> Option<Sheaf> {
        self.for_so_many(usize::MAX, lane)
    }

    /// The same for whoever wants no more than that, and hands in the rest.
    fn for_so_many(&'static self, wanted: usize, lane: usize) -> Option<Sheaf> {
        let here = self.here();
        let stocks = &self.nodes()[here].stocks;
        let own = &stocks[lane % STOCKS];
        let (found, trades) = own.pop();
        self.capacity.adapt(trades, || own.is_busy(Host::coarse_time()));
        let now = Host::coarse_time();
        let steal = || {
            let mut others = stocks.iter().filter(|stock| !ptr::eq(*stock, own));
            others.find_map(|stock| stock.steal(now))
        };
        let sheaf = found.or_else(steal).or_else(|| self.filled_from_slabs(here, lane))?;
        own.count_asked(sheaf.count().min(wanted), now);
        Some(sheaf)
    }

    /// The same from slabs; from another node's when this one has no memory.
    fn filled_from_slabs(&'static self, here: usize, lane: usize) -> Option<Sheaf> {
        let mut sheaf = self.empty(lane)?;
        let most = sheaf.capacity();
        for node in self.nodes_from(here) {
            if self.nodes()[node].barn.fill(&mut sheaf, most, lane % STOCKS, node, self.kind) {
                return Some(sheaf);
            }
        }
        self.put_empty(sheaf, lane);
        None
    }

    /// All nodes, that one first.
    fn nodes_from(&self, here: usize) -> impl Iterator<Item = usize> + use<> {
        core::iter::once(here).chain((0..self.nodes).filter(move |&node| node != here))
    }

    /// One entry from wherever there is one, when there is no sheaf for a lane: because there is no memory for sheaves, or
    /// none for objects while others had the locks of what has some.
    pub(super) fn last_entry(&'static self, lane: usize) -> Option<usize> {
        let mut nodes = self.nodes_from(self.here());
        let one = |node: usize| self.nodes()[node].barn.take_one(lane % STOCKS, node, self.kind);
        nodes.find_map(one).or_else(|| {
            let mut sheaf = self.stocks().find_map(Stock::take)?;
            let encoded = sheaf.pop();
            self.put(sheaf, lane);
            encoded
        })
    }

    fn stocks(&'static self) -> impl Iterator<Item = &'static Stock> {
        self.nodes().iter().flat_map(|node| &node.stocks)
    }

    /// One entry, for whom a sheaf is too much.
    pub(super) fn one_entry(&'static self, lane: usize) -> Option<usize> {
        let Some(mut sheaf) = self.for_so_many(1, lane) else { return self.last_entry(lane) };
        let encoded = sheaf.pop();
        self.put(sheaf, lane);
        encoded
    }

    /// Takes one entry back, straight into its slab.
    pub(super) fn put_entry(&'static self, encoded: usize) {
        self.put_marked(encoded, encoded);
    }

    /// The same with that mark.
    pub(super) fn put_marked(&'static self, encoded: usize, mark: usize) {
        encoding::set_mark(self.kind.mark_of(encoded), mark);
        let slab = node_slabs::find(self.kind.key.decode(encoded), self.kind).slab;
        let node = slab.node();
        self.nodes()[node].barn.take_back_entry(encoded, node, self.kind);
    }

    /// A sheaf without entries; a smaller one than is wanted if there is no other. `None` if there is no memory.
    pub(super) fn empty(&'static self, lane: usize) -> Option<Sheaf> {
        let stock = &self.nodes()[self.here()].stocks[lane % STOCKS];
        let kind = self.capacity.kind();
        while let Some(sheaf) = stock.pop_empty() {
            if sheaf.capacity() >= CAPACITIES[kind] {
                return Some(sheaf);
            }
            sheaf::free(sheaf);
        }
        // Where there is no memory for one a smaller one will do, or any that was given up.
        let larger = || (kind + 1..CAPACITIES.len()).find_map(sheaf::reuse);
        (0..=kind).rev().find_map(sheaf::alloc).or_else(larger)
    }

    fn put_empty(&'static self, sheaf: Sheaf, lane: usize) {
        let stock = &self.nodes()[self.here()].stocks[lane % STOCKS];
        if let Err(sheaf) = stock.push_empty(sheaf) {
            sheaf::free(sheaf);
        }
    }

    /// Takes a sheaf from a lane, whatever is in it.
    pub(super) fn put(&'static self, sheaf: Sheaf, lane: usize) {
        let here = self.here();
        let sheaf = if self.nodes > 1 { self.send_home(sheaf, here) } else { sheaf };
        if sheaf.count() == 0 {
            return self.put_empty(sheaf, lane);
        }
        let stock = &self.nodes()[here].stocks[lane % STOCKS];
        let is_for_slabs = self.is_for_slabs(stock, &sheaf, here);
        if let Err(sheaf) = stock.push(sheaf, self.kind.shape.size, is_for_slabs) {
            let sheaf = self.to_slabs(sheaf);
            self.put_empty(sheaf, lane);
        }
        let trades = stock.trades();
        self.capacity.adapt(trades, || stock.is_busy(Host::coarse_time()));
        self.tidy(here, lane, trades);
    }

    /// Whether objects lie here and there that would be allocated side by side if they went back to their slabs: where a part of all objects
    /// that is worth it is free, and nobody else is about to fill sheaves. What is constructed stays so while it is in a stock. Objects of
    /// a page or more need no neighbours.
    fn is_for_slabs(&'static self, stock: &Stock, sheaf: &Sheaf, here: usize) -> bool {
        let Shape { size, chunks, mark } = self.kind.shape;
        let bytes = stock.objects() * size;
        if bytes < SCATTERED_BYTES_MAX || size >= SCATTERED_SIZE_MAX || mark != 0 {
            return false;
        }
        let barn = &self.nodes()[here].barn;
        bytes >= barn.slabs() * chunks * CHUNK_BYTES / SCATTERED_PART_MAX
            && sheaf.is_scattered(NEAR_BYTES)
            && !barn.is_busy()
    }

    /// Now and then gives what a stock has, and nobody has needed for a while, back to the slabs: that of the lane and, in
    /// turn, those that may have been left by all who used them. Not for those who allocate, who do not wait for it.
    fn tidy(&'static self, here: usize, lane: usize, trades: u64) {
        if !self.nodes()[here].stocks[lane % STOCKS].is_tidied_at(trades, TRADES_TO_TIDY) {
            return;
        }
        let now = Host::coarse_time();
        // Relaxed: two who have the same turn do no harm.
        let in_turn = self.turn.load(Relaxed).wrapping_add(1);
        self.turn.store(in_turn, Relaxed);
        for number in [lane, in_turn] {
            let stock = &self.nodes()[here].stocks[number % STOCKS];
            for sheaf in core::iter::from_fn(|| stock.pop_idle(now)).take(TIDIED_AT_ONCE) {
                let sheaf = self.to_slabs(sheaf);
                self.put_empty(sheaf, lane);
            }
        }
    }

    /// Gives the objects of other nodes back to those; what is left in the sheaf belongs here.
    fn send_home(&'static self, sheaf: Sheaf, here: usize) -> Sheaf {
        self.send(sheaf, |node| node != here)
    }

    /// Gives all objects of a sheaf back to their slabs.
    pub(super) fn to_slabs(&'static self, sheaf: Sheaf) -> Sheaf {
        self.send(sheaf, |_| true)
    }

    /// Gives the objects of such nodes back to those. Only nodes that there is an object of are gone to.
    fn send(&'static self, mut sheaf: Sheaf, is_wanted: impl Fn(usize) -> bool) -> Sheaf {
        let node_of =
            |encoded| node_slabs::find(self.kind.key.decode(encoded), self.kind).slab.node();
        while let Some(node) = sheaf.pointers().map(node_of).find(|&node| is_wanted(node)) {
            sheaf = self.nodes()[node].barn.take_back(sheaf, node, self.kind);
        }
        sheaf
    }

    /// How many retired slabs a call ends that frees: as many as a sheaf's objects may have filled, and one more, for what
    /// others have left.
    pub(super) fn slabs_to_end(&self) -> usize {
        1 + self.capacity().div_ceil(self.kind.shape.objects())
    }

    /// Whether there is such a slab as the next; about.
    pub(super) fn has_retired(&'static self) -> bool {
        self.nodes().iter().any(|node| node.barn.has_retired())
    }

    /// A slab whose constructed objects are to be destroyed, which the caller has for itself, with its barn and node.
    pub(super) fn pop_retired(&'static self) -> Option<(&'static Slab, &'static Barn, usize)> {
        let mut nodes = self.nodes().iter().enumerate().filter(|(_, node)| node.barn.has_retired());
        nodes.find_map(|(number, Node { barn, .. })| {
            Some((barn.pop_retired(number, self.kind)?, barn, number))
        })
    }

    /// Gives all that stocks hold, and these sheaves, back to the slabs, and begins with small sheaves again.
    pub(super) fn empty_stocks(&'static self, sheaves: impl Iterator<Item = Sheaf>) {
        // As many as there are now, while others hand more in.
        let all = self.stocks().flat_map(|stock| {
            let mut left = stock.sheaves();
            core::iter::from_fn(move || {
                left = left.checked_sub(1)?;
                stock.drain()
            })
        });
        for sheaf in sheaves.chain(all) {
            sheaf::free(self.to_slabs(sheaf));
        }
        self.begin_small();
    }

    /// New sheaves are small again.
    pub(super) fn begin_small(&self) {
        self.capacity.begin_small();
    }

    pub(super) fn trades(&'static self) -> u64 {
        self.stocks().map(Stock::trades).sum()
    }

    pub(super) fn objects_in_barns(&'static self) -> usize {
        self.stocks().map(Stock::objects).sum()
    }

    /// How many objects stocks hold that nobody has needed since [`Depot::begin_window`].
    pub(super) fn unused(&'static self) -> usize {
        self.stocks().map(Stock::unused).sum()
    }

    /// Gives up to `most` sheaves of those back to the slabs. How many.
    pub(super) fn give_back_unused(&'static self, most: usize) -> usize {
        let unused = self.stocks().flat_map(|stock| core::iter::from_fn(|| stock.pop_unused()));
        unused.take(most).map(|sheaf| sheaf::free(self.to_slabs(sheaf))).count()
    }

    /// From now on stocks count anew what nobody needs.
    pub(super) fn begin_window(&'static self) {
        self.stocks().for_each(Stock::begin_window);
    }

    pub(super) fn slabs(&'static self) -> usize {
        self.nodes().iter().map(|node| node.barn.slabs()).sum()
    }

    pub(super) fn capacity(&self) -> usize {
        CAPACITIES[self.capacity.kind()]
    }

    /// How many objects are in no slab: in lanes, stocks and hands, or in use.
    pub(super) fn objects_outside_slabs(&self) -> usize {
        node_slabs::all_of(self.kind).map(|slab| slab.out()).sum()
    }

    /// The same, when everybody who gave one back before has done with this.
    pub(super) fn objects_out_for_good(&'static self) -> usize {
        let nodes = self.nodes().iter().enumerate();
        nodes.map(|(number, node)| node.barn.objects_outside_slabs(number, self.kind)).sum()
    }
}

/// Memory for a depot, and the number that says which slabs are its own. No two depots have the same; one that is used again
/// keeps its number, because it has no slab any more.
fn memory(bytes: usize) -> Option<(usize, u32)> {
    let bytes = bytes.next_multiple_of(64);
    let _guard = LOCK.lock();
    let unused = UNUSED.load(Relaxed);
    // SAFETY: the list holds depots that nobody uses, all of one size.
    if let Some(depot) = unsafe { (unused as *const Depot).as_ref() } {
        UNUSED.store(depot.next.load(Relaxed), Relaxed);
        return Some((unused, depot.kind.owner));
    }
    // 0 is nobody's.
    let owner = NUMBERED.load(Relaxed).checked_add(1)?;
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
    NUMBERED.store(owner, Relaxed);
    Some((at, owner))
}
