//! vfork, implemented as fork.
//!
//! A child of vfork runs in its parent's memory, including thread-local memory. But the kernel does
//! not know the child as the thread that has registered the rseq area there. So allocations before
//! its exec could corrupt the parent's lanes. A child of fork has its own memory.
//!
//! posix_spawn and system use vfork semantics inside the C library, but allocate nothing in the
//! child.

#[unsafe(no_mangle)]
extern "C" fn vfork() -> libc::pid_t {
    // SAFETY: fork has no preconditions. The caller guarantees that the child keeps to the rules of
    // vfork, which are stricter.
    unsafe { libc::fork() }
}
