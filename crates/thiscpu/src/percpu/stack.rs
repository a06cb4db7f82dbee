//! A list of which each CPU has its own.

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

/// The link of a node: its first field, for lists that nodes are threaded on by themselves.
#[derive(Debug)]
#[repr(transparent)]
pub struct Link(UnsafeCell<*mut Link>);

impl Link {
    /// A link of a node that is in no list.
    pub const fn new() -> Self {
        Link(UnsafeCell::new(ptr::null_mut()))
    }

    /// The next node of a list that the caller has taken.
    pub fn next_node(&mut self) -> Option<NonNull<Link>> {
        NonNull::new(*self.0.get_mut())
    }
}

impl Default for Link {
    fn default() -> Self {
        Link::new()
    }
}

/// A list of which each CPU has its own, last in first out: nodes that are not needed right now, kept
/// near the CPU that used them.
///
/// `push`, `pop` and `take_all` work on the list of the CPU that the thread is on, each in one
/// section. **Other CPUs' lists are out of reach**: a `pop` that finds nothing says nothing about
/// them. A thread without a lane uses one more list, the slow lane's. Each takes one to two nanoseconds, and is
/// wait-free in the rseq tiers, lock-free in the atomic tier; all may be called from signal handlers and after
/// `fork`. Per-CPU lists are rseq's first example (Turner and Hunter); what the atomic tier does is
/// Treiber's stack with a number beside the head.
///
/// Dropping the stack forgets the nodes that are still in it; use [`drain`](PerCpuStack::drain).
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
/// // SAFETY: the node is leaked, so it stays valid; nobody else uses it.
/// unsafe { free.push(NonNull::from(node).cast()) };
/// for node in free.drain() {
///     // SAFETY: only such nodes are pushed, and this one is out of every list.
///     let node = unsafe { Box::from_raw(node.cast::<Node>().as_ptr()) };
///     assert_eq!(node.value, 7);
/// }
/// ```
pub struct PerCpuStack {
    item: Item,
}

/// In a lane: the first node, and (where the lane is shared by atomics) a number that changes with
/// each change, so that a `pop` notices if the node it looked at was gone and came back.
const SIZE: usize = 16;

impl PerCpuStack {
    /// A list that is empty on every CPU. May wait for another thread that allocates.
    ///
    /// # Panics
    ///
    /// If there is no address space, or `THISCPU_TIER` is wrong.
    pub fn new() -> Self {
        expect(Self::try_new())
    }

    /// As [`new`](Self::new), but returns what is wrong.
    ///
    /// # Errors
    ///
    /// [`Error::NoAddressSpace`], and what [`tier`](crate::tier()) returns.
    pub fn try_new() -> Result<Self, Error> {
        Ok(PerCpuStack { item: Item::try_new(SIZE, SIZE)? })
    }

    /// Puts `node` in front of this CPU's list.
    ///
    /// # Safety
    ///
    /// `node` points to a [`Link`] that is in no list and that nobody else uses until it is taken
    /// out again. Its memory stays readable as long as the stack lives, even after it was taken
    /// out: where there are no sections, another thread's `pop` may still look at its link (and
    /// discard what it saw). Memory that is reused is fine, memory that is unmapped is not.
    #[inline(always)]
    pub unsafe fn push(&self, node: NonNull<Link>) {
        let (item, node) = (self.item.open(), node.as_ptr().expose_provenance());
        // SAFETY: the item is this stack's; the node is the caller's alone.
        let attempt = || (unsafe { Processor::push(item, node) }, ());
        if attempt().0 != Outcome::Committed {
            retry_or_shared(item, attempt, |address| {
                let link = |first| {
                    // SAFETY: the node is the caller's alone, and begins with its link.
                    unsafe { (*(node as *const AtomicUsize)).store(first, Relaxed) };
                    Some(node)
                };
                // SAFETY: the address is that of the item in a lane.
                unsafe { change(address, link) };
            });
        }
    }

    /// Takes the first node off this CPU's list.
    #[inline(always)]
    pub fn pop(&self) -> Option<NonNull<Link>> {
        let item = self.item.open();
        // SAFETY: the item is this stack's; its nodes are readable.
        let attempt = || unsafe { Processor::pop(item) };
        let node = match attempt() {
            (Outcome::Committed, node) => node,
            (Outcome::Mismatch, _) => 0,
            _ => {
                // SAFETY: `push` was promised that nodes stay readable.
                let next = |first| (first != 0).then(|| unsafe { read_link(first) });
                // SAFETY: the address is that of the item in a lane.
                retry_or_shared(item, attempt, |address| unsafe { change(address, next) }).1
            }
        };
        NonNull::new(ptr::with_exposed_provenance_mut(node))
    }

    /// Takes this CPU's whole list and returns its first node; [`Link::next_node`] leads on.
    #[inline(always)]
    pub fn take_all(&self) -> Option<NonNull<Link>> {
        let item = self.item.open();
        // SAFETY: the item's first word is this CPU's list.
        let attempt = || unsafe { Processor::xchg(item, 0u64) };
        let node = match attempt() {
            (Outcome::Committed, node) => node as usize,
            _ => {
                let take = |(outcome, node)| (outcome, node as usize);
                // SAFETY: the address is that of the item in a lane.
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

    /// Takes the nodes of all lists, one after the other; those that are not asked for stay.
    pub fn drain(&mut self) -> impl Iterator<Item = NonNull<Link>> {
        let mut lists = self.item.in_all_lanes().peekable();
        core::iter::from_fn(move || {
            loop {
                let list = *lists.peek()?;
                // SAFETY: `push` was promised that nodes stay readable.
                let next = |first| (first != 0).then(|| unsafe { read_link(first) });
                // SAFETY: nobody else uses the stack; the address is that of the item in a lane.
                let node = unsafe { change(list, next) };
                match NonNull::new(ptr::with_exposed_provenance_mut(node)) {
                    None => lists.next(),
                    node => return node,
                };
            }
        })
    }
}

/// Changes the first node of a lane that is not one CPU's alone, unless `to` returns `None`. What
/// it was; 0 if nothing changed. Lock-free.
///
/// # Safety
///
/// `address` is that of a stack's item in a lane.
unsafe fn change(address: usize, mut to: impl FnMut(usize) -> Option<usize>) -> usize {
    // SAFETY: the item is 16 bytes, aligned to 16. In the rseq tiers only lane 0 is changed by
    // this, or the caller has the stack to itself.
    let list = unsafe { &*(address as *const AtomicU128) };
    let mut now = list.load(Acquire);
    loop {
        let first = now as usize;
        let Some(next) = to(first) else { return 0 };
        let number = ((now >> 64) as u64).wrapping_add(1);
        // AcqRel: a node's contents come with it from the pusher to the popper.
        match list.compare_exchange(now, u128::from(number) << 64 | next as u128, AcqRel, Acquire) {
            Ok(_) => return first,
            Err(other) => now = other,
        }
    }
}

/// Reads the link of a node that another thread may take and write at the same time; the exchange
/// that follows then fails. Assembly, because to Rust such a read would be a data race.
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
