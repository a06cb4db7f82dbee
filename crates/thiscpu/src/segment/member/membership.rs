//! What a process keeps of its slot in a segment: a word that its children do not inherit.
//!
//! The word lies on a page that reads as zeros in a child of any fork, so a child holds nothing.
//! A child of `vfork` shares its parent's memory, and acts for the parent. Memberships are never
//! freed, because a handler that runs in forked children looks at all of them.

use core::ptr;

use crate::segment::budget::Participant;
use crate::sys::atomic::{
    AtomicBool, AtomicPtr, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use crate::sys::errno;
use crate::sys::fork;
use crate::sys::lock::Lock;
use crate::sys::lock_file::LockFile;

/// The membership of this process in one attached segment.
#[derive(Debug)]
pub(in crate::segment) struct Membership {
    next: AtomicPtr<Membership>,
    /// Whether it belongs to an attached segment.
    is_taken: AtomicBool,
    own_slot: OwnSlot,
    /// Held by the thread that takes a slot, or opens the file again.
    pub(in crate::segment) lock: Lock,
    /// The description that holds the lock of the slot, or a copy of the parent's.
    pub(in crate::segment) file: LockFile,
    /// When the file was last looked at, in nanoseconds.
    pub(in crate::segment) checked_at: AtomicU64,
}

/// The word that says which slot this process has taken: the slot and its generation, or 0.
///
/// It lies on a page that children find wiped. If the kernel cannot wipe pages, the handler clears
/// the word in children. Handles copy the address, because each load on the way to a pair delays
/// the locked instruction.
#[derive(Clone, Copy, Debug)]
pub(in crate::segment) struct OwnSlot(&'static AtomicU64);

/// The bits of the word that hold the slot plus 1; the others hold its generation.
const SLOT_BITS: u32 = 16;

/// All memberships of this process.
static FIRST: AtomicPtr<Membership> = AtomicPtr::new(ptr::null_mut());

/// Whether the handler of forks is registered.
static HAS_HANDLER: AtomicBool = AtomicBool::new(false);

fn all() -> impl Iterator<Item = &'static Membership> {
    // Acquire: pairs with the exchange in `take`, here and below.
    let first = FIRST.load(Acquire);
    // SAFETY: memberships in the list are never freed.
    let get = |membership: *mut Membership| unsafe { membership.as_ref() };
    core::iter::successors(get(first), move |last| get(last.next.load(Acquire)))
}

/// Returns a word of zeros that is never freed.
fn new_word() -> &'static AtomicU64 {
    match fork::wiped_page::<AtomicU64>() {
        // SAFETY: the word lies at the start of a new page, which is never unmapped.
        Some(page) => unsafe { page.as_ref() },
        None => Box::leak(Box::new(AtomicU64::new(0))),
    }
}

impl Membership {
    /// Returns a membership that nobody else has, without a slot.
    pub(in crate::segment) fn take() -> &'static Membership {
        if !HAS_HANDLER.swap(true, AcqRel) {
            // SAFETY: the handler makes system calls and stores to atomics, which the child of a
            // multi-threaded process may do.
            unsafe { libc::pthread_atfork(None, None, Some(leave_to_parent)) };
        }
        // Acquire: pairs with the Release in `put_back`.
        let unused =
            all().find(|it| it.is_taken.compare_exchange(false, true, Acquire, Relaxed).is_ok());
        unused.unwrap_or_else(|| {
            let new = Box::leak(Box::new(Membership {
                next: AtomicPtr::new(ptr::null_mut()),
                is_taken: AtomicBool::new(true),
                own_slot: OwnSlot(new_word()),
                lock: Lock::new(),
                file: LockFile::new(),
                checked_at: AtomicU64::new(0),
            }));
            let mut first = FIRST.load(Relaxed);
            loop {
                new.next.store(first, Relaxed);
                // Release: pairs with the Acquire loads in `all`.
                match FIRST.compare_exchange(first, new, Release, Relaxed) {
                    Ok(_) => return new,
                    Err(now) => first = now,
                }
            }
        })
    }

    /// Gives up a membership that [`take`](Self::take) has returned.
    pub(in crate::segment) fn put_back(&self) {
        self.set_participant(None);
        self.file.close();
        // Release: pairs with the Acquire in `take`.
        self.is_taken.store(false, Release);
    }

    pub(in crate::segment) fn own_slot(&self) -> OwnSlot {
        self.own_slot
    }

    /// Returns the slot that this process has taken, if it has.
    pub(in crate::segment) fn participant(&self) -> Option<Participant> {
        self.own_slot.participant()
    }

    pub(in crate::segment) fn set_participant(&self, participant: Option<Participant>) {
        let word = participant.map_or(0, |Participant { slot, generation }| {
            generation << SLOT_BITS | u64::from(slot + 1)
        });
        // Release: pairs with the Acquire in `OwnSlot::participant`.
        self.own_slot.0.store(word, Release);
    }
}

impl OwnSlot {
    #[inline(always)]
    fn word(self) -> Option<u64> {
        // Acquire: pairs with the Release in `Membership::set_participant`.
        Some(self.0.load(Acquire)).filter(|&word| word != 0)
    }

    /// Returns the number of the slot that this process has taken, if it has.
    ///
    /// It is below the number of slots of the segment to which the membership belongs.
    #[inline(always)]
    pub(in crate::segment) fn number(self) -> Option<usize> {
        // Never wraps. A checked subtraction would be one instruction more on the way to a pair.
        self.word().map(|word| usize::from(word as u16).wrapping_sub(1))
    }

    /// Returns the slot that this process has taken, if it has.
    #[inline(always)]
    pub(in crate::segment) fn participant(self) -> Option<Participant> {
        self.word().map(|word| {
            let slot = u32::from(word as u16) - 1;
            Participant { slot, generation: word >> SLOT_BITS }
        })
    }
}

/// Closes a child's copies of its parent's locks; runs in children of `fork`.
extern "C" fn leave_to_parent() {
    let _errno = errno::save();
    for membership in all() {
        membership.set_participant(None);
        membership.file.close();
    }
}
