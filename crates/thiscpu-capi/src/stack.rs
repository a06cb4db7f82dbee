//! Per-CPU stacks.

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};

use thiscpu::{Link, PerCpuStack};

use crate::ffi::{call, end, make, place, there};
use crate::status::Status;

/// A stack of which each CPU has its own, last in first out, for nodes that are not needed right now: what another CPU has
/// is out of reach.
///
/// Pushing and taking may be done by any number of threads at once, and in signal handlers; they never wait. `thiscpu_stack_drain` and
/// `thiscpu_stack_destroy` are for who is alone with the stack.
pub struct ThiscpuStack(PerCpuStack);

/// The first member of each node.
#[repr(C)]
#[derive(Debug)]
pub struct ThiscpuLink {
    /// The next node of a stack that `thiscpu_stack_take_all` has given out; null if that was the last.
    pub next: *mut ThiscpuLink,
}

const _: () = assert!(size_of::<ThiscpuLink>() == size_of::<Link>());

/// Makes a stack that is empty on every CPU, and puts its handle into `*stack`. The handle is valid until
/// `thiscpu_stack_destroy`. May wait for another thread that creates something.
///
/// Errors: `THISCPU_STATUS_NULL_POINTER`; `THISCPU_STATUS_NO_ADDRESS_SPACE`; `THISCPU_STATUS_UNKNOWN_TIER`,
/// `THISCPU_STATUS_TIER_UNAVAILABLE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_stack_create(stack: *mut *mut ThiscpuStack) -> Status {
    // SAFETY: a caller's pointer is null or valid, as the header asks.
    unsafe { make(stack, || Ok(ThiscpuStack(PerCpuStack::try_new()?))) }
}

/// Ends a stack; nodes that are in it are forgotten, see `thiscpu_stack_drain`. Null is none, and `THISCPU_STATUS_OK`. Nobody may use the handle
/// any more, nor be using it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_stack_destroy(stack: *mut ThiscpuStack) -> Status {
    // SAFETY: as above; the handle is the caller's to end.
    unsafe { end(stack) }
}

/// Puts a node in front of this CPU's stack. The node must be in no stack, and its memory must stay readable as long as the stack lives, also
/// after it was taken out: another thread may still look at its link, and discard what it saw.
///
/// Errors: `THISCPU_STATUS_NULL_POINTER`; `THISCPU_STATUS_MISALIGNED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_stack_push(
    stack: *mut ThiscpuStack,
    node: *mut ThiscpuLink,
) -> Status {
    call(|| {
        // SAFETY: a handle is null or live, as the header asks; what is looked at of the node is its address.
        let (stack, _) = unsafe { (there(stack)?, place(node)?) };
        let node = NonNull::new(node).ok_or(Status::NullPointer)?;
        // SAFETY: the caller's promise, by the header; a link is one pointer, for both.
        unsafe { stack.0.push(node.cast()) };
        Ok(())
    })
}

/// Takes the first node off this CPU's stack, into `*node`.
///
/// Errors: `THISCPU_STATUS_EMPTY`, and `*node` is null then; `THISCPU_STATUS_NULL_POINTER`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_stack_pop(
    stack: *mut ThiscpuStack,
    node: *mut *mut ThiscpuLink,
) -> Status {
    // SAFETY: the same promises.
    unsafe { take(stack, node, PerCpuStack::pop) }
}

/// Takes this CPU's whole stack, its first node into `*first`.
///
/// Errors: `THISCPU_STATUS_EMPTY`, and `*first` is null then; `THISCPU_STATUS_NULL_POINTER`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_stack_take_all(
    stack: *mut ThiscpuStack,
    first: *mut *mut ThiscpuLink,
) -> Status {
    // SAFETY: the same promises.
    unsafe { take(stack, first, PerCpuStack::take_all) }
}

/// # Safety
///
/// The handle is null or live, and the place null or valid.
unsafe fn take(
    stack: *mut ThiscpuStack,
    out: *mut *mut ThiscpuLink,
    take: fn(&PerCpuStack) -> Option<NonNull<Link>>,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (stack, place) = unsafe { (there(stack)?, place(out)?) };
        let node = take(&stack.0);
        place.put(node.map_or(null_mut(), |node| node.cast().as_ptr()));
        node.map(drop).ok_or(Status::Empty)
    })
}

/// Takes the nodes of all CPUs' stacks, and then calls `each` with one after the other and with `context`. Nobody else may use the stack
/// meanwhile. `each` may free the node, or push it again; it must return, and not by an exception (which ends the process) or `longjmp`.
///
/// Errors: `THISCPU_STATUS_NULL_POINTER` if the handle or `each` is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_stack_drain(
    stack: *mut ThiscpuStack,
    each: Option<unsafe extern "C-unwind" fn(node: *mut ThiscpuLink, context: *mut c_void)>,
    context: *mut c_void,
) -> Status {
    call(|| {
        let each = each.ok_or(Status::NullPointer)?;
        // SAFETY: the handle is null or live, as the header asks.
        unsafe { there(stack) }?;
        // SAFETY: just looked at; the header asks that nobody else uses it.
        let nodes = unsafe { &mut *stack }.0.drain();
        let first = nodes.fold(null_mut(), |next, node| {
            let node = node.cast::<ThiscpuLink>().as_ptr();
            // SAFETY: the node is in no stack any more, and begins with its link.
            unsafe { (*node).next = next };
            node
        });
        // Here the stack is not borrowed, and `each` may use it.
        let mut rest = first;
        while !rest.is_null() {
            let node = rest;
            // SAFETY: set above; `each` has only had those before it.
            rest = unsafe { (*node).next };
            // SAFETY: the caller's function, with what it was given to be called with.
            unsafe { each(node, context) };
        }
        Ok(())
    })
}
