//! What the C++ runtime has to be asked for when there is no memory, found when it is needed.
//!
//! This library must not need libstdc++, since most programs do not; who calls `operator new` has some C++
//! runtime. It is looked for among what everybody sees, and then by its usual names, because a plugin may
//! have brought it along for itself alone.

use core::ffi::{CStr, c_void};
use core::ptr::NonNull;

use crate::rust_runtime::fail;

/// `std::new_handler`: makes room, throws, or ends the program.
pub(crate) type Handler = extern "C-unwind" fn();

/// The handler that the program has installed, if there is one.
pub(crate) fn new_handler() -> Option<Handler> {
    let found = find(libc::RTLD_DEFAULT, c"_ZSt15get_new_handlerv")?;
    // SAFETY: `std::get_new_handler` is a function of this type: a null pointer stands for no handler.
    unsafe {
        let get = core::mem::transmute::<NonNull<c_void>, extern "C-unwind" fn() -> Option<Handler>>(
            found,
        );
        get()
    }
}

/// Throws `std::bad_alloc`.
pub(crate) fn throw_bad_alloc() -> ! {
    let Some(found) = find(libc::RTLD_DEFAULT, c"_ZSt17__throw_bad_allocv") else {
        fail(format_args!(
            "operator new has no memory, and no C++ runtime was found that could throw std::bad_alloc"
        ));
    };
    // SAFETY: `std::__throw_bad_alloc` is a function of this type.
    let throw =
        unsafe { core::mem::transmute::<NonNull<c_void>, extern "C-unwind" fn() -> !>(found) };
    throw()
}

/// A function that the runtime and this library both have: the runtime's.
pub(crate) fn runtime_function(name: &CStr) -> NonNull<c_void> {
    find(libc::RTLD_NEXT, name).unwrap_or_else(|| {
        fail(format_args!(
            "operator new is to catch what may be thrown, and no C++ runtime was found that could"
        ))
    })
}

fn find(among: *mut c_void, name: &CStr) -> Option<NonNull<c_void>> {
    let look = |among| {
        // SAFETY: the handle is one of the two special ones or open, and the name ends with a zero byte.
        NonNull::new(unsafe { libc::dlsym(among, name.as_ptr()) })
    };
    look(among).or_else(|| {
        [c"libstdc++.so.6", c"libc++abi.so.1", c"libc++.so.1"].into_iter().find_map(|runtime| {
            // SAFETY: nothing is loaded that is not there already. The handle is kept: the runtime stays.
            let loaded =
                unsafe { libc::dlopen(runtime.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
            look(NonNull::new(loaded)?.as_ptr())
        })
    })
}
