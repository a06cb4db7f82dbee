//! vfork, made a fork.
//!
//! A child of vfork runs in its parent's memory, thread-local memory included, but the kernel does not know it
//! as the thread whose rseq area that is. What it allocates before it calls exec could so corrupt the parent's
//! lanes. A child of fork has memory of its own. (posix_spawn and system, which do as vfork does inside the C
//! library, allocate nothing in the child.)

#[unsafe(no_mangle)]
extern "C" fn vfork() -> libc::pid_t {
    // SAFETY: fork has no preconditions; what a child may do is the caller's business, as after vfork.
    unsafe { libc::fork() }
}
