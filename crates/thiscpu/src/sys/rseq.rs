//! Who registered this thread's rseq area, and where it is.
//!
//! glibc (2.35 and later) registers an area for each thread and publishes its offset from the
//! thread pointer; that registration is shared, never replaced, and of its fields only `rseq_cs` is
//! ever written. Where glibc has none (another libc, an older one, or the tunable
//! `glibc.pthread.rseq=0`), each thread registers an area of ours in its static TLS at its first
//! use and gives it up at its exit, for good: what runs after that has no lane.
//!
//! The ABI: `Documentation/userspace-api/rseq.rst` and `rseq(2)`; the layout of the area:
//! `cpu_id_start` 0, `cpu_id` 4, `rseq_cs` 8, `flags` 16, `node_id` 20, `mm_cid` 24.

use core::arch::{asm, global_asm};
use core::ffi::c_void;
use core::sync::atomic::{
    AtomicBool, AtomicIsize, AtomicU32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
    compiler_fence,
};

use super::{errno, membarrier, near};

/// What stands before each abort handler; glibc registers with the same number.
#[cfg(target_arch = "x86_64")]
const SIGNATURE: u32 = 0x5305_3053;
#[cfg(target_arch = "aarch64")]
const SIGNATURE: u32 = 0xd428_bc00;

/// The length every registration of the original kind has.
const ORIGINAL_LEN: u32 = 32;
const UNREGISTER: i32 = 1;

/// Offsets of fields in the area.
pub(crate) const CPU_ID: usize = 4;
/// Where the area says which section its thread is in.
#[cfg(not(thiscpu_model))]
pub const RSEQ_CS: usize = 8;
const NODE_ID: usize = 20;
const NODE_ID_END: u32 = 24;
pub(crate) const MM_CID: usize = 24;
const MM_CID_END: u32 = 28;

const AT_RSEQ_FEATURE_SIZE: libc::c_ulong = 27;

// Our own area, behind it the state of the thread, and behind that an area that is never registered.
// `cpu_id` begins as -1, "not registered", as the kernel leaves it after an unregistration. The symbols carry the version, so that two versions
// of this library can be linked into one program.
global_asm!(
    ".weak __rseq_offset",
    ".weak __rseq_size",
    ".pushsection .tdata, \"awT\", %progbits",
    ".balign 32",
    ".hidden __thiscpu_0_1_area",
    ".globl __thiscpu_0_1_area",
    ".type __thiscpu_0_1_area, %object",
    ".size __thiscpu_0_1_area, 96",
    "__thiscpu_0_1_area:",
    ".long 0, -1",
    ".quad 0, 0, 0",
    ".quad 0, 0, 0, 0",
    ".long 0, -1",
    ".quad 0, 0, 0",
    ".popsection",
);

unsafe extern "C" {
    #[link_name = "__rseq_offset"]
    safe static GLIBC_OFFSET: isize;
    #[link_name = "__rseq_size"]
    safe static GLIBC_SIZE: u32;
}

/// The offsets of two fields of the area from the thread pointer, the same in every thread: of
/// `cpu_id`, and of the one that holds the lane index. Both are 0 until they are published, and sections check: a linker
/// could fill in those of our own, unregistered area, but not every one can in a shared object.
#[derive(Debug)]
pub(crate) struct Offsets {
    cpu_id: AtomicIsize,
    index: AtomicIsize,
}

/// Whether the kernel fills in `node_id`.
static HAS_NODE: AtomicBool = AtomicBool::new(false);

pub(crate) static OFFSETS: Offsets =
    Offsets { cpu_id: AtomicIsize::new(0), index: AtomicIsize::new(0) };

