//! Calls of functions that the program may have replaced.
//!
//! C++ lets a program define `operator new` and `operator delete`, and requires that all forms that
//! it does not define call those. The same holds for C functions that are defined in terms of
//! others. A form that called the allocator directly would return blocks that the program's own
//! `delete` does not know, or would free blocks that the allocator does not know.
//!
//! So these forms call the function that the loader has resolved a name to for the whole process.
//! That is mostly the one in this library, one jump away.

use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Returns the function that a name resolves to in this process, as a function of a type.
macro_rules! resolve {
    ($name:literal as $kind:ty) => {{
        let address: usize;
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the instruction loads an address that the loader has written to the GOT.
        unsafe {
            core::arch::asm!(
                concat!("mov {}, qword ptr [rip + ", $name, "@GOTPCREL]"),
                out(reg) address,
                options(nostack, pure, readonly, preserves_flags)
            );
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: the instruction loads an address that the loader has written to the GOT.
        unsafe {
            core::arch::asm!(
                concat!("adrp {0}, :got:", $name),
                concat!("ldr {0}, [{0}, :got_lo12:", $name, "]"),
                out(reg) address,
                options(nostack, pure, readonly, preserves_flags)
            );
        }
        // SAFETY: C and C++ define which type a function of this name has.
        unsafe { core::mem::transmute::<usize, $kind>(address) }
    }};
}
pub(crate) use resolve;

/// Whether a name resolves to this library's function.
pub(crate) struct IsOwn(AtomicU8);

const UNKNOWN: u8 = 0;
const OWN: u8 = 1;
const FOREIGN: u8 = 2;

impl IsOwn {
    /// Creates one that has not been looked up.
    pub(crate) const fn new() -> Self {
        IsOwn(AtomicU8::new(UNKNOWN))
    }

    /// Returns the answer for the function that the name resolves to.
    ///
    /// It never changes, so it is looked up once.
    #[inline(always)]
    pub(crate) fn check(&self, function: *const c_void) -> bool {
        // Relaxed: a thread that does not see the stored answer finds the same one.
        match self.0.load(Relaxed) {
            OWN => true,
            FOREIGN => false,
            _ => self.look_up(function),
        }
    }

    #[cold]
    #[inline(never)]
    fn look_up(&self, function: *const c_void) -> bool {
        let is_own = object_of(function) == object_of(IsOwn::look_up as *const c_void);
        self.0.store(if is_own { OWN } else { FOREIGN }, Relaxed);
        is_own
    }
}

/// Returns the base address of the object that contains `address`, if one does.
fn object_of(address: *const c_void) -> Option<*mut c_void> {
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: dladdr accepts any address, and has written `info` if it does not return 0. It
    // allocates nothing.
    unsafe {
        (libc::dladdr(address, info.as_mut_ptr()) != 0).then(|| info.assume_init_ref().dli_fbase)
    }
}
