//! Start-up: chooses the tier of this process, once.

use core::fmt;
use core::ptr;
use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use std::ffi::CStr;

use super::degradation::{self, DegradationKind};
use super::{double, env, errno, fork, keep_mapped, membarrier, rseq, stderr::write_line};
use crate::error::{Error, UnknownTier};
use crate::tier::Tier;

#[cfg(thiscpu_model)]
pub(crate) use crate::model::tier as chosen;

/// The tier plus one, or 0 before start-up.
static CHOSEN: AtomicU8 = AtomicU8::new(0);

/// Why start-up could not choose `rseq-cid`, or sections at all; null before start-up.
static WHY_NOT: [AtomicPtr<&'static str>; 2] = [const { AtomicPtr::new(ptr::null_mut()) }; 2];

#[cfg(not(thiscpu_model))]
#[inline]
pub(crate) fn chosen() -> Option<Tier> {
    // Acquire: pairs with the exchange in `initialize`; what start-up set up before it is visible.
    Tier::ALL.get(usize::from(CHOSEN.load(Acquire)).wrapping_sub(1)).copied()
}

/// Returns the tier of this process, and chooses it if this is the first use of the crate.
///
/// The environment variable `THISCPU_TIER` forces a tier. A program with more rights than its
/// caller, such as a set-user-ID program, ignores the variable. Costs a load once the tier is
/// chosen, and a few system calls before.
///
/// May be called from anywhere, signal handlers included. One exception: if a plugin links this
/// crate statically, the plugin's first use must not be in a signal handler.
///
/// # Errors
///
/// Returns an error if `THISCPU_TIER` does not name a tier, or names one that is not available.
/// Nothing else fails, because the atomic tier is always available.
///
/// ```
/// println!("running on {}", thiscpu::tier()?);
/// # Ok::<(), thiscpu::Error>(())
/// ```
pub fn tier() -> Result<Tier, Error> {
    match chosen() {
        Some(tier) => Ok(tier),
        None => {
            let _errno = errno::save();
            Ok(initialize(&choose()?))
        }
    }
}

/// Returns the tier, or the best one after a warning if `THISCPU_TIER` is wrong.
///
/// This is for allocators. No program can run without its allocator, and every child inherits the
/// environment. Allocates nothing.
pub(crate) fn tier_or_best() -> Tier {
    chosen().unwrap_or_else(|| {
        let _errno = errno::save();
        initialize(&choose_leniently())
    })
}

/// Returns the tier, for calls that cannot return an error.
///
/// # Panics
///
/// If `THISCPU_TIER` does not name a tier, or names one that is not available.
pub(crate) fn tier_or_panic() -> Tier {
    tier().unwrap_or_else(|error| panic!("thiscpu: {error}"))
}

/// Sets the process up for a choice, and returns the tier that counts.
///
/// Takes no lock: a signal handler that interrupts this may do all of it again.
#[cold]
fn initialize(choice: &Choice) -> Tier {
    assert!(double::is_available(), "thiscpu: this processor has no 16-byte compare-exchange");
    fork::init();
    let number = 1 + Tier::ALL.iter().position(|&tier| tier == choice.tier).unwrap_or(2) as u8;
    // The first choice stands, because objects are laid out by it. Threads may come to different
    // choices if a sandbox restricts only some of them. AcqRel: pairs with the Acquire in `chosen`.
    if CHOSEN.compare_exchange(0, number, AcqRel, Acquire).is_ok() {
        for (noted, why) in WHY_NOT.iter().zip([choice.why_not_cid, choice.why_not_rseq]) {
            // Relaxed: the texts are constants.
            noted.store(ptr::from_ref(why).cast_mut(), Relaxed);
        }
        #[cfg(not(thiscpu_model))]
        choice.registration.publish_hint();
        match choice.tier {
            Tier::Atomic => degradation::note(DegradationKind::AtomicTier, 0),
            // Until this is done sections are refused, and adds go to the shared lane.
            tier => choice.registration.publish(tier == Tier::RseqCid),
        }
    }
    chosen().unwrap_or(choice.tier)
}

pub(crate) struct Choice {
    pub(crate) tier: Tier,
    /// Whether `THISCPU_TIER` forced the tier.
    pub(crate) forced: bool,
    pub(crate) registration: rseq::Registration,
    /// Whether the kernel offers the fence; if not, the error number.
    pub(crate) fence: Result<(), i32>,
    /// Why `rseq-cid` is not available; empty if it is.
    pub(crate) why_not_cid: &'static &'static str,
    /// Why sections are not available; empty if they are.
    pub(crate) why_not_rseq: &'static &'static str,
}

/// Chooses the tier that `THISCPU_TIER` names, or the best one.
pub(crate) fn choose() -> Result<Choice, Error> {
    let requested = env::var(VARIABLE, |value| {
        named(value).map_err(|unknown| Error::UnknownTier {
            requested: String::from_utf8_lossy(unknown).into_owned(),
        })
    })?;
    let mut choice = Choice::of_best(requested);
    requested.map_or(Ok(()), |requested| choice.force(requested))?;
    Ok(choice)
}

/// Returns what the system offers to this process now, which is on `tier`.
///
/// The reasons against better tiers are those of start-up, because they led to the tier.
pub(crate) fn survey(tier: Tier) -> Choice {
    let requested = env::var(VARIABLE, |value| named(value).ok().flatten());
    let mut choice = Choice::of_best(requested);
    (choice.tier, choice.forced) = (tier, requested == Some(tier));
    for (noted, why) in WHY_NOT.iter().zip([&mut choice.why_not_cid, &mut choice.why_not_rseq]) {
        // SAFETY: the pointer is null, or that of a constant, which lives forever.
        if let Some(noted) = unsafe { noted.load(Relaxed).as_ref() } {
            *why = noted;
        }
    }
    choice
}

/// Chooses as `choose` does, but turns errors into warnings and takes the best tier.
fn choose_leniently() -> Choice {
    let requested = env::var(VARIABLE, |value| {
        named(value).unwrap_or_else(|unknown| {
            // The process that started this one has warned about a value with the mark.
            if unknown.first() != Some(&WARNED_MARK) {
                warn(&UnknownTier(unknown.escape_ascii()));
            }
            None
        })
    });
    let mut choice = Choice::of_best(requested);
    if let Some(Err(error)) = requested.map(|requested| choice.force(requested)) {
        warn(&error);
    }
    choice
}

/// The first byte of a wrong `THISCPU_TIER` after an allocator has warned about it.
///
/// It begins no tier's name, so that programs that use thiscpu themselves still get the error.
pub const WARNED_MARK: u8 = b'?';

/// Writes to standard error, once, why `THISCPU_TIER` is ignored.
fn warn(wrong: &dyn fmt::Display) {
    static WARNED: AtomicBool = AtomicBool::new(false);
    // Relaxed: only one thread may warn; nothing else depends on which.
    if !WARNED.swap(true, Relaxed) {
        write_line(
            libc::STDERR_FILENO,
            format_args!("thiscpu: warning: THISCPU_TIER is ignored: {wrong}"),
        );
    }
}

impl Choice {
    /// Finds the best tier.
    ///
    /// Registers this thread only if sections may run. If the atomic tier is requested, no thread
    /// may be registered.
    fn of_best(requested: Option<Tier>) -> Choice {
        let fence = membarrier::register();
        let stays_mapped = keep_mapped::init();
        if stays_mapped {
            // Before the thread is registered: it may be a child of `vfork`.
            rseq::vfork::join();
        }
        let obstacle = obstacle(fence, stays_mapped);
        let without = requested == Some(Tier::Atomic) || chosen() == Some(Tier::Atomic);
        let registration = rseq::probe(obstacle.is_empty() && !without);
        let why_not_rseq = if obstacle.is_empty() { registration.why_not } else { obstacle };
        let why_not_cid = match () {
            () if !why_not_rseq.is_empty() => why_not_rseq,
            () if !registration.has_mm_cid() => {
                &"this kernel has no mm_cid (it came with Linux 6.3)"
            }
            () => &"",
        };
        let tier = match () {
            () if why_not_cid.is_empty() => Tier::RseqCid,
            () if why_not_rseq.is_empty() => Tier::RseqCpu,
            () => Tier::Atomic,
        };
        Choice { tier, forced: false, registration, fence, why_not_cid, why_not_rseq }
    }

    /// Takes the requested tier instead of the best one, if it is available.
    fn force(&mut self, requested: Tier) -> Result<(), Error> {
        let reason = match requested {
            Tier::RseqCid => self.why_not_cid,
            Tier::RseqCpu => self.why_not_rseq,
            Tier::Atomic => "",
        };
        if !reason.is_empty() {
            return Err(Error::TierUnavailable { requested, best: self.tier, reason });
        }
        (self.tier, self.forced) = (requested, true);
        Ok(())
    }
}

/// Returns why this process cannot run sections, apart from registration; empty if it can.
fn obstacle(fence: Result<(), i32>, stays_mapped: bool) -> &'static &'static str {
    match fence {
        _ if !stays_mapped => &"the shared object that holds this library cannot be kept loaded",
        _ if kernel_does_not_abort() => {
            &"Linux 6.19 on arm64 does not restart a section when another thread takes its CPU"
        }
        Err(libc::ENOSYS) => {
            &"there is no membarrier: the kernel is too old, or a sandbox hides it"
        }
        Err(libc::EINVAL) => &"membarrier cannot fence sections (it can from Linux 5.10)",
        Err(_) => &"a sandbox denies membarrier",
        Ok(()) => &"",
    }
}

/// Returns whether this kernel fails to abort a section that another thread preempts.
///
/// Linux 6.19 lost that abort on arm64 (reported on linux-arm-kernel, April 2026).
fn kernel_does_not_abort() -> bool {
    cfg!(target_arch = "aarch64") && kernel_release(|release| release.starts_with("6.19"))
}

fn kernel_release(check: impl Fn(&str) -> bool) -> bool {
    // SAFETY: an all-zero struct is valid; uname fills its fields with strings that end with a zero
    // byte.
    unsafe {
        let mut names: libc::utsname = core::mem::zeroed();
        libc::uname(&mut names) == 0
            && CStr::from_ptr(names.release.as_ptr()).to_str().is_ok_and(check)
    }
}

const VARIABLE: &CStr = c"THISCPU_TIER";

/// Parses `THISCPU_TIER`, which requests nothing if empty; `Err` if it names no tier.
fn named(value: Option<&[u8]>) -> Result<Option<Tier>, &[u8]> {
    let value = value.unwrap_or_default();
    match Tier::ALL.iter().find(|tier| tier.name().as_bytes() == value) {
        _ if value.is_empty() => Ok(None),
        Some(&tier) => Ok(Some(tier)),
        None => Err(value),
    }
}
