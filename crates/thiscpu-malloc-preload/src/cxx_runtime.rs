//! Functions of the C++ runtime that are needed when memory is exhausted, looked up then.
//!
//! This library must not depend on libstdc++, because most programs do not. A program that calls
//! `operator new` has some C++ runtime. It is looked up in the global scope first, and then by its
//! usual names, because a plugin may have loaded it into its own scope only.

use core::ffi::{CStr, c_void};
use core::ptr::NonNull;

use crate::rust_runtime::fail;

/// `std::new_handler`: frees memory, throws, or ends the program.
pub(crate) type Handler = extern "C-unwind" fn();
type GetHandler = extern "C-unwind" fn() -> Option<Handler>;

/// Returns the handler that the program has installed, if there is one.
pub(crate) fn new_handler() -> Option<Handler> {
    let found = find(libc::RTLD_DEFAULT, c"_ZSt15get_new_handlerv")?;
    // SAFETY: `std::get_new_handler` has this type. A null pointer means that no handler is set.
    let get = unsafe { core::mem::transmute::<NonNull<c_void>, GetHandler>(found) };
    get()
}

/// Throws `std::bad_alloc`.
pub(crate) fn throw_bad_alloc() -> ! {
    let Some(found) = find(libc::RTLD_DEFAULT, c"_ZSt17__throw_bad_allocv") else {
        fail(format_args!(
            "operator new cannot throw std::bad_alloc: memory is exhausted, and the program has \
             no C++ runtime"
        ));
    };
    // SAFETY: `std::__throw_bad_alloc` has this type.
    let throw =
        unsafe { core::mem::transmute::<NonNull<c_void>, extern "C-unwind" fn() -> !>(found) };
    throw()
}

/// Returns the C++ runtime's version of a function that this library has too.
pub(crate) fn runtime_function(name: &CStr) -> NonNull<c_void> {
    find(libc::RTLD_NEXT, name).unwrap_or_else(|| {
        fail(format_args!(
            "operator new(nothrow) cannot catch exceptions: the program has no C++ runtime"
        ))
    })
}

/// Looks a symbol up in a scope, and then in each C++ runtime that is loaded.
fn find(scope: *mut c_void, name: &CStr) -> Option<NonNull<c_void>> {
    let look_up = |scope| {
        // SAFETY: the handle is a special one or open, and the name ends with a zero byte.
        NonNull::new(unsafe { libc::dlsym(scope, name.as_ptr()) })
    };
    look_up(scope).or_else(|| {
        [c"libstdc++.so.6", c"libc++abi.so.1", c"libc++.so.1"].into_iter().find_map(|runtime| {
            // SAFETY: RTLD_NOLOAD loads nothing. The handle is never closed, so the runtime stays.
            let loaded =
                unsafe { libc::dlopen(runtime.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
            look_up(NonNull::new(loaded)?.as_ptr())
        })
    })
}
