//! Lists.

use std::cell::Cell;
use std::ptr::NonNull;

use thiscpu::{Link, PerCpuStack};

use crate::drive::Case;
use crate::lane::{Books, here, on_lane};
use crate::ops;
use crate::subject::{Conflict, Subject, WITHOUT_GATE, Wrong, expect};

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::of::<Stack<Push>>("PerCpuStack", "push"),
        Case::of::<Stack<Pop>>("PerCpuStack", "pop"),
        Case::of::<Stack<TakeAll>>("PerCpuStack", "take_all"),
    ]
}

/// One of the ops on a list.
trait Op {
    /// Runs it; the numbers of the nodes that come out.
    fn run(lists: &Lists) -> Vec<usize>;

    /// Does the same to the books.
    fn model(list: &mut Vec<usize>, lists: &Lists) -> Vec<usize>;
}

enum Push {}
enum Pop {}
enum TakeAll {}

impl Op for Push {
    fn run(lists: &Lists) -> Vec<usize> {
        lists.push(Lists::OWN);
        Vec::new()
    }

    fn model(list: &mut Vec<usize>, _: &Lists) -> Vec<usize> {
        list.insert(0, Lists::OWN);
        Vec::new()
    }
}

impl Op for Pop {
    fn run(lists: &Lists) -> Vec<usize> {
        ops::pop(&lists.stack).into_iter().map(number).collect()
    }

    fn model(list: &mut Vec<usize>, _: &Lists) -> Vec<usize> {
        list.drain(..list.len().min(1)).collect()
    }
}

impl Op for TakeAll {
    fn run(lists: &Lists) -> Vec<usize> {
        let mut next = ops::take_all(&lists.stack);
        let mut taken = Vec::new();
        while let Some(mut node) = next {
            taken.push(number(node));
            // SAFETY: the node was taken, so it is this thread's; it lives as long as the lists.
            next = unsafe { node.as_mut() }.next_node();
        }
        taken
    }

    fn model(list: &mut Vec<usize>, _: &Lists) -> Vec<usize> {
        std::mem::take(list)
    }
}

/// A node. Its link comes first, so that its address is the link's.
#[repr(C)]
struct Node {
    link: Link,
    number: usize,
}

/// Lists, and the nodes that they may hold.
struct Lists {
    stack: PerCpuStack,
    /// Each leaked until the lists are dropped.
    nodes: [NonNull<Node>; Lists::NODES],
    /// The node that the next conflicting push takes.
    next: Cell<usize>,
}

fn number(node: NonNull<Link>) -> usize {
    // SAFETY: only nodes are pushed, and they live as long as the lists; their numbers never change.
    unsafe { (*node.cast::<Node>().as_ptr()).number }
}

impl Lists {
    const NODES: usize = 16;
    /// The node that the op itself pushes.
    const OWN: usize = 0;

    fn new() -> Lists {
        let node = |number| NonNull::from(Box::leak(Box::new(Node { link: Link::new(), number })));
        Lists {
            stack: PerCpuStack::new(),
            nodes: std::array::from_fn(node),
            next: Cell::new(Lists::OWN + 1),
        }
    }

    fn push(&self, number: usize) {
        // SAFETY: the node is in no list, for its number is out or new; it lives as long as the lists.
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

impl Drop for Lists {
    fn drop(&mut self) {
        for node in self.nodes {
            // SAFETY: the nodes were boxed; nobody uses the lists any more.
            drop(unsafe { Box::from_raw(node.as_ptr()) });
        }
    }
}

struct Stack<O: Op> {
    lists: Lists,
    books: Books<Vec<usize>>,
    op: std::marker::PhantomData<O>,
}

impl<O: Op> Subject for Stack<O> {
    type Answer = Vec<usize>;

    const CONFLICTS: &'static [Conflict] = WITHOUT_GATE;

    fn new() -> Self {
        let (lists, books) = (Lists::new(), Books::new());
        books.at(here(), |list| (0..3).for_each(|_| lists.push_new(list)));
        Stack { lists, books, op: std::marker::PhantomData }
    }

    fn op(&self) -> Vec<usize> {
        O::run(&self.lists)
    }

    fn book(&self, lane: usize, _: bool) -> Vec<usize> {
        self.books.at(lane, |list| O::model(list, &self.lists))
    }

    /// Takes two nodes and puts the first back: what a `pop` must notice though the first node is the
    /// one it saw. A short list gets two new ones.
    fn meddle(&self) -> Result<(), Wrong> {
        let work = |list: &mut Vec<usize>| {
            if list.len() < 2 {
                self.lists.push_new(list);
                self.lists.push_new(list);
                return Ok(());
            }
            let first = list[0];
            let taken = [self.lists.pop(), self.lists.pop()];
            self.lists.push(first);
            let expected = [Some(first), Some(list.remove(1))];
            expect("the conflicting pops", &taken, &expected)
        };
        on_lane(|lane| self.books.at(lane, work))
    }

    fn check(&mut self) -> Result<(), Wrong> {
        let there: Vec<_> = self.lists.stack.drain().map(number).collect();
        expect("the lists, one after the other", &there, &self.books.lanes().concat())
    }
}
