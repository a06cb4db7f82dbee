//! Per-CPU lists of nodes: a node that was taken out is in no list and nobody else's.

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::SeqCst};

use thiscpu::{Link, PerCpuStack};

use super::{Actor, Structure};
use crate::wrong::{Checked, equal, holds};

/// Enough that lists are seldom empty, few enough that they sometimes are.
const NODES_PER_SLOT: usize = 4;

#[repr(C)]
struct Node {
    /// First, so that a node's address is its link's.
    link: Link,
    /// Whether somebody has taken it out. SeqCst, as `held` below: what is looked for is two who
    /// think a node theirs, on any architecture.
    is_out: AtomicBool,
}

pub(super) struct Stacks {
    // Before the nodes, which must outlive it.
    stack: PerCpuStack,
    nodes: Box<[Node]>,
    /// A node that each worker keeps for a while, so that nodes come to other CPUs.
    held: Box<[AtomicPtr<Node>]>,
}

// SAFETY: a node's link is only touched by the stack and by whoever has taken the node out, who is
// one (which is what is checked here); the rest are atomics.
unsafe impl Sync for Stacks {}

impl Stacks {
    pub(super) fn new(slots: usize) -> Self {
        let node = |_| Node { link: Link::new(), is_out: AtomicBool::new(false) };
        let stacks = Stacks {
            stack: PerCpuStack::new(),
            nodes: (0..slots * NODES_PER_SLOT).map(node).collect(),
            held: (0..slots).map(|_| AtomicPtr::new(ptr::null_mut())).collect(),
        };
        for node in &stacks.nodes {
            // SAFETY: the node is in no list yet, and it lives as long as the stack.
            unsafe { stacks.stack.push(NonNull::from(&node.link)) };
        }
        stacks
    }

    /// The node of a link that came out of a list.
    fn node_of(&self, link: NonNull<Link>) -> Checked<&Node> {
        let offset = link.as_ptr().addr().wrapping_sub(self.nodes.as_ptr().addr());
        let index = offset / size_of::<Node>();
        let is_node = index < self.nodes.len() && offset.is_multiple_of(size_of::<Node>());
        holds("what comes out of a list is a node", is_node)?;
        Ok(&self.nodes[index])
    }

    /// The same, marked as taken out.
    fn take_out(&self, link: NonNull<Link>) -> Checked<&Node> {
        let node = self.node_of(link)?;
        holds("a node comes out of one list", !node.is_out.swap(true, SeqCst))?;
        Ok(node)
    }

    /// Puts a node back that the caller has taken out.
    fn put_in(&self, node: &Node) -> Checked {
        holds("a node that was taken out stays out", node.is_out.swap(false, SeqCst))?;
        // SAFETY: the node was marked as out, so it is in no list and the caller's, unless what
        // is tested is broken; it lives as long as the stack.
        unsafe { self.stack.push(NonNull::from(&node.link)) };
        Ok(())
    }

    fn pop(&self) -> Checked<Option<&Node>> {
        self.stack.pop().map(|link| self.take_out(link)).transpose()
    }

    /// Keeps the node that comes out, puts back the one kept so far.
    fn exchange(&self, actor: &mut Actor) -> Checked {
        actor.ops += 1;
        let Some(node) = self.pop()? else { return self.put_back(actor) };
        self.swap_held(actor, ptr::from_ref(node).cast_mut())
    }

    fn put_back(&self, actor: &mut Actor) -> Checked {
        self.swap_held(actor, ptr::null_mut())
    }

    fn swap_held(&self, actor: &mut Actor, node: *mut Node) -> Checked {
        let before = self.held[actor.slot].swap(node, SeqCst);
        // SAFETY: null, or a node of this structure.
        match unsafe { before.as_ref() } {
            Some(before) => {
                actor.ops += 1;
                self.put_in(before)
            }
            None => Ok(()),
        }
    }

    /// Takes a whole list, and puts its nodes back one by one. How many they were.
    fn turn_over(&self, actor: &mut Actor) -> Checked<usize> {
        let (mut next, mut count) = (self.stack.take_all(), 0);
        while let Some(mut link) = next {
            self.take_out(link)?;
            // SAFETY: the node is a live one, and nobody else uses its link while it is out.
            next = unsafe { link.as_mut() }.next_node();
            self.put_in(self.node_of(link)?)?;
            count += 1;
            // Another's list is turned over if the thread moves, never the same nodes twice.
            holds("a list ends", count <= self.nodes.len())?;
        }
        actor.ops += 1 + count as u64;
        Ok(count)
    }
}

impl Structure for Stacks {
    fn name(&self) -> &'static str {
        "stacks"
    }

    fn turn(&self, actor: &mut Actor) -> Checked {
        if actor.random.u8(..16) == 0 {
            return self.turn_over(actor).map(drop);
        }
        (0..1 << actor.random.u8(..7)).try_for_each(|_| self.exchange(actor))
    }

    fn interrupt(&self, actor: &mut Actor) -> Checked {
        self.exchange(actor)
    }

    fn child(&self, actor: &mut Actor) -> Checked {
        (0..100).try_for_each(|_| self.exchange(actor))?;
        self.turn_over(actor).map(drop)
    }

    fn account(&mut self) -> Checked {
        let held = self.held.iter().filter(|held| !held.load(SeqCst).is_null()).count();
        let links: Vec<NonNull<Link>> = self.stack.drain().take(self.nodes.len() + 1).collect();
        for &link in &links {
            self.take_out(link)?;
        }
        equal("nodes in lists and in hands", self.nodes.len() as i64, (links.len() + held) as i64)
    }
}
