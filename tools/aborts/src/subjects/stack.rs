//! Per-CPU stacks.

use std::cell::Cell;
use std::ptr::NonNull;

use thiscpu::{Link, PerCpuStack};

use crate::lane::{LaneOracle, current, on_lane};
use crate::ops;
use crate::run_case::Case;
use crate::subject::{Conflict, Mismatch, Subject, WITHOUT_GATE, expect};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::of::<Stack<Push>>("PerCpuStack", "push"),
        Case::of::<Stack<Pop>>("PerCpuStack", "pop"),
        Case::of::<Stack<TakeAll>>("PerCpuStack", "take_all"),
    ]
}

/// An operation on a stack.
trait Op {
    /// Runs it and returns the numbers of the popped nodes.
    fn run(stacks: &Stacks) -> Vec<usize>;

    /// Applies it to the oracle's list of numbers.
    fn model(list: &mut Vec<usize>, stacks: &Stacks) -> Vec<usize>;
}

enum Push {}
enum Pop {}
enum TakeAll {}

impl Op for Push {
    fn run(stacks: &Stacks) -> Vec<usize> {
        stacks.push(Stacks::OWN);
        Vec::new()
    }

    fn model(list: &mut Vec<usize>, _: &Stacks) -> Vec<usize> {
        list.insert(0, Stacks::OWN);
        Vec::new()
    }
}

impl Op for Pop {
    fn run(stacks: &Stacks) -> Vec<usize> {
        ops::pop(&stacks.stack).into_iter().map(number).collect()
    }

    fn model(list: &mut Vec<usize>, _: &Stacks) -> Vec<usize> {
        list.drain(..list.len().min(1)).collect()
    }
}

impl Op for TakeAll {
    fn run(stacks: &Stacks) -> Vec<usize> {
        let mut next = ops::take_all(&stacks.stack);
        let mut taken = Vec::new();
        while let Some(mut node) = next {
            taken.push(number(node));
            // SAFETY: the node was popped, so this thread owns it; it lives as long as `Stacks`.
            next = unsafe { node.as_mut() }.next_node();
        }
        taken
    }

    fn model(list: &mut Vec<usize>, _: &Stacks) -> Vec<usize> {
        std::mem::take(list)
    }
}

/// A node. Its link is its first field, so both have one address.
#[repr(C)]
struct Node {
    link: Link,
    number: usize,
}

/// Per-CPU stacks, and the nodes that they may hold.
struct Stacks {
    stack: PerCpuStack,
    /// Each is leaked until `Stacks` is dropped.
    nodes: [NonNull<Node>; Stacks::NODES],
    /// The node that the next conflicting push takes.
    next: Cell<usize>,
}

fn number(node: NonNull<Link>) -> usize {
    // SAFETY: only nodes are pushed, and they live as long as `Stacks`. Their numbers never change.
    unsafe { (*node.cast::<Node>().as_ptr()).number }
}

impl Stacks {
    const NODES: usize = 16;
    /// The node that the operation pushes.
    const OWN: usize = 0;

    fn new() -> Stacks {
        let node = |number| NonNull::from(Box::leak(Box::new(Node { link: Link::new(), number })));
        Stacks {
            stack: PerCpuStack::new(),
            nodes: std::array::from_fn(node),
            next: Cell::new(Stacks::OWN + 1),
        }
    }

    fn push(&self, number: usize) {
        // SAFETY: the node is on no stack, because its number was popped or is new. It lives as
        // long as `Stacks`.
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

impl Drop for Stacks {
    fn drop(&mut self) {
        for node in self.nodes {
            // SAFETY: `new` leaked the box, and no stack uses the node after the drop of `Stacks`
            // began.
            drop(unsafe { Box::from_raw(node.as_ptr()) });
        }
    }
}

struct Stack<O: Op> {
    stacks: Stacks,
    oracle: LaneOracle<Vec<usize>>,
    op: std::marker::PhantomData<O>,
}

impl<O: Op> Subject for Stack<O> {
    type Answer = Vec<usize>;

    const CONFLICTS: &'static [Conflict] = WITHOUT_GATE;

    fn new() -> Self {
        let (stacks, oracle) = (Stacks::new(), LaneOracle::new());
        oracle.at(current(), |list| (0..3).for_each(|_| stacks.push_new(list)));
        Stack { stacks, oracle, op: std::marker::PhantomData }
    }

    fn op(&self) -> Vec<usize> {
        O::run(&self.stacks)
    }

    fn apply(&self, lane: usize, _: bool) -> Vec<usize> {
        self.oracle.at(lane, |list| O::model(list, &self.stacks))
    }

    /// Pops two nodes and pushes the first one again; pushes two new nodes to a short stack.
    ///
    /// A `pop` must notice it, although the first node is the one that it has loaded.
    fn conflict_here(&self) -> Result<(), Mismatch> {
        let work = |list: &mut Vec<usize>| {
            if list.len() < 2 {
                self.stacks.push_new(list);
                self.stacks.push_new(list);
                return Ok(());
            }
            let first = list[0];
            let taken = [self.stacks.pop(), self.stacks.pop()];
            self.stacks.push(first);
            let expected = [Some(first), Some(list.remove(1))];
            expect("the conflicting pops", &taken, &expected)
        };
        on_lane(|lane| self.oracle.at(lane, work))
    }

    fn check(&mut self) -> Result<(), Mismatch> {
        let found: Vec<_> = self.stacks.stack.drain().map(number).collect();
        expect("the nodes of all stacks", &found, &self.oracle.lanes().concat())
    }
}
