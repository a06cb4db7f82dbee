//! Children that run on the memory of their parent's thread.

use core::marker::PhantomData;

use crate::sys::rseq::vfork;

/// Prepares the calling thread for a child on its memory, of `vfork` or `clone(CLONE_VM)`.
///
/// Such a child runs on the memory of its parent's thread, thread-local memory included, and the
/// thread sleeps until the child executes another program or exits. To the kernel the
/// child is another thread, without an rseq registration. Until the scope is dropped, this thread
/// and its children find no lane, and every call uses the shared lane.
///
/// Make the scope before the call, and drop it in the parent only: the child ends by `exec` or
/// `_exit`, or [forgets](core::mem::forget) it. A child that makes children of its own holds a
/// scope of its own meanwhile. If the child runs while this thread does (`clone(CLONE_VM)` without
/// `CLONE_VFORK`), end it before this thread uses the crate. Or give it thread-local memory of its
/// own (`CLONE_SETTLS`), and let it begin with a scope of its own that it never drops.
///
/// Drop scopes in the reverse order of their creation. The child must not wait for units of a
/// budget.
///
/// The preloaded malloc replaces `vfork` by one that does this itself, as does `libthiscpu.so` if
/// the program itself links it. If a process contains one of them, a scope is for all copies of
/// this crate that were loaded after it, except copies that `dlmopen` loaded. Otherwise a plugin
/// with a copy of its own needs its own scope.
///
/// Costs a few nanoseconds, and one gated call after the scope. Never blocks; async-signal-safe,
/// with the exception that [`tier()`](crate::tier()) names.
///
/// ```
/// let scope = thiscpu::vfork_scope();
/// // SAFETY: the child calls only `_exit`.
/// let child = unsafe { libc::vfork() };
/// if child == 0 {
///     // SAFETY: ends the child, which returns from no function.
///     unsafe { libc::_exit(0) };
/// }
/// drop(scope);
/// # assert!(child > 0);
/// # unsafe { libc::waitpid(child, core::ptr::null_mut(), 0) };
/// ```
pub fn vfork_scope() -> VforkScope {
    VforkScope { previous: vfork::enter(), _on_this_thread: PhantomData }
}

/// A time in which children may run on this thread's memory; see [`vfork_scope`].
#[derive(Debug)]
#[must_use = "the scope ends when this is dropped"]
pub struct VforkScope {
    previous: u32,
    _on_this_thread: PhantomData<*const ()>,
}

impl Drop for VforkScope {
    fn drop(&mut self) {
        vfork::leave(self.previous);
    }
}
