//! Per-CPU stacks of nodes: a popped node is on no stack and has one owner.

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::SeqCst};

use thiscpu::{Link, PerCpuStack};

use super::{Actor, Structure};
use crate::violation::{Checked, equal, holds};

/// Enough that stacks are rarely empty, and few enough that they sometimes are.
const NODES_PER_SLOT: usize = 4;

#[repr(C)]
struct Node {
    /// The first field, so that a node and its link have one address.
    link: Link,
    /// Whether a thread has popped it.
    ///
    /// SeqCst, as for `held`: the check finds two owners of a node on any architecture.
    is_out: AtomicBool,
}

pub(super) struct Stacks {
    // Dropped before the nodes, which must outlive it.
    stack: PerCpuStack,
    nodes: Box<[Node]>,
    /// A node that each worker keeps for a while, so that nodes get to other CPUs.
    held: Box<[AtomicPtr<Node>]>,
}

// SAFETY: only the stack and the thread that has popped a node access the node's link. `is_out`
// checks that there is one such thread. All other fields are atomics.
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
            // SAFETY: the node is on no stack yet, and the field order drops it after the stack.
            unsafe { stacks.stack.push(NonNull::from(&node.link)) };
        }
        stacks
    }

    /// Returns the node of a popped link.
    fn node_of(&self, link: NonNull<Link>) -> Checked<&Node> {
        let offset = link.as_ptr().addr().wrapping_sub(self.nodes.as_ptr().addr());
        let index = offset / size_of::<Node>();
        let is_node = index < self.nodes.len() && offset.is_multiple_of(size_of::<Node>());
        holds("a popped link belongs to a node", is_node)?;
        Ok(&self.nodes[index])
    }

    /// Returns the node of a popped link, marked as out.
    fn mark_out(&self, link: NonNull<Link>) -> Checked<&Node> {
        let node = self.node_of(link)?;
        holds("a node is popped once", !node.is_out.swap(true, SeqCst))?;
        Ok(node)
    }

    /// Pushes a node that the caller has popped.
    fn push(&self, node: &Node) -> Checked {
        holds("a popped node stays out", node.is_out.swap(false, SeqCst))?;
        // SAFETY: the node was marked as out, so it is on no stack, and the caller owns it (unless
        // the stack under test is broken). The field order drops it after the stack.
        unsafe { self.stack.push(NonNull::from(&node.link)) };
        Ok(())
    }

    fn pop(&self) -> Checked<Option<&Node>> {
        self.stack.pop().map(|link| self.mark_out(link)).transpose()
    }

    /// Pops a node and keeps it, and pushes the node kept so far.
    fn exchange(&self, actor: &mut Actor) -> Checked {
        actor.ops += 1;
        let Some(node) = self.pop()? else { return self.push_held(actor) };
        self.swap_held(actor, ptr::from_ref(node).cast_mut())
    }

    fn push_held(&self, actor: &mut Actor) -> Checked {
        self.swap_held(actor, ptr::null_mut())
    }

    fn swap_held(&self, actor: &mut Actor, node: *mut Node) -> Checked {
        let before = self.held[actor.slot].swap(node, SeqCst);
        // SAFETY: null, or a node of `self.nodes`.
        match unsafe { before.as_ref() } {
            Some(before) => {
                actor.ops += 1;
                self.push(before)
            }
            None => Ok(()),
        }
    }

    /// Takes a whole stack and pushes its nodes one by one. Returns their number.
    fn take_all(&self, actor: &mut Actor) -> Checked<usize> {
        let (mut next, mut count) = (self.stack.take_all(), 0);
        while let Some(mut link) = next {
            self.mark_out(link)?;
            // SAFETY: the node lives as long as `self`, and this thread owns its link while the
            // node is out.
            next = unsafe { link.as_mut() }.next_node();
            self.push(self.node_of(link)?)?;
            count += 1;
            // The chain is off the stack, so pushed nodes do not come back to it.
            holds("a chain of nodes ends", count <= self.nodes.len())?;
        }
        actor.ops += 1 + count as u64;
        Ok(count)
    }
}

impl Structure for Stacks {
    fn step(&self, actor: &mut Actor) -> Checked {
        if actor.random.u8(..16) == 0 {
            return self.take_all(actor).map(drop);
        }
        (0..1 << actor.random.u8(..7)).try_for_each(|_| self.exchange(actor))
    }

    fn step_in_handler(&self, actor: &mut Actor) -> Checked {
        self.exchange(actor)
    }

    fn check_in_child(&self, actor: &mut Actor) -> Checked {
        (0..100).try_for_each(|_| self.exchange(actor))?;
        self.take_all(actor).map(drop)
    }

    fn verify(&mut self) -> Checked {
        let held = self.held.iter().filter(|held| !held.load(SeqCst).is_null()).count();
        let links: Vec<NonNull<Link>> = self.stack.drain().take(self.nodes.len() + 1).collect();
        for &link in &links {
            self.mark_out(link)?;
        }
        equal(
            "nodes on stacks and held by workers",
            self.nodes.len() as i64,
            (links.len() + held) as i64,
        )
    }
}
