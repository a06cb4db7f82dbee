//! The vfork word: a thread-local word that keeps children of `vfork` out of lanes.
//!
//! A child of `vfork` or `clone(CLONE_VM)` runs on the thread-local memory of its parent's thread,
//! which sleeps meanwhile. So the rseq area there says that the thread is registered, with the
//! parent's CPU. But the kernel knows of no registration of the child, and would abort none of its
//! sections. Therefore the parent sets the word before the call, and restores it after. While it is
//! set:
//!
//! - sections leave with `NoLane`, because they compare `cpu_id` with the word instead of with 0;
//! - the index pointer is 0, so that direct sections leave: `vfork::enter` clears it after it has
//!   set the word, and `index_ptr::set` does nothing;
//! - `is_registered` denies, and no thread registers. Slow paths then use the shared lane.
//!
//! Only this thread and its children access the word, one at a time. A child's child sets it again.
//! So the previous value is restored, not 0.
//!
//! # Several copies of this library
//!
//! A process may contain several copies: preloaded, in shared objects, linked statically. A child
//! may use all of them, but its parent calls one `vfork`. So copies share one word, and the list of
//! all index pointers. Both belong to the first of these objects that the process contains:
//!
//! 1. the preloaded malloc;
//! 2. `libthiscpu.so`, or a program that contains `libthiscpu.a`.
//!
//! Both define `vfork` too. If there is neither, each copy has a word of its own. So has a copy
//! that was loaded before the object with the word, and one in another namespace of the dynamic
//! linker (`dlmopen`).

use core::ptr;
use core::sync::atomic::{
    AtomicIsize, AtomicPtr, AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use super::area::{VFORK, own_offset, thread_pointer};

/// The word while a child may run: more than each `cpu_id`.
pub(super) const CHILD: u32 = i32::MAX as u32;

/// A vfork word, and the copies of this library that share it.
///
/// The names of the exported join functions end with the version of this layout.
#[derive(Debug)]
#[repr(C)]
pub struct Shared {
    /// The offset of the word from the thread pointer.
    word: AtomicIsize,
    /// The copies that have joined, as a list that only grows, at its end.
    pub(super) first: AtomicPtr<Member>,
}

/// One copy of this library, in the list of [`Shared`].
#[derive(Debug)]
#[repr(C)]
pub struct Member {
    /// The offset of its index pointer from the thread pointer.
    pub(super) index_ptr: AtomicIsize,
    pub(super) next: AtomicPtr<Member>,
}

/// The word of this copy, which the copies that join it use too.
static OWN: Shared = Shared { word: AtomicIsize::new(0), first: AtomicPtr::new(ptr::null_mut()) };

/// The word that this copy uses: its own, or another copy's. Null until it has joined.
static JOINED: AtomicPtr<Shared> = AtomicPtr::new(ptr::null_mut());

/// Adds a copy to the list of this one, and returns their common word.
///
/// May run repeatedly, on several threads, and in signal handlers that interrupt it.
pub fn join_own(member: &'static Member) -> &'static Shared {
    // Relaxed: each call stores the same number, and `word_offset` reads it after its own call.
    OWN.word.store(own_offset() + VFORK, Relaxed);
    let mut link = &OWN.first;
    loop {
        // Acquire and AcqRel: pair with each other, so that a thread that finds a member finds its
        // fields. Members never leave, so a member that is found is at its place forever.
        let next = match link.load(Acquire) {
            next if next.is_null() => {
                let new = ptr::from_ref(member).cast_mut();
                match link.compare_exchange(ptr::null_mut(), new, AcqRel, Acquire) {
                    Ok(_) => return &OWN,
                    Err(first) => first,
                }
            }
            next => next,
        };
        if ptr::eq(next, member) {
            return &OWN;
        }
        // SAFETY: members are statics of objects that stay mapped, as `vfork::join` requires.
        link = unsafe { &(*next).next };
    }
}

/// Makes this copy use the word of `shared`.
pub(super) fn set_joined(shared: &'static Shared) {
    // Release: pairs with the Acquire in `joined`; the offset is stored.
    JOINED.store(ptr::from_ref(shared).cast_mut(), Release);
}

pub(super) fn joined() -> Option<&'static Shared> {
    // SAFETY: the pointer is null, or that of a static in an object that stays mapped.
    unsafe { JOINED.load(Acquire).as_ref() }
}

/// Returns the offset of the vfork word from the thread pointer.
///
/// Until this copy has joined, that is its own word, which nothing sets.
pub(super) fn word_offset() -> isize {
    joined().map_or_else(|| own_offset() + VFORK, |shared| shared.word.load(Relaxed))
}

pub(super) fn word() -> &'static AtomicU32 {
    let address = thread_pointer().wrapping_add_signed(word_offset());
    // SAFETY: the offset leads to a word in this thread's block of static TLS of a copy of this
    // library. It lives as long as the thread. Callers use it on this thread only.
    unsafe { &*(address as *const AtomicU32) }
}

/// Returns whether the caller may be a child that runs on the memory of its parent's thread.
#[inline]
pub fn is_child() -> bool {
    word().load(Relaxed) != 0
}
