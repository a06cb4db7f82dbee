//! Setting the vfork word, and finding it: [`vfork_word`] describes it.

use core::ptr;
use core::sync::atomic::{
    AtomicIsize, AtomicPtr,
    Ordering::{AcqRel, Acquire, Relaxed},
    compiler_fence,
};

use super::index_ptr;
use super::vfork_word::{self, CHILD, Member, Shared};
use crate::sys::keep_mapped;

/// This copy of the library, in the list of the word that it uses.
static MEMBER: Member =
    Member { index_ptr: AtomicIsize::new(0), next: AtomicPtr::new(ptr::null_mut()) };

type Join = extern "C" fn(&'static Member) -> &'static Shared;

/// Loads the address of a function that another object may export, or null.
///
/// The symbol is weak, and the dynamic linker resolves it as it loads this object. So the lookup
/// needs no lock and no memory, and `malloc` may make it.
macro_rules! weak_function {
    ($alias:literal, $symbol:literal) => {{
        let function: *const ();
        #[cfg(target_arch = "x86_64")]
        // SAFETY: loads an address that the linker or loader wrote into the GOT.
        unsafe {
            core::arch::asm!(
                concat!(".weakref ", $alias, ", ", $symbol),
                concat!("mov {}, qword ptr [rip + ", $alias, "@GOTPCREL]"),
                out(reg) function,
                options(nostack, pure, readonly, preserves_flags)
            );
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: loads an address that the linker or loader wrote into the GOT.
        unsafe {
            core::arch::asm!(
                concat!(".weakref ", $alias, ", ", $symbol),
                concat!("adrp {0}, :got:", $alias),
                concat!("ldr {0}, [{0}, :got_lo12:", $alias, "]"),
                out(reg) function,
                options(nostack, pure, readonly, preserves_flags)
            );
        }
        function
    }};
}

/// Returns the function by which copies join the malloc, or else the C library, if any.
///
/// The names differ, because a program that contains `libthiscpu.a` is bound to its own function.
/// A preloaded malloc in that process is found by the other name.
#[inline(never)]
fn exported_join() -> Option<Join> {
    let of_malloc =
        weak_function!("__thiscpu_0_1_vfork_join_malloc", "thiscpu_malloc_vfork_join_1");
    let function = if of_malloc.is_null() {
        weak_function!("__thiscpu_0_1_vfork_join", "thiscpu_vfork_join_1")
    } else {
        of_malloc
    };
    // SAFETY: the address is null, or that of a function of a copy of this library, which has the
    // type that the number in its name stands for. `None` has the representation of null.
    unsafe { core::mem::transmute::<*const (), Option<Join>>(function) }
}

/// Makes this copy share the vfork word with the other copies. May run repeatedly.
///
/// The object that holds this copy stays mapped; see [`keep_mapped`].
pub(crate) fn join() -> &'static Shared {
    // Relaxed: `join_own` publishes the member.
    MEMBER.index_ptr.store(index_ptr::offset(), Relaxed);
    let shared = exported_join().unwrap_or(join_alone)(&MEMBER);
    vfork_word::set_joined(shared);
    shared
}

extern "C" fn join_alone(member: &'static Member) -> &'static Shared {
    vfork_word::join_own(member)
}

/// Prepares the calling thread for a child on its memory; returns what [`leave`] restores.
///
/// Async-signal-safe. A signal handler that interrupts this function finds the thread with its lane
/// or without one, never in between.
pub(crate) fn enter() -> u32 {
    // An object that may be unmapped has no lanes, and cannot join the list.
    let shared = vfork_word::joined().or_else(|| keep_mapped::init().then(join));
    let Some(shared) = shared else { return 0 };
    let word = vfork_word::word();
    let previous = word.load(Relaxed);
    word.store(CHILD, Relaxed);
    // The pointers are cleared after the word is set, so that no signal handler sets one again.
    compiler_fence(AcqRel);
    let mut link = &shared.first;
    // Acquire: pairs with the AcqRel in `join_own`; the member's fields are stored.
    //
    // SAFETY: a member is a static of an object that stays mapped.
    while let Some(member) = unsafe { link.load(Acquire).as_ref() } {
        index_ptr::clear_at(member.index_ptr.load(Relaxed));
        link = &member.next;
    }
    compiler_fence(AcqRel);
    previous
}

/// Ends what [`enter`] began, in the parent.
///
/// The index pointer is not restored: the next slow path sets it.
pub(crate) fn leave(previous: u32) {
    compiler_fence(AcqRel);
    vfork_word::word().store(previous, Relaxed);
}
