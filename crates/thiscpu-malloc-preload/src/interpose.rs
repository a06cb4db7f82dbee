//! Functions that a program may have replaced by its own.
//!
//! C++ lets a program bring its own `operator new` and `operator delete`; the forms that it does not bring are then
//! to call these. So are C's functions that are defined by others. A form that went straight to the allocator would
//! hand out blocks that the program's own `delete` does not know, or be given blocks that the allocator does not. So
//! they call whatever everybody in this process calls by that name, which the loader has written down: mostly what
//! is in this library, one jump away.

use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// The function that everybody in this process gets by a name, as one of a type.
macro_rules! resolve {
    ($name:literal as $kind:ty) => {{
        let address: usize;
        #[cfg(target_arch = "x86_64")]
        // SAFETY: loads an address that the loader wrote into the GOT.
        unsafe {
            core::arch::asm!(
                concat!("mov {}, qword ptr [rip + ", $name, "@GOTPCREL]"),
                out(reg) address,
                options(nostack, pure, readonly, preserves_flags)
            );
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: loads an address that the loader wrote into the GOT.
        unsafe {
            core::arch::asm!(
                concat!("adrp {0}, :got:", $name),
                concat!("ldr {0}, [{0}, :got_lo12:", $name, "]"),
                out(reg) address,
                options(nostack, pure, readonly, preserves_flags)
            );
        }
        // SAFETY: whoever defines a function of this name defines it with this type.
        unsafe { core::mem::transmute::<usize, $kind>(address) }
    }};
}
pub(crate) use resolve;

/// Whether everybody gets this library's function by some name.
pub(crate) struct IsOwn(AtomicU8);

const UNKNOWN: u8 = 0;
const OWN: u8 = 1;
const FOREIGN: u8 = 2;

impl IsOwn {
    pub(crate) const fn new() -> Self {
        IsOwn(AtomicU8::new(UNKNOWN))
    }

    /// The answer, for the function that everybody gets. It never changes, so it is looked up once.
    #[inline(always)]
    pub(crate) fn check(&self, function: *const c_void) -> bool {
        // Relaxed: whoever does not see the answer finds the same.
        match self.0.load(Relaxed) {
            OWN => true,
            FOREIGN => false,
            _ => self.look(function),
        }
    }

    #[cold]
    #[inline(never)]
    fn look(&self, function: *const c_void) -> bool {
        let is_own = object_of(function) == object_of(IsOwn::look as *const c_void);
        self.0.store(if is_own { OWN } else { FOREIGN }, Relaxed);
        is_own
    }
}

/// The start of the object that holds `address`; `None` if no object does.
fn object_of(address: *const c_void) -> Option<*mut c_void> {
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: dladdr fills in `info` if it does not return 0. It allocates nothing.
    unsafe {
        (libc::dladdr(address, info.as_mut_ptr()) != 0).then(|| info.assume_init_ref().dli_fbase)
    }
}
