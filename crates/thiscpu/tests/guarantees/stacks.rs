//! `PerCpuStack`: each node is in one place at a time, and no node is lost.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, OnceLock};

use thiscpu::{Link, PerCpuStack};

use crate::common::{
    Random, Scenario, TIERS, TIERS_AND_SANDBOXES, at_sampled_steps, can_single_step, pin,
    place_one_of_five, scale, scenario, signal, together,
};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(stacks::nodes_are_never_lost, TIERS_AND_SANDBOXES),
    scenario!(stacks::nodes_are_never_lost_under_signals, TIERS),
    scenario!(stacks::pop_has_no_aba_problem, TIERS).needs(can_single_step),
    scenario!(stacks::pop_is_last_in_first_out, TIERS),
];

/// A node, with a flag that says that a thread holds it.
#[repr(C)]
struct Node {
    link: Link,
    held: AtomicBool,
}

/// Makes a leaked node, which stays readable forever, as `push` requires.
fn new_node() -> NonNull<Node> {
    NonNull::from(Box::leak(Box::new(Node { link: Link::new(), held: AtomicBool::new(true) })))
}

/// Marks a node as held; returns false if another thread holds it too.
fn hold(node: NonNull<Link>) -> bool {
    // SAFETY: all pushed links begin a leaked `Node`.
    !unsafe { node.cast::<Node>().as_ref() }.held.swap(true, SeqCst)
}

/// Pushes a node; returns whether it was held.
fn push(stack: &PerCpuStack, node: NonNull<Link>) -> bool {
    // SAFETY: all pushed links begin a leaked `Node`.
    let held = unsafe { node.cast::<Node>().as_ref() }.held.swap(false, SeqCst);
    // SAFETY: the caller has popped or made the node, so it is in no stack; it is leaked.
    unsafe { stack.push(node) };
    held
}

/// Iterates over a list that the caller has taken from a stack.
fn nodes(first: Option<NonNull<Link>>) -> impl Iterator<Item = NonNull<Link>> {
    let mut next = first;
    std::iter::from_fn(move || {
        let mut node = next?;
        // SAFETY: the caller owns the list, and its nodes are leaked.
        next = unsafe { node.as_mut() }.next_node();
        Some(node)
    })
}

/// Pops a node and pushes it again; returns false if it had another holder.
///
/// With `all`, takes and pushes all nodes first.
fn churn(stack: &PerCpuStack, all: bool) -> bool {
    let list = if all { stack.take_all() } else { None };
    let mut is_exclusive = true;
    for node in nodes(list) {
        is_exclusive &= hold(node) && push(stack, node);
    }
    if let Some(node) = stack.pop() {
        is_exclusive &= hold(node) && push(stack, node);
    }
    is_exclusive
}

const NODES: usize = 200;

fn assert_has_all(stack: &mut PerCpuStack) {
    let mut count = 0;
    for node in stack.drain() {
        assert!(hold(node), "a node is in the stack twice");
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
    together(5, |thread| {
        place_one_of_five(thread);
        let mut random = Random::new(thread as u64);
        // Some nodes stay here for a while, so they return in another order or lane.
        let mut hand = Vec::new();
        for _ in 0..scale::rounds(6000) {
            match random.below(8) {
                0 => assert!(churn(&stack, true)),
                1..4 => {
                    let node = stack.pop();
                    assert!(node.is_none_or(hold), "two threads have popped a node");
                    hand.extend(node);
                }
                _ => hand.pop().into_iter().for_each(|node| assert!(push(&stack, node))),
            }
        }
        hand.into_iter().for_each(|node| assert!(push(&stack, node)));
    });
    assert_has_all(&mut stack);
}

static HANDLED: AtomicU64 = AtomicU64::new(0);
static HAS_FAILED: AtomicBool = AtomicBool::new(false);
static STACK: OnceLock<PerCpuStack> = OnceLock::new();

extern "C" fn churn_in_handler(_: i32) {
    if let Some(stack) = STACK.get() {
        HAS_FAILED.fetch_or(!churn(stack, HANDLED.load(SeqCst).is_multiple_of(32)), SeqCst);
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
    assert!(!HAS_FAILED.load(SeqCst), "a node in the handler had another holder");
    let mut count = 0;
    for cpu in 0..pin::cpus().len() {
        // With `mm_cid` a thread may not get another CPU's lane by moving there. So some nodes may
        // be out of reach; the others must be consistent.
        pin::pin(cpu);
        for node in nodes(stack.take_all()) {
            assert!(hold(node), "a node is in the stack twice");
            count += 1;
        }
    }
    assert!(count <= NODES);
}

// During a pop another thread pops two nodes and pushes the first again.
//
// The first node is unchanged then, but its next node is not.
fn pop_has_no_aba_problem() {
    // Where CPUs determine lanes, both threads use the same lane.
    pin::pin(0);
    let stack = &PerCpuStack::new();
    let hand = &Mutex::new(Vec::new());
    let conflict = |_| {
        pin::pin(0);
        if let (Some(first), second) = (stack.pop(), stack.pop()) {
            hand.lock().expect("no panic").extend(second.map(NonNull::addr));
            // SAFETY: the node was popped, so it is in no stack; it is leaked.
            unsafe { stack.push(first) };
        }
    };
    let prepare = || {
        // SAFETY: the nodes are new and leaked.
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
            assert_eq!(
                (all, nodes.len()),
                (3, 3),
                "stopped after {steps}: a node is lost or doubled"
            );
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
