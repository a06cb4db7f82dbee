//! Per-CPU stacks.

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};

use thiscpu::{Link, PerCpuStack};

use crate::ffi::{OutParam, catch, create, deref, destroy};
use crate::status::Status;

/// A stack (last in, first out) of nodes per CPU. Rust: `PerCpuStack`.
///
/// A stack keeps nodes that are not needed right now near the CPU that used them. Push, pop and
/// take-all work on this CPU's stack, in one restartable sequence. Other CPUs' nodes are out of
/// reach: if this CPU's stack is empty, other CPUs may have nodes.
///
/// A node is a structure of the program whose first member is a `thiscpu_link`.
///
/// - Threads: any number may call `_push`, `_pop` and `_take_all` at once. No other thread may use
///   the stack during `_drain` and `_destroy`.
/// - Lifetime: from `thiscpu_stack_create` to `thiscpu_stack_destroy`.
/// - Signal handlers: `_push`, `_pop` and `_take_all` only.
/// - After `fork`: the child has stacks of its own, with copies of the parent's nodes.
/// - Memory order: what a thread did before it pushed a node happens before the return of the call
///   that takes the node out.
pub struct ThiscpuStack(PerCpuStack);

/// The first member of each node.
#[repr(C)]
#[derive(Debug)]
pub struct ThiscpuLink {
    /// The next node among those from `thiscpu_stack_take_all`; NULL in the last one.
    pub next: *mut ThiscpuLink,
}

const _: () = assert!(size_of::<ThiscpuLink>() == size_of::<Link>());

/// Creates a stack that is empty on every CPU, and stores its handle in `*stack`.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `NO_ADDRESS_SPACE`, `NO_MEMORY`, `UNKNOWN_TIER`,
///   `TIER_UNAVAILABLE`.
/// - Blocks: while another thread allocates or frees per-CPU memory.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_stack_create(stack: *mut *mut ThiscpuStack) -> Status {
    // SAFETY: the header requires that `stack` is null or valid for writes.
    unsafe { create(stack, || Ok(ThiscpuStack(PerCpuStack::try_new()?))) }
}

/// Destroys a stack and forgets its nodes; to get them, call `thiscpu_stack_drain` first.
///
/// No thread may use the handle during or after this call.
///
/// - NULL: allowed; does nothing.
/// - Returns: `OK`.
/// - Blocks: while another thread allocates or frees per-CPU memory.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_stack_destroy(stack: *mut ThiscpuStack) -> Status {
    // SAFETY: the header requires that the handle is null or live, and that no thread uses it any
    // more.
    unsafe { destroy(stack) }
}

/// Pushes a node onto this CPU's stack.
///
/// The node must not be in any stack. Its memory must stay readable until `_drain` or `_destroy`
/// begins, even after the node was popped: another thread's `_pop` may still read its link, and
/// discard the result. A popped node may be reused, but not passed to `free`.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_stack_push(
    stack: *mut ThiscpuStack,
    node: *mut ThiscpuLink,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that the handle is null or live. Of `node` only the address
        // is checked.
        let (stack, _) = unsafe { (deref(stack)?, OutParam::new(node)?) };
        let node = NonNull::new(node).ok_or(Status::NullPointer)?;
        // SAFETY: the header requires a valid node that is in no stack and stays readable. A link
        // is one pointer in C and in Rust.
        unsafe { stack.0.push(node.cast()) };
        Ok(())
    })
}

/// Pops the top node of this CPU's stack and stores it in `*node`.
///
/// If this CPU's stack is empty, stores NULL and returns `EMPTY`.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `EMPTY`.
/// - Blocks: never.
/// - Signal handlers: allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_stack_pop(
    stack: *mut ThiscpuStack,
    node: *mut *mut ThiscpuLink,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `node` null or valid for
    // writes.
    unsafe { take(stack, node, PerCpuStack::pop) }
}

/// Takes all nodes of this CPU's stack and stores the top one in `*first`.
///
/// The nodes are linked by `next`. If this CPU's stack is empty, stores NULL and returns `EMPTY`.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `EMPTY`.
/// - Blocks: never.
/// - Signal handlers: allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_stack_take_all(
    stack: *mut ThiscpuStack,
    first: *mut *mut ThiscpuLink,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and `first` null or valid for
    // writes.
    unsafe { take(stack, first, PerCpuStack::take_all) }
}

/// Writes the node that `take` returns to `out`.
///
/// # Safety
///
/// The handle is null, misaligned or live; `out` is null, misaligned or valid for writes.
unsafe fn take(
    stack: *mut ThiscpuStack,
    out: *mut *mut ThiscpuLink,
    take: fn(&PerCpuStack) -> Option<NonNull<Link>>,
) -> Status {
    catch(|| {
        // SAFETY: the caller guarantees that the handle is null, misaligned or live, and `out`
        // null, misaligned or valid for writes.
        let (stack, out) = unsafe { (deref(stack)?, OutParam::new(out)?) };
        let node = take(&stack.0);
        out.write(node.map_or(null_mut(), |node| node.cast().as_ptr()));
        node.map(drop).ok_or(Status::Empty)
    })
}

/// Takes the nodes of all CPUs' stacks, then calls `each` for every node, with `context`.
///
/// No other thread may use the stack during this call. So `each` may free the node, or push it
/// again. It must return: an exception that leaves it ends the process, and `longjmp` out of it is
/// undefined.
///
/// - NULL: allowed for `context`, which is only passed on.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never, unless `each` does.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_stack_drain(
    stack: *mut ThiscpuStack,
    each: Option<unsafe extern "C-unwind" fn(node: *mut ThiscpuLink, context: *mut c_void)>,
    context: *mut c_void,
) -> Status {
    catch(|| {
        let each = each.ok_or(Status::NullPointer)?;
        // SAFETY: the header requires that the handle is null or live. This checks the pointer.
        unsafe { deref(stack) }?;
        // SAFETY: the pointer is not null and aligned, as just checked, and the header requires
        // that no other thread uses the stack.
        let nodes = unsafe { &mut *stack }.0.drain();
        let first = nodes.fold(null_mut(), |next, node| {
            let node = node.cast::<ThiscpuLink>().as_ptr();
            // SAFETY: the node is out of the stack, so it is this function's alone, and it begins
            // with its link.
            unsafe { (*node).next = next };
            node
        });
        // The borrow of the stack has ended, so `each` may use it.
        let mut rest = first;
        while !rest.is_null() {
            let node = rest;
            // SAFETY: the node was linked above, and `each` has only been given earlier ones.
            rest = unsafe { (*node).next };
            // SAFETY: the caller passed this function to be called with a node and its context.
            unsafe { each(node, context) };
        }
        Ok(())
    })
}