impl Offsets {
    /// The offset of `cpu_id`, or 0: the area is a multiple of 32 bytes from the thread pointer, and the field is not at its beginning.
    #[inline(always)]
    pub(crate) fn cpu_id(&self) -> isize {
        let cpu_id = self.cpu_id.load(Relaxed);
        // The index is loaded after this, by the compiler's leave; that the processor does so too
        // is the business of `publish`.
        compiler_fence(Acquire);
        cpu_id
    }

    /// The offset of the field with the index. Meaningful if `cpu_id`, asked before, was not 0.
    #[inline(always)]
    pub(crate) fn index(&self) -> isize {
        self.index.load(Relaxed)
    }
}

/// The address of this thread's lane index. Its area is registered.
pub(super) fn index_address() -> usize {
    thread_pointer().wrapping_add_signed(OFFSETS.index())
}

/// The thread pointer.
pub(super) fn thread_pointer() -> usize {
    let pointer: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the ABI keeps the thread pointer's own value at fs:0.
    unsafe {
        asm!("mov {}, fs:0", out(reg) pointer, options(nostack, readonly, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reads the thread pointer's register.
    unsafe {
        asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, nomem, preserves_flags));
    }
    pointer
}

/// The offset of our own area from the thread pointer.
fn own_offset() -> isize {
    let offset: isize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: loads a constant that the linker or loader wrote into the GOT.
    unsafe {
        asm!(
            "mov {}, [rip + __thiscpu_0_1_area@gottpoff]",
            out(reg) offset,
            options(nostack, readonly, preserves_flags)
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: loads a constant that the linker or loader wrote into the GOT.
    unsafe {
        asm!(
            "adrp {0}, :gottprel:__thiscpu_0_1_area",
            "ldr {0}, [{0}, :gottprel_lo12:__thiscpu_0_1_area]",
            out(reg) offset,
            options(nostack, readonly, preserves_flags)
        );
    }
    offset
}

/// Who registers the areas that sections use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registrar {
    /// The C library, for each thread as it starts.
    Libc,
    /// This library, for each thread at its first use.
    Thiscpu,
    /// Nobody: there are no sections in this process.
    Nobody,
}

/// What start-up found out about rseq.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) registrar: Registrar,
    /// The length of the registration, as its owner states it, in bytes.
    pub(crate) size: u32,
    /// How much of the area this kernel fills, in bytes; 0 if it does not say (before 6.3).
    pub(crate) feature_size: u32,
    pub(crate) area: isize,
    /// Why there is no registration, if there is none.
    pub(crate) why_not: &'static str,
}

impl Found {
    /// Whether the kernel fills in `mm_cid`.
    pub(crate) fn has_mm_cid(&self) -> bool {
        self.registrar != Registrar::Nobody && self.feature_size >= MM_CID_END
    }

    /// Lets sections in, indexed by `mm_cid` or by `cpu_id`.
    pub(crate) fn publish(&self, by_mm_cid: bool) {
        // Relaxed: what it leads to is the area, which is published below.
        HAS_NODE.store(self.feature_size >= NODE_ID_END, Relaxed);
        let field = if by_mm_cid { MM_CID } else { CPU_ID };
        OFFSETS.index.store(self.area + field as isize, Relaxed);
        // Between the two each CPU passes a barrier, so that no section can load the new area and
        // yet the old index; they need no barrier of their own. If the barrier cannot be had
        // there is no fence either, and the offsets stay 0.
        if membarrier::barrier().is_ok() {
            // Release: for the compiler, and for what start-up did before.
            OFFSETS.cpu_id.store(self.area + CPU_ID as isize, Release);
        }
    }
}

/// Looks for a registration, and if the C library has none and `register` is set makes one for this
/// thread.
pub(crate) fn find(register: bool) -> Found {
    // SAFETY: getauxval reads the auxiliary vector.
    let feature_size = unsafe { libc::getauxval(AT_RSEQ_FEATURE_SIZE) } as u32;
    let nobody =
        |why_not| Found { registrar: Registrar::Nobody, size: 0, feature_size, area: 0, why_not };
    if let Some((area, size)) = glibc() {
        return Found { registrar: Registrar::Libc, size, feature_size, area, why_not: "" };
    }
    if !register {
        return nobody("the C library registers no thread, and this tier needs none registered");
    }
    match register_this_thread() {
        Ok(()) => Found {
            registrar: Registrar::Thiscpu,
            size: ORIGINAL_LEN,
            feature_size,
            area: own_offset(),
            why_not: "",
        },
        Err(libc::ENOSYS) => nobody("the kernel has no rseq, or a sandbox hides it"),
        Err(libc::EPERM) => nobody("a sandbox denies rseq"),
        Err(libc::EINVAL) => {
            nobody("another library has registered rseq for this thread and does not share it")
        }
        Err(_) => nobody("the kernel refuses to register rseq"),
    }
}

/// glibc's offset and size, if it registers threads.
fn glibc() -> Option<(isize, u32)> {
    let (offset, size) = (&raw const GLIBC_OFFSET, &raw const GLIBC_SIZE);
    // The symbols are weak: null where the C library has no rseq, size 0 where it is switched off.
    if hide(offset).is_null() || hide(size).is_null() || GLIBC_SIZE == 0 {
        return None;
    }
    Some((GLIBC_OFFSET, GLIBC_SIZE))
}

/// The compiler may assume that a static's address is not null; a weak symbol's can be.
fn hide<T>(pointer: *const T) -> *const T {
    core::hint::black_box(pointer)
}

// What a thread knows of its own registration; behind the area in its TLS block.
/// It was not asked yet; what the TLS block begins as.
const FRESH: u32 = 0;
const REGISTERED: u32 = 1;
/// It has no lane, and never will again.
const DONE: u32 = 2;

fn state() -> &'static AtomicU32 {
    let address = thread_pointer().wrapping_add_signed(own_offset()) + 32;
    // SAFETY: our TLS block has 32 bytes behind the area, which begin as 0, and lives as long as this thread;
    // the reference is not handed to other threads.
    unsafe { &*(address as *const AtomicU32) }
}

