//! A list of nodes on each CPU.

use core::cell::UnsafeCell;
use core::fmt;
use core::ptr::{self, NonNull};

use super::shared::retry_or_shared;
use crate::error::Error;
use crate::lanes::item::{Item, expect};
use crate::section::{Outcome, Processor, Sections as _, WordSections as _};
use crate::sys::atomic::{
    AtomicU128, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed},
};

/// The link of a node in an intrusive list: the first field of the node.
#[derive(Debug)]
#[repr(transparent)]
pub struct Link(UnsafeCell<*mut Link>);

impl Link {
    /// Creates the link of a node that is in no list.
    pub const fn new() -> Self {
        Link(UnsafeCell::new(ptr::null_mut()))
    }

    /// Returns the next node of a list that the caller has taken.
    pub fn next_node(&mut self) -> Option<NonNull<Link>> {
        NonNull::new(*self.0.get_mut())
    }
}

impl Default for Link {
    fn default() -> Self {
        Link::new()
    }
}

/// A list of nodes on each CPU, last in, first out.
///
/// It keeps nodes that are not needed right now near the CPU that used them last. `push`, `pop` and
/// `take_all` work on the list of the CPU that the calling thread is on, each in one section.
/// **They do not reach other CPUs' lists**: if `pop` returns `None`, other lists may have nodes. A
/// thread without a lane uses one more list, in the shared lane.
///
/// Each operation takes 1 to 2 ns. It is wait-free in the rseq tiers and lock-free in the atomic
/// tier, and may be called from signal handlers and after `fork`. Per-CPU lists were rseq's first
/// example (Turner and Hunter). The atomic tier uses Treiber's stack, with a number beside the
/// head.
///
/// What a thread did before it pushed a node happens before the return of the call that takes the
/// node out.
///
/// Dropping the stack leaks the nodes that are still in it; [`drain`](PerCpuStack::drain) takes
/// them out.
///
/// ```
/// use std::ptr::NonNull;
/// use thiscpu::{Link, PerCpuStack};
///
/// #[repr(C)]
/// struct Node {
///     link: Link, // first, so that a node's address is its link's
///     value: u32,
/// }
/// let mut free = PerCpuStack::new();
/// let node = Box::leak(Box::new(Node { link: Link::new(), value: 7 }));
/// // SAFETY: the node is leaked, so it stays valid, and no other code uses it.
/// unsafe { free.push(NonNull::from(node).cast()) };
/// for node in free.drain() {
///     // SAFETY: only nodes of this type were pushed, and this one is in no list any more.
///     let node = unsafe { Box::from_raw(node.cast::<Node>().as_ptr()) };
///     assert_eq!(node.value, 7);
/// }
/// ```
pub struct PerCpuStack {
    item: Item,
}

/// The size of a list in a lane, in bytes: the first node, and a number.
///
/// On lanes that several CPUs share, the number changes with each change. So a `pop` notices if the
/// first node was taken and pushed again after it read that node's link.
const SIZE: usize = 16;

impl PerCpuStack {
    /// Creates a stack that is empty on every CPU.
    ///
    /// May wait for another thread that creates or drops a per-CPU variable.
    ///
    /// # Panics
    ///
    /// If the system has no address space, or `THISCPU_TIER` is wrong.
    pub fn new() -> Self {
        expect(Self::try_new())
    }

    /// Creates a stack like [`new`](Self::new), but returns errors.
    ///
    /// # Errors
    ///
    /// Returns [`Error::NoAddressSpace`], or an error of [`tier()`](crate::tier()).
    pub fn try_new() -> Result<Self, Error> {
        Ok(PerCpuStack { item: Item::try_new(SIZE, SIZE)? })
    }

    /// Puts `node` at the head of this CPU's list.
    ///
    /// # Safety
    ///
    /// `node` points to a [`Link`] that is in no list, and that no other code uses until it is
    /// taken out again. Its memory stays readable as long as the stack lives, even after the node
    /// was taken out: without sections, another thread's `pop` may still read its link, and discard
    /// the value. The memory may be reused, but not unmapped.
    #[inline(always)]
    pub unsafe fn push(&self, node: NonNull<Link>) {
        let (item, node) = (self.item.open(), node.as_ptr().expose_provenance());
        // SAFETY: the item lives as long as the stack. The caller guarantees that the node is in no
        // list and used by no other code.
        let attempt = || (unsafe { Processor::push(item, node) }, ());
        if attempt().0 != Outcome::Committed {
            retry_or_shared(item, attempt, |address| {
                let link = |first| {
                    // SAFETY: the caller guarantees that no other code uses the node, which begins
                    // with its link. Relaxed: the exchange in `change` publishes the link.
                    unsafe { (*(node as *const AtomicUsize)).store(first, Relaxed) };
                    Some(node)
                };
                // SAFETY: the address is that of a stack's item in a lane.
                unsafe { change(address, link) };
            });
        }
    }

