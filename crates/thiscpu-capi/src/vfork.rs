//! Children of `vfork` and `clone(CLONE_VM)`.

use thiscpu::__internal::vfork;

thiscpu::define_vfork!("thiscpu_vfork_join_1");

/// Prepares the calling thread for a child of `clone(CLONE_VM)` that uses the library.
///
/// `vfork` needs no preparation: the library exports one that calls this function and
/// `thiscpu_vfork_leave` itself. Other calls, such as `clone` with `CLONE_VM` and `CLONE_VFORK`,
/// need both: a child that runs on the memory of its parent's thread seems to be that thread, but
/// the kernel does not know it. Until `thiscpu_vfork_leave`, this thread and its children use the
/// shared lane. If the thread goes on while the child runs, give the child thread-local memory of
/// its own (`CLONE_SETTLS`).
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