/// Where in our own area's block the thread's habit is, for code that is no Rust.
const HABIT: isize = 36;

/// The offset from the thread pointer of an area in which no section ever gets anywhere.
pub(crate) fn unregistered_offset() -> isize {
    own_offset() + 64
}

/// The offset from the thread pointer of a word that is 0 as long as charges of this thread are to look into its lane.
pub(crate) fn habit_offset() -> isize {
    own_offset() + HABIT
}

/// Tells charges that are no Rust's whether to look into this thread's lane.
pub(crate) fn set_habit(looks: bool) {
    let address = thread_pointer().wrapping_add_signed(habit_offset());
    // SAFETY: as for `state`; the word behind that.
    unsafe { &*(address as *const AtomicU32) }.store(u32::from(!looks), Relaxed);
}

/// Whether this thread has given up lanes for good.
pub(crate) fn is_done() -> bool {
    state().load(Relaxed) == DONE
}

/// Whether `OFFSETS` are published and this thread's area is registered.
pub(crate) fn is_registered() -> bool {
    let offset = OFFSETS.cpu_id();
    if offset == 0 {
        return false;
    }
    let cpu_id = thread_pointer().wrapping_add_signed(offset);
    // SAFETY: the offset is that of the field of an rseq area in this thread's static TLS. The kernel writes the
    // field only while this thread is not running, so an atomic load by this thread sees it whole.
    unsafe { (*(cpu_id as *const AtomicU32)).load(Relaxed) as i32 >= 0 }
}

/// This thread's lane index, as its area shows it. The area is registered.
pub(crate) fn index() -> usize {
    // SAFETY: as in `is_registered`.
    unsafe { (*(index_address() as *const AtomicU32)).load(Relaxed) as usize }
}

