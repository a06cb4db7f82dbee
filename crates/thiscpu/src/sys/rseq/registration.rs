//! Finding, making and ending rseq registrations.

use core::ffi::c_void;
use core::sync::atomic::{
    AtomicUsize,
    Ordering::{Relaxed, Release},
};

#[cfg(not(thiscpu_model))]
use super::area::HINT;
use super::area::{
    CPU_ID, FRESH, GIVEN_UP, HAS_NODE, MM_CID, MM_CID_END, NODE_ID_END, OFFSETS, REGISTERED,
    own_offset, state, thread_pointer,
};
use super::{index_ptr, vfork_word};
use crate::sys::degradation::{self, DegradationKind};
use crate::sys::{errno, membarrier};

/// The signature before each abort handler, which a registration states too. It is glibc's.
#[cfg(target_arch = "x86_64")]
const SIGNATURE: u32 = 0x5305_3053;
#[cfg(target_arch = "aarch64")]
const SIGNATURE: u32 = 0xd428_bc00;

/// The length of every registration of the original kind, in bytes.
const ORIGINAL_LEN: u32 = 32;
const UNREGISTER: i32 = 1;

const AT_RSEQ_FEATURE_SIZE: libc::c_ulong = 27;

unsafe extern "C" {
    #[link_name = "__rseq_offset"]
    safe static GLIBC_OFFSET: isize;
    #[link_name = "__rseq_size"]
    safe static GLIBC_SIZE: u32;
}
core::arch::global_asm!(".weak __rseq_offset", ".weak __rseq_size");

/// The party that registers the rseq areas of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registrar {
    /// The C library, for each thread as it starts.
    Libc,
    /// This library, for each thread at its first use.
    Thiscpu,
    /// Nobody: this process has no sections.
    Nobody,
}

/// The rseq registration that start-up found or made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registration {
    pub(crate) registrar: Registrar,
    /// The length of the registration, as its owner states it, in bytes.
    pub(crate) size: u32,
    /// How much of the area this kernel fills in, in bytes; 0 if it does not say (before 6.3).
    pub(crate) feature_size: u32,
    /// The offset of the area from the thread pointer.
    pub(crate) area: isize,
    /// Why there is no registration; empty if there is one.
    ///
    /// A reference to a constant, so that one pointer leads to it.
    pub(crate) why_not: &'static &'static str,
}

impl Registration {
    /// Returns whether the kernel fills in `mm_cid`.
    pub(crate) fn has_mm_cid(&self) -> bool {
        self.registrar != Registrar::Nobody && self.feature_size >= MM_CID_END
    }

    /// Lets code that needs no section find the CPU of a thread in its area, if there is one.
    #[cfg(not(thiscpu_model))]
    pub(crate) fn publish_hint(&self) {
        if self.registrar != Registrar::Nobody {
            // Relaxed: the number leads to memory that each thread has since its start.
            HINT.store(self.area + CPU_ID as isize, Relaxed);
        }
    }

    /// Lets sections use the area, indexed by `mm_cid` or by `cpu_id`.
    pub(crate) fn publish(&self, by_mm_cid: bool) {
        // Relaxed: nothing reads the flag before it finds the area, which is published below.
        HAS_NODE.store(self.feature_size >= NODE_ID_END, Relaxed);
        let field = if by_mm_cid { MM_CID } else { CPU_ID };
        OFFSETS.index.store(self.area + field as isize, Relaxed);
        OFFSETS.vfork.store(vfork_word::word_offset(), Relaxed);
        // Before the store of `cpu_id` each CPU passes a barrier. So no section can load the new
        // `cpu_id` and yet an old offset of another word, and sections need no barrier of their
        // own. If the kernel refuses the barrier it refuses fences too, and `cpu_id` stays 0.
        if membarrier::barrier().is_ok() {
            // Release: orders the compiler, and publishes what start-up did before.
            OFFSETS.cpu_id.store(self.area + CPU_ID as isize, Release);
        } else {
            // A sandbox was installed since the choice of the tier: no thread gets a lane.
            degradation::note(DegradationKind::Registration, errno::last());
        }
    }
}

