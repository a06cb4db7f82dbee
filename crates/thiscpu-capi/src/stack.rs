//! Per-CPU lists.

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};

use thiscpu::{Link, PerCpuStack};

use crate::ffi::{call, end, make, place, there};
use crate::status::Status;

/// A list of which each CPU has its own, last in first out, for nodes that are not needed right now: what another CPU has
/// is out of reach.
///
/// Pushing and taking may be done by any number of threads at once, and in signal handlers; they never wait. `thiscpu_list_drain` and
/// `thiscpu_list_destroy` are for who is alone with the list.
pub struct ThiscpuList(PerCpuStack);

/// The first member of each node.
#[repr(C)]
#[derive(Debug)]
pub struct ThiscpuLink {
    /// The next node of a list that `thiscpu_list_take_all` has given out; null if that was the last.
    pub next: *mut ThiscpuLink,
}

const _: () = assert!(size_of::<ThiscpuLink>() == size_of::<Link>());

/// Makes a list that is empty on every CPU, and puts its handle into `*list`. The handle is valid until
/// `thiscpu_list_destroy`. May wait for another thread that creates something.
///
/// Errors: `THISCPU_STATUS_NULL`; `THISCPU_STATUS_NO_ADDRESS_SPACE`; `THISCPU_STATUS_UNKNOWN_TIER`,
/// `THISCPU_STATUS_TIER_UNAVAILABLE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_list_create(list: *mut *mut ThiscpuList) -> Status {
    // SAFETY: a caller's pointer is null or valid, as the header asks.
    unsafe { make(list, || Ok(ThiscpuList(PerCpuStack::try_new()?))) }
}

/// Ends a list; nodes that are in it are forgotten, see `thiscpu_list_drain`. Null is none, and `THISCPU_STATUS_OK`. Nobody may use the handle
/// any more, nor be using it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_list_destroy(list: *mut ThiscpuList) -> Status {
    // SAFETY: as above; the handle is the caller's to end.
    unsafe { end(list) }
}

/// Puts a node in front of this CPU's list. The node must be in no list, and its memory must stay readable as long as the list lives, also
/// after it was taken out: another thread may still look at its link, and discard what it saw.
///
/// Errors: `THISCPU_STATUS_NULL`; `THISCPU_STATUS_MISALIGNED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_list_push(
    list: *mut ThiscpuList,
    node: *mut ThiscpuLink,
) -> Status {
    call(|| {
        // SAFETY: a handle is null or live, as the header asks; what is looked at of the node is its address.
        let (list, _) = unsafe { (there(list)?, place(node)?) };
        let node = NonNull::new(node).ok_or(Status::Null)?;
        // SAFETY: the caller's promise, by the header; a link is one pointer, for both.
        unsafe { list.0.push(node.cast()) };
        Ok(())
    })
}

/// Takes the first node off this CPU's list, into `*node`.
///
/// Errors: `THISCPU_STATUS_EMPTY`, and `*node` is null then; `THISCPU_STATUS_NULL`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_list_pop(
    list: *mut ThiscpuList,
    node: *mut *mut ThiscpuLink,
) -> Status {
    // SAFETY: the same promises.
    unsafe { take(list, node, PerCpuStack::pop) }
}

/// Takes this CPU's whole list, its first node into `*first`.
///
/// Errors: `THISCPU_STATUS_EMPTY`, and `*first` is null then; `THISCPU_STATUS_NULL`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_list_take_all(
    list: *mut ThiscpuList,
    first: *mut *mut ThiscpuLink,
) -> Status {
    // SAFETY: the same promises.
    unsafe { take(list, first, PerCpuStack::take_all) }
}

/// # Safety
///
/// The handle is null or live, and the place null or valid.
unsafe fn take(
    list: *mut ThiscpuList,
    place_of_it: *mut *mut ThiscpuLink,
    take: fn(&PerCpuStack) -> Option<NonNull<Link>>,
) -> Status {
    call(|| {
        // SAFETY: the caller's promise.
        let (list, place) = unsafe { (there(list)?, place(place_of_it)?) };
        let node = take(&list.0);
        place.put(node.map_or(null_mut(), |node| node.cast().as_ptr()));
        node.map(drop).ok_or(Status::Empty)
    })
}

/// Takes the nodes of all CPUs' lists, and then calls `each` with one after the other and with `context`. Nobody else may use the list
/// meanwhile. `each` may free the node, or push it again; it must return, and not by an exception (which ends the process) or `longjmp`.
///
/// Errors: `THISCPU_STATUS_NULL` if the handle or `each` is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_list_drain(
    list: *mut ThiscpuList,
    each: Option<unsafe extern "C-unwind" fn(node: *mut ThiscpuLink, context: *mut c_void)>,
    context: *mut c_void,
) -> Status {
    call(|| {
        let each = each.ok_or(Status::Null)?;
        // SAFETY: the handle is null or live, as the header asks.
        unsafe { there(list) }?;
        // SAFETY: just looked at; the header asks that nobody else uses it.
        let nodes = unsafe { &mut *list }.0.drain();
        let first = nodes.fold(null_mut(), |next, node| {
            let node = node.cast::<ThiscpuLink>().as_ptr();
            // SAFETY: the node is in no list any more, and begins with its link.
            unsafe { (*node).next = next };
            node
        });
        // Here the list is not borrowed, and `each` may use it.
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
