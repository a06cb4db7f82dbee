//! `PerCpuStack`: each node is in one place at a time, and none is lost.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, OnceLock};

use thiscpu::{Link, PerCpuStack};

use crate::common::random::Random;
use crate::common::single_step::{at_sampled_steps, can_single_step};
use crate::common::threads::together;
use crate::common::{Scenario, TIERS, TIERS_AND_SANDBOXES, pin, scale, scenario, signal};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(stacks::nodes_are_never_lost, TIERS_AND_SANDBOXES),
    scenario!(stacks::nodes_are_never_lost_under_signals, TIERS),
    scenario!(stacks::pop_has_no_aba_problem, TIERS).needs(can_single_step),
    scenario!(stacks::pop_is_last_in_first_out, TIERS),
];

/// A node, and whether somebody holds it who took it out of the stack.
#[repr(C)]
struct Node {
    link: Link,
    held: AtomicBool,
}

/// Nodes stay readable for ever, as `push` asks for.
fn new_node() -> NonNull<Node> {
    NonNull::from(Box::leak(Box::new(Node { link: Link::new(), held: AtomicBool::new(true) })))
}

/// Notes that the caller holds a node; false if somebody else does too.
fn hold(node: NonNull<Link>) -> bool {
    // SAFETY: only leaked nodes are pushed, and a node begins with its link.
    !unsafe { node.cast::<Node>().as_ref() }.held.swap(true, SeqCst)
}

fn push(stack: &PerCpuStack, node: NonNull<Link>) -> bool {
    // SAFETY: as in `hold`.
    let held = unsafe { node.cast::<Node>().as_ref() }.held.swap(false, SeqCst);
    // SAFETY: the caller took the node out, or made it; it is leaked.
    unsafe { stack.push(node) };
    held
}

/// The nodes of a list that the caller took out.
fn nodes(first: Option<NonNull<Link>>) -> impl Iterator<Item = NonNull<Link>> {
    let mut next = first;
    std::iter::from_fn(move || {
        let mut node = next?;
        // SAFETY: the list is the caller's alone, and its nodes are leaked.
        next = unsafe { node.as_mut() }.next_node();
        Some(node)
    })
}

/// Takes one node or all, and puts them back. Whether each was held by nobody else.
fn churn(stack: &PerCpuStack, all: bool) -> bool {
    let list = if all { stack.take_all() } else { None };
    let mut right = true;
    for node in nodes(list) {
        right &= hold(node) && push(stack, node);
    }
    if let Some(node) = stack.pop() {
        right &= hold(node) && push(stack, node);
    }
    right
}

const NODES: usize = 200;

fn assert_all_there(stack: &mut PerCpuStack) {
    let mut count = 0;
    for node in stack.drain() {
        assert!(hold(node), "twice in the stack");
        count += 1;
    }
    assert_eq!(count, NODES);
}

fn fill(stack: &PerCpuStack) {
    for _ in 0..NODES {
        assert!(push(stack, new_node().cast()));
    }
}

fn nodes_are_never_lost() {
    let mut stack = PerCpuStack::new();
    fill(&stack);
    together(
        5,
        |thread| {
            match thread {
                0 | 1 => pin::pin(thread),
                4 => thiscpu::__test_support::leave_lanes(),
                _ => {}
            }
            let mut random = Random::new(thread as u64);
            // A few nodes in hand, so that they come back in another order and elsewhere.
            let mut hand = Vec::new();
            for _ in 0..scale::rounds(6000) {
                match random.below(8) {
                    0 => assert!(churn(&stack, true)),
                    1..4 => {
                        let node = stack.pop();
                        assert!(node.is_none_or(hold), "popped by two");
                        hand.extend(node);
                    }
                    _ => hand.pop().into_iter().for_each(|node| assert!(push(&stack, node))),
                }
            }
            hand.into_iter().for_each(|node| assert!(push(&stack, node)));
        },
        || {},
    );
    assert_all_there(&mut stack);
}

static HANDLED: AtomicU64 = AtomicU64::new(0);
static WRONG: AtomicBool = AtomicBool::new(false);
static STACK: OnceLock<PerCpuStack> = OnceLock::new();

extern "C" fn churn_in_handler(_: i32) {
    if let Some(stack) = STACK.get() {
        WRONG.fetch_or(!churn(stack, HANDLED.load(SeqCst).is_multiple_of(32)), SeqCst);
    }
    HANDLED.fetch_add(1, SeqCst);
}

fn nodes_are_never_lost_under_signals() {
    let stack = STACK.get_or_init(PerCpuStack::new);
    fill(stack);
    signal::handle(libc::SIGUSR1, churn_in_handler);
    signal::storm(libc::SIGUSR1, &HANDLED, 1500, || {
        (0..50).for_each(|_| assert!(churn(stack, false)));
        assert!(churn(stack, true));
    });
    assert!(!WRONG.load(SeqCst), "wrong in the handler");
    let mut count = 0;
    for cpu in 0..pin::cpus().len() {
        // With `mm_cid` the lanes of other CPUs are not to be had by going there, so what was
        // pushed elsewhere may be out of reach; what is in reach must be right.
        pin::pin(cpu);
        for node in nodes(stack.take_all()) {
            assert!(hold(node), "twice in the stack");
            count += 1;
        }
    }
    assert!(count <= NODES);
}

/// A pop is stopped while another thread takes two nodes and puts the first back: the first node is
/// then the same again, and what it led to is not.
fn pop_has_no_aba_problem() {
    // Both on one lane, where lanes are chosen by CPUs.
    pin::pin(0);
    let stack = &PerCpuStack::new();
    let hand = &Mutex::new(Vec::new());
    let conflict = |_| {
        pin::pin(0);
        if let (Some(first), second) = (stack.pop(), stack.pop()) {
            hand.lock().expect("no panic").extend(second.map(NonNull::addr));
            // SAFETY: the node was taken out, and is leaked.
            unsafe { stack.push(first) };
        }
    };
    let prepare = || {
        // SAFETY: the nodes are new, and leaked.
        (0..3).for_each(|_| unsafe { stack.push(new_node().cast()) });
    };
    at_sampled_steps(
        prepare,
        || stack.pop(),
        conflict,
        |steps, _, popped| {
            let mut nodes = std::mem::take(&mut *hand.lock().expect("no panic"));
            let rest = std::iter::from_fn(|| stack.pop());
            nodes.extend(popped.into_iter().chain(rest).map(NonNull::addr));
            let all = nodes.len();
            nodes.sort();
            nodes.dedup();
            assert_eq!((all, nodes.len()), (3, 3), "stopped after {steps}: a node lost or twice");
        },
    );
}

fn pop_is_last_in_first_out() {
    pin::pin(0);
    let mut stack = PerCpuStack::new();
    assert_eq!(stack.pop(), None);
    assert_eq!(stack.take_all(), None);
    let list = [(); 3].map(|()| new_node().cast::<Link>());
    list.iter().for_each(|&node| assert!(push(&stack, node)));
    assert_eq!(stack.pop(), Some(list[2]));
    assert!(nodes(stack.take_all()).eq([list[1], list[0]]));
    assert_eq!(stack.pop(), None);
    assert!(hold(list[0]) && hold(list[1]) && hold(list[2]));
    list.iter().for_each(|&node| assert!(push(&stack, node)));
    assert_eq!(stack.drain().count(), 3);
}
