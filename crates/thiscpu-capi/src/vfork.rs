//! Children of `vfork` and `clone(CLONE_VM)`.

use thiscpu::__internal::vfork;

thiscpu::define_vfork!("thiscpu_vfork_join_1");

/// Prepares the calling thread for a child of `clone(CLONE_VM)` that uses the library.
///
/// `vfork` needs no preparation if the program itself links this library, whose `vfork` calls this
/// function and `thiscpu_vfork_leave`. Other calls need both, such as `clone` with `CLONE_VM` and
/// `CLONE_VFORK`, or `vfork` if only a plugin links this library. Their child finds its parent's
/// rseq area, but the kernel has registered no area for the child. Until `thiscpu_vfork_leave`,
/// this thread and its children use the shared lane. If the thread goes on while the child runs,
/// give the child thread-local memory of its own (`CLONE_SETTLS`), and let it call this function
/// first. The child must not wait for units of a budget.
///
/// - Returns: a value to pass to `thiscpu_vfork_leave`.
/// - Blocks: never.
/// - Signal handlers: allowed.
#[unsafe(no_mangle)]
pub extern "C" fn thiscpu_vfork_enter() -> u32 {
    vfork::enter()
}

/// Ends what `thiscpu_vfork_enter` began, after the child has ended.
///
/// Only the parent calls it, after the child has executed another program or exited, or after the
/// call that makes the child has failed. `previous` is the result of `thiscpu_vfork_enter`, so
/// calls may be nested.
///
/// - Blocks: never.
/// - Signal handlers: allowed.
#[unsafe(no_mangle)]
pub extern "C" fn thiscpu_vfork_leave(previous: u32) {
    vfork::leave(previous);
}