/// The NUMA node of the calling thread, if its area shows it (Linux 6.3).
pub(crate) fn node() -> Option<usize> {
    if !HAS_NODE.load(Relaxed) || !is_registered() {
        return None;
    }
    let cpu_id = thread_pointer().wrapping_add_signed(OFFSETS.cpu_id());
    // SAFETY: as in `is_registered`.
    Some(unsafe { (*((cpu_id - CPU_ID + NODE_ID) as *const AtomicU32)).load(Relaxed) } as usize)
}

/// Registers this thread if the areas in use are ours. Whether it is registered now.
pub(crate) fn register_if_ours() -> bool {
    OFFSETS.cpu_id() == own_offset() + CPU_ID as isize && register_this_thread().is_ok()
}

/// Registers our own area for this thread, unless it was given up before.
pub(crate) fn register_this_thread() -> Result<(), i32> {
    match state().load(Relaxed) {
        REGISTERED => return Ok(()),
        DONE => return Err(libc::EINVAL),
        state => debug_assert_eq!(state, FRESH),
    }
    match call(own_offset(), ORIGINAL_LEN, 0) {
        // Busy: this very area is registered. A handler has interrupted this function after the
        // call and come here again; another's area would be invalid.
        Ok(()) | Err(libc::EBUSY) => {}
        Err(error) => return Err(error),
    }
    state().store(REGISTERED, Relaxed);
    at_exit::arm();
    Ok(())
}

/// Takes this thread's registration away, whoever made it; from now on it has no lane.
pub(crate) fn give_up() {
    let _errno = errno::save();
    let was = state().load(Relaxed);
    state().store(DONE, Relaxed);
    near::keep_out();
    if was == REGISTERED {
        // A failure leaves a registration of memory that lives as long as the thread.
        let _ = call(own_offset(), ORIGINAL_LEN, UNREGISTER);
    } else if let Some((offset, size)) = glibc() {
        // glibc states the part of its area that is in use; the registered length is the original
        // one, or from 2.41 on what the kernel asked for, rounded up to the area's alignment.
        for len in [ORIGINAL_LEN, size, size.next_multiple_of(ORIGINAL_LEN)] {
            if call(offset, len, UNREGISTER).is_ok() {
                break;
            }
        }
    }
}

fn call(area: isize, len: u32, flags: i32) -> Result<(), i32> {
    let address = thread_pointer().wrapping_add_signed(area);
    // SAFETY: the area is this thread's static TLS, 32-byte aligned, at least `len` bytes, and
    // outlives the registration, which ends with the thread.
    let result = unsafe { libc::syscall(libc::SYS_rseq, address, len, flags, SIGNATURE) };
    if result == 0 { Ok(()) } else { Err(errno::last()) }
}

/// Giving the registration up as the thread exits.
mod at_exit {
    use super::{AtomicUsize, Relaxed, c_void};

    /// The key plus one, or 0 before [`init`].
    static KEY: AtomicUsize = AtomicUsize::new(0);

    extern "C" fn give_up(_: *mut c_void) {
        super::give_up();
    }

    pub(super) fn arm() {
        let mut key = KEY.load(Relaxed);
        if key == 0 {
            let mut new: libc::pthread_key_t = 0;
            // SAFETY: the destructor is a function that takes any argument.
            if unsafe { libc::pthread_key_create(&mut new, Some(give_up)) } != 0 {
                return;
            }
            key = match KEY.compare_exchange(0, new as usize + 1, Relaxed, Relaxed) {
                Ok(_) => new as usize + 1,
                Err(first) => {
                    // SAFETY: this thread made the key and nobody has used it.
                    unsafe { libc::pthread_key_delete(new) };
                    first
                }
            };
        }
        // SAFETY: the key exists and is never deleted; any non-null value runs the destructor.
        unsafe {
            libc::pthread_setspecific(
                (key - 1) as libc::pthread_key_t,
                core::ptr::dangling::<c_void>(),
            )
        };
    }
}