/// Finds the C library's registration, or registers this thread if `register` is set.
pub(crate) fn probe(register: bool) -> Registration {
    // SAFETY: getauxval reads the auxiliary vector.
    let feature_size = unsafe { libc::getauxval(AT_RSEQ_FEATURE_SIZE) } as u32;
    let nobody = |why_not| Registration {
        registrar: Registrar::Nobody,
        size: 0,
        feature_size,
        area: 0,
        why_not,
    };
    if let Some((area, size)) = glibc() {
        return Registration { registrar: Registrar::Libc, size, feature_size, area, why_not: &"" };
    }
    if !register {
        return nobody(&"the C library registers no thread, and this tier needs none registered");
    }
    if !at_exit::has_key() {
        return nobody(&"the C library has no key left to end registrations at thread exit");
    }
    match if vfork_word::is_child() { register_for_a_moment() } else { register_this_thread() } {
        Ok(()) => Registration {
            registrar: Registrar::Thiscpu,
            size: ORIGINAL_LEN,
            feature_size,
            area: own_offset(),
            why_not: &"",
        },
        Err(libc::ENOSYS) => nobody(&"the kernel has no rseq, or a sandbox hides it"),
        Err(libc::EPERM) => nobody(&"a sandbox denies rseq"),
        Err(libc::EINVAL) => {
            nobody(&"another library has registered rseq for this thread and does not share it")
        }
        Err(_) => nobody(&"the kernel refuses to register rseq"),
    }
}

/// Returns glibc's offset and size, if it registers threads.
fn glibc() -> Option<(isize, u32)> {
    let (offset, size) = (&raw const GLIBC_OFFSET, &raw const GLIBC_SIZE);
    // The symbols are weak: null if the C library has no rseq, size 0 if it is switched off.
    if hide(offset).is_null() || hide(size).is_null() || GLIBC_SIZE == 0 {
        return None;
    }
    Some((GLIBC_OFFSET, GLIBC_SIZE))
}

/// Hides a pointer's origin: the compiler may assume that a static's address is not null.
fn hide<T>(pointer: *const T) -> *const T {
    core::hint::black_box(pointer)
}

/// Registers this thread if the area in use is this library's.
///
/// Returns whether the thread is registered. Never waits; async-signal-safe.
pub(crate) fn register_if_ours() -> bool {
    OFFSETS.cpu_id() == own_offset() + CPU_ID as isize && register_this_thread().is_ok()
}

/// Registers this library's area for this thread, unless it has given up sections.
fn register_this_thread() -> Result<(), i32> {
    match state().load(Relaxed) {
        _ if vfork_word::is_child() => return Err(libc::EPERM),
        REGISTERED => return Ok(()),
        GIVEN_UP => return Err(libc::EINVAL),
        state => debug_assert_eq!(state, FRESH),
    }
    match call(own_offset(), ORIGINAL_LEN, 0) {
        // Busy: this very area is registered, because a signal handler interrupted this function
        // behind the call and called it again. The kernel reports another area as invalid.
        Ok(()) | Err(libc::EBUSY) => {}
        Err(error) => {
            degradation::note(DegradationKind::Registration, error);
            return Err(error);
        }
    }
    // Before `arm`, which may allocate: a malloc that is built on this crate comes back here. If
    // such a handler has given up, the registration is over.
    if state().compare_exchange(FRESH, REGISTERED, Relaxed, Relaxed) == Err(GIVEN_UP) {
        return Err(libc::EINVAL);
    }
    if let Err(error) = at_exit::arm() {
        degradation::note(DegradationKind::ThreadExit, error);
        // A registration that outlives its thread's memory lets the kernel write there.
        unregister_forever();
        return Err(error);
    }
    Ok(())
}

