//! Per-CPU stacks.

use std::cell::Cell;
use std::ptr::NonNull;

use thiscpu::{Link, PerCpuStack};

use crate::lane::{LaneOracle, current, on_lane};
use crate::ops;
use crate::run_case::Case;
use crate::subject::{Mismatch, Subject, WITHOUT_GATE, expect};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(["PerCpuStack", "push"], WITHOUT_GATE, || Stack::new(Op::Push)),
        Case::new(["PerCpuStack", "pop"], WITHOUT_GATE, || Stack::new(Op::Pop)),
        Case::new(["PerCpuStack", "take_all"], WITHOUT_GATE, || Stack::new(Op::TakeAll)),
    ]
}

#[derive(Clone, Copy)]
enum Op {
    Push,
    Pop,
    TakeAll,
}

/// A node. Its link is its first field, so both have one address.
#[repr(C)]
struct Node {
    link: Link,
    number: usize,
}

/// Per-CPU stacks, and the nodes that they may hold.
struct Stack {
    stack: PerCpuStack,
    /// Each is leaked until this is dropped.
    nodes: [NonNull<Node>; Stack::NODES],
    /// The node that the next conflicting push takes.
    next: Cell<usize>,
    oracle: LaneOracle<Vec<usize>>,
    op: Op,
}

fn number(node: NonNull<Link>) -> usize {
    // SAFETY: only nodes are pushed, and they live as long as `Stack`. Their numbers never change.
    unsafe { (*node.cast::<Node>().as_ptr()).number }
}

impl Stack {
    const NODES: usize = 16;
    /// The node that the operation pushes.
    const OWN: usize = 0;

    fn new(op: Op) -> Stack {
        let node = |number| NonNull::from(Box::leak(Box::new(Node { link: Link::new(), number })));
        let stack = Stack {
            stack: PerCpuStack::new(),
            nodes: std::array::from_fn(node),
            next: Cell::new(Stack::OWN + 1),
            oracle: LaneOracle::new(),
            op,
        };
        stack.oracle.at(current(), |list| (0..3).for_each(|_| stack.push_new(list)));
        stack
    }

    fn push(&self, number: usize) {
        // SAFETY: the node is on no stack, because its number was popped or is new. It lives as
        // long as `Stack`.
        unsafe { ops::push(&self.stack, self.nodes[number].cast()) }
    }

    fn push_new(&self, list: &mut Vec<usize>) {
        let number = self.next.replace(self.next.get() + 1);
        self.push(number);
        list.insert(0, number);
    }

    fn pop(&self) -> Option<usize> {
        ops::pop(&self.stack).map(number)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        for node in self.nodes {
            // SAFETY: `new` leaked the box, and no stack uses the node after the drop of `Stack`
            // began.
            drop(unsafe { Box::from_raw(node.as_ptr()) });
        }
    }
}

impl Subject for Stack {
    /// The numbers of the popped nodes.
    type Answer = Vec<usize>;

    fn op(&self) -> Vec<usize> {
        let mut next = match self.op {
            Op::Push => {
                self.push(Stack::OWN);
                None
            }
            Op::Pop => return self.pop().into_iter().collect(),
            Op::TakeAll => ops::take_all(&self.stack),
        };
        let mut taken = Vec::new();
        while let Some(mut node) = next {
            taken.push(number(node));
            // SAFETY: the node was popped, so this thread owns it; it lives as long as `Stack`.
            next = unsafe { node.as_mut() }.next_node();
        }
        taken
    }

    fn apply(&self, lane: usize, _: bool) -> Vec<usize> {
        self.oracle.at(lane, |list| match self.op {
            Op::Push => {
                list.insert(0, Stack::OWN);
                Vec::new()
            }
            Op::Pop => list.drain(..list.len().min(1)).collect(),
            Op::TakeAll => std::mem::take(list),
        })
    }

    /// Pops two nodes and pushes the first one again; pushes two new nodes to a short stack.
    ///
    /// A `pop` must notice it, although the first node is the one that it has loaded.
    fn conflict_here(&self) -> Result<(), Mismatch> {
        let work = |list: &mut Vec<usize>| {
            if list.len() < 2 {
                self.push_new(list);
                self.push_new(list);
                return Ok(());
            }
            let first = list[0];
            let taken = [self.pop(), self.pop()];
            self.push(first);
            let expected = [Some(first), Some(list.remove(1))];
            expect("the conflicting pops", &taken, &expected)
        };
        on_lane(|lane| self.oracle.at(lane, work))
    }

    fn check(&mut self) -> Result<(), Mismatch> {
        let found: Vec<_> = self.stack.drain().map(number).collect();
        expect("the nodes of all stacks", &found, &self.oracle.lanes().concat())
    }
}