    /// Takes the first node off this CPU's list, if there is one.
    #[inline(always)]
    pub fn pop(&self) -> Option<NonNull<Link>> {
        let item = self.item.open();
        // SAFETY: the item lives as long as the stack. The callers of `push` guarantee that nodes
        // stay readable.
        let attempt = || unsafe { Processor::pop(item) };
        let node = match attempt() {
            (Outcome::Committed, node) => node,
            (Outcome::Mismatch, _) => 0,
            _ => {
                // SAFETY: the callers of `push` guarantee that nodes stay readable.
                let next = |first| (first != 0).then(|| unsafe { read_link(first) });
                // SAFETY: the address is that of a stack's item in a lane.
                retry_or_shared(item, attempt, |address| unsafe { change(address, next) }).1
            }
        };
        NonNull::new(ptr::with_exposed_provenance_mut(node))
    }

    /// Takes this CPU's whole list and returns its first node.
    ///
    /// [`Link::next_node`] leads from each node to the next.
    #[inline(always)]
    pub fn take_all(&self) -> Option<NonNull<Link>> {
        let item = self.item.open();
        // SAFETY: the item lives as long as the stack, and its first word is this CPU's list.
        let attempt = || unsafe { Processor::xchg(item, 0u64) };
        let node = match attempt() {
            (Outcome::Committed, node) => node as usize,
            _ => {
                let take = |(outcome, node)| (outcome, node as usize);
                // SAFETY: the address is that of a stack's item in a lane.
                retry_or_shared(
                    item,
                    || take(attempt()),
                    |address| unsafe { change(address, |first| (first != 0).then_some(0)) },
                )
                .1
            }
        };
        NonNull::new(ptr::with_exposed_provenance_mut(node))
    }

    /// Takes the nodes of all lists, one after the other.
    ///
    /// Nodes that the iterator did not return stay in their lists.
    pub fn drain(&mut self) -> impl Iterator<Item = NonNull<Link>> {
        let mut lists = self.item.in_all_lanes().peekable();
        core::iter::from_fn(move || {
            loop {
                let list = *lists.peek()?;
                // SAFETY: the callers of `push` guarantee that nodes stay readable.
                let next = |first| (first != 0).then(|| unsafe { read_link(first) });
                // SAFETY: `&mut self` is exclusive, and the address is that of the item in a lane.
                let node = unsafe { change(list, next) };
                match NonNull::new(ptr::with_exposed_provenance_mut(node)) {
                    None => lists.next(),
                    node => return node,
                };
            }
        })
    }
}

/// Replaces the first node of a lane that several CPUs share, and returns the old one.
///
/// If `to` returns `None` for the first node, changes nothing and returns 0. Lock-free.
///
/// # Safety
///
/// `address` is that of a stack's item in a lane. In the rseq tiers it is lane 0, or the caller has
/// exclusive access to the stack.
unsafe fn change(address: usize, mut to: impl FnMut(usize) -> Option<usize>) -> usize {
    // SAFETY: the item has 16 bytes, aligned to 16. Sections, whose accesses are not atomic here,
    // do not run on this lane, as the caller guarantees.
    let list = unsafe { &*(address as *const AtomicU128) };
    // Acquire: pairs with the exchange below, so that the link of the first node can be read.
    let mut now = list.load(Acquire);
    loop {
        let first = now as usize;
        let Some(next) = to(first) else { return 0 };
        let number = ((now >> 64) as u64).wrapping_add(1);
        // AcqRel: pairs with this exchange and the load above on other threads. The contents of a
        // node are visible to the thread that takes it.
        match list.compare_exchange(now, u128::from(number) << 64 | next as u128, AcqRel, Acquire) {
            Ok(_) => return first,
            Err(other) => now = other,
        }
    }
}

/// Reads the link of a node that another thread may take and overwrite at the same time.
///
/// If one does, the exchange that follows fails. This is assembly, because to Rust the read would
/// be a data race.
///
/// # Safety
///
/// `node` is readable.
unsafe fn read_link(node: usize) -> usize {
    let next;
    // SAFETY: one aligned load of 8 readable bytes.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        core::arch::asm!("mov {}, [{}]", out(reg) next, in(reg) node,
            options(nostack, readonly, preserves_flags));
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!("ldr {}, [{}]", out(reg) next, in(reg) node,
            options(nostack, readonly, preserves_flags));
    }
    next
}

impl Default for PerCpuStack {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for PerCpuStack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerCpuStack").finish_non_exhaustive()
    }
}