/// Finds out whether the kernel registers areas, on behalf of a child of `vfork`.
///
/// The area is that of the parent's thread, so the child must not stay registered. Unregistering
/// sets `cpu_id` to -1. It was -1 before, because this copy has not registered that thread.
fn register_for_a_moment() -> Result<(), i32> {
    match state().load(Relaxed) {
        FRESH => call(own_offset(), ORIGINAL_LEN, 0)
            .and_then(|()| call(own_offset(), ORIGINAL_LEN, UNREGISTER)),
        REGISTERED => Ok(()),
        _ => Err(libc::EINVAL),
    }
}

/// Ends this thread's registration, whichever library made it; no lane is left for it.
pub(crate) fn unregister_forever() {
    let _errno = errno::save();
    let was = state().load(Relaxed);
    state().store(GIVEN_UP, Relaxed);
    index_ptr::clear();
    if was == REGISTERED {
        // If this fails, the kernel goes on using memory that lives as long as the thread.
        let _ = call(own_offset(), ORIGINAL_LEN, UNREGISTER);
    } else if let Some((offset, size)) = glibc() {
        // glibc states how much of its area is in use. The length that it registered is the
        // original one or, from 2.41 on, the kernel's feature size rounded up to the area's
        // alignment.
        for len in [ORIGINAL_LEN, size, size.next_multiple_of(ORIGINAL_LEN)] {
            if call(offset, len, UNREGISTER).is_ok() {
                break;
            }
        }
    }
}

fn call(area: isize, len: u32, flags: i32) -> Result<(), i32> {
    let address = thread_pointer().wrapping_add_signed(area);
    // SAFETY: the area lies in this thread's static TLS, is aligned to 32 bytes and has at least
    // `len` bytes. It outlives the registration, which ends with the thread.
    let result = unsafe { libc::syscall(libc::SYS_rseq, address, len, flags, SIGNATURE) };
    if result == 0 { Ok(()) } else { Err(errno::last()) }
}

/// Ends the registration as the thread exits.
mod at_exit {
    use super::{AtomicUsize, DegradationKind, Relaxed, c_void, degradation};

    /// The key plus one, or 0 before the first thread needs it.
    static KEY: AtomicUsize = AtomicUsize::new(0);

    extern "C" fn unregister(_: *mut c_void) {
        super::unregister_forever();
    }

    /// Returns whether the key exists, after an attempt to make it; notes a failure.
    pub(super) fn has_key() -> bool {
        key().inspect_err(|&error| degradation::note(DegradationKind::ThreadExit, error)).is_ok()
    }

    /// Returns the key, and makes it at the first use; or returns the error number.
    fn key() -> Result<libc::pthread_key_t, i32> {
        // Relaxed here and below: the key is a number, and what it stands for is the C library's.
        let mut key = KEY.load(Relaxed);
        if key == 0 {
            let mut new: libc::pthread_key_t = 0;
            // SAFETY: the destructor is a function that takes any argument.
            match unsafe { libc::pthread_key_create(&mut new, Some(unregister)) } {
                0 => {}
                error => return Err(error),
            }
            key = match KEY.compare_exchange(0, new as usize + 1, Relaxed, Relaxed) {
                Ok(_) => new as usize + 1,
                Err(first) => {
                    // SAFETY: this thread made the key, and no other thread has seen it.
                    unsafe { libc::pthread_key_delete(new) };
                    first
                }
            };
        }
        Ok((key - 1) as libc::pthread_key_t)
    }

    /// Makes this thread's registration end at its exit, or returns an error number.
    pub(super) fn arm() -> Result<(), i32> {
        // SAFETY: the key exists and is never deleted; any non-null value runs the destructor.
        match unsafe { libc::pthread_setspecific(key()?, core::ptr::dangling::<c_void>()) } {
            0 => Ok(()),
            error => Err(error),
        }
    }
}
