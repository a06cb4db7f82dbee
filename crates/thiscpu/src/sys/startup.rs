//! Start-up: chooses what this process runs on, once.

use core::fmt;
use core::sync::atomic::{
    AtomicBool, AtomicU8,
    Ordering::{AcqRel, Acquire, Relaxed},
};
use std::ffi::CStr;

use super::{double, env, errno, fork, keep_mapped, membarrier, rseq, stderr::write_line};
use crate::error::{Error, UnknownTier};
use crate::tier::Tier;

#[cfg(thiscpu_model)]
pub(crate) use crate::model::tier as chosen;

/// The tier plus one, or 0 before start-up.
static CHOSEN: AtomicU8 = AtomicU8::new(0);

/// The tier, if it has been chosen.
#[cfg(not(thiscpu_model))]
#[inline]
pub(crate) fn chosen() -> Option<Tier> {
    // Acquire: pairs with the Release in `initialize`; what start-up set up is there.
    match CHOSEN.load(Acquire) {
        0 => None,
        chosen => Some(Tier::ALL[usize::from(chosen) - 1]),
    }
}

/// The tier this process runs on, chosen at the first use of the library or by this call.
///
/// `THISCPU_TIER` forces one; it is not read in a program that has more rights than whoever started
/// it. Costs a load once it is chosen; a few system calls before. May be called from anywhere, a
/// signal handler included, except that in a plugin which links this library statically the first
/// use must not be in a signal handler.
///
/// # Errors
///
/// `THISCPU_TIER` names no tier, or one that cannot be had here. Nothing else fails: there is
/// always the atomic tier.
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

/// The tier, for an allocator: nothing can run without it, and every child inherits the environment. A wrong
/// `THISCPU_TIER` is a warning, once, and the best tier is taken. Allocates nothing.
pub(crate) fn tier_or_best() -> Tier {
    chosen().unwrap_or_else(|| {
        let _errno = errno::save();
        initialize(&choose_leniently())
    })
}

/// The tier, for calls that cannot return an error.
///
/// # Panics
///
/// If `THISCPU_TIER` is wrong.
pub(crate) fn tier_or_panic() -> Tier {
    tier().unwrap_or_else(|error| panic!("thiscpu: {error}"))
}

/// Takes no lock, so that a signal handler may interrupt it and use the library: both do the same.
#[cold]
fn initialize(choice: &Choice) -> Tier {
    assert!(double::is_available(), "thiscpu: this processor has no 16-byte compare-exchange");
    fork::init();
    let number = 1 + Tier::ALL.iter().position(|&tier| tier == choice.tier).unwrap_or(2) as u8;
    // The first choice stands: what was laid out by it must not be read by another, and threads may
    // come to different ones where a sandbox holds only some of them. Release: pairs with the
    // Acquire in `chosen`.
    if CHOSEN.compare_exchange(0, number, AcqRel, Acquire).is_ok() && choice.tier != Tier::Atomic {
        // Until this is done sections are refused, and adds take the slow lane.
        choice.registration.publish(choice.tier == Tier::RseqCid);
    }
    chosen().unwrap_or(choice.tier)
}

/// What start-up decides, and reason.
pub(crate) struct Choice {
    pub(crate) tier: Tier,
    pub(crate) forced: bool,
    pub(crate) registration: rseq::Registration,
    /// Whether the fence can be had.
    pub(crate) fence: Result<(), i32>,
    /// Why not `rseq-cid`, and reason not any section; empty if nothing stands in the way.
    pub(crate) why_not_cid: &'static str,
    pub(crate) why_not_rseq: &'static str,
}

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

fn choose_leniently() -> Choice {
    let requested = env::var(VARIABLE, |value| {
        named(value).unwrap_or_else(|unknown| {
            warn(&UnknownTier(unknown.escape_ascii()));
            None
        })
    });
    let mut choice = Choice::of_best(requested);
    if let Some(Err(error)) = requested.map(|requested| choice.force(requested)) {
        warn(&error);
    }
    choice
}

/// Says once what is wrong with `THISCPU_TIER`.
fn warn(wrong: &dyn fmt::Display) {
    static SAID: AtomicBool = AtomicBool::new(false);
    // Relaxed: nothing else depends on who is first.
    if !SAID.swap(true, Relaxed) {
        write_line(
            libc::STDERR_FILENO,
            format_args!("thiscpu: warning, going on without it: {wrong}"),
        );
    }
}

impl Choice {
    /// The best tier. A thread is only registered where sections will run: in the atomic tier, if that is
    /// requested for, one must not.
    fn of_best(requested: Option<Tier>) -> Choice {
        let fence = membarrier::register();
        let pinned = keep_mapped::init();
        let obstacle = obstacle(fence, pinned);
        let without = requested == Some(Tier::Atomic) || chosen() == Some(Tier::Atomic);
        let registration = rseq::probe(obstacle.is_empty() && !without);
        let why_not_rseq = match obstacle {
            "" => registration.why_not,
            _ => obstacle,
        };
        let why_not_cid = match () {
            () if !why_not_rseq.is_empty() => why_not_rseq,
            () if !registration.has_mm_cid() => {
                "this kernel gives no mm_cid (it came with Linux 6.3)"
            }
            () => "",
        };
        let tier = match (why_not_cid, why_not_rseq) {
            ("", _) => Tier::RseqCid,
            (_, "") => Tier::RseqCpu,
            _ => Tier::Atomic,
        };
        Choice { tier, forced: false, registration, fence, why_not_cid, why_not_rseq }
    }

    /// Takes another tier than the best, if it can be had.
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

/// What stands in the way of sections, whoever registers; empty if nothing does.
fn obstacle(fence: Result<(), i32>, pinned: bool) -> &'static str {
    match fence {
        _ if !pinned => "the shared object that holds this library cannot be kept loaded",
        _ if kernel_does_not_abort() => {
            "Linux 6.19 on arm64 does not restart a section when another thread takes its CPU"
        }
        Err(libc::ENOSYS) => "there is no membarrier: the kernel is too old, or a sandbox hides it",
        Err(libc::EINVAL) => "membarrier cannot fence sections (it can from Linux 5.10)",
        Err(_) => "a sandbox denies membarrier",
        Ok(()) => "",
    }
}

/// arm64 lost the abort on preemption by another thread of the same CPU in 6.19 (reported on
/// linux-arm-kernel, April 2026).
fn kernel_does_not_abort() -> bool {
    cfg!(target_arch = "aarch64") && kernel_release(|release| release.starts_with("6.19"))
}

fn kernel_release(check: impl Fn(&str) -> bool) -> bool {
    // SAFETY: uname fills the struct, whose fields end with a zero byte; zeroes are a valid start.
    unsafe {
        let mut names: libc::utsname = core::mem::zeroed();
        libc::uname(&mut names) == 0
            && CStr::from_ptr(names.release.as_ptr()).to_str().is_ok_and(check)
    }
}

/// What forces a tier.
const VARIABLE: &CStr = c"THISCPU_TIER";

/// What its value asks for, or the value if that names no tier; unset and empty ask for nothing.
fn named(value: Option<&[u8]>) -> Result<Option<Tier>, &[u8]> {
    let value = value.unwrap_or_default();
    match Tier::ALL.iter().find(|tier| tier.name().as_bytes() == value) {
        _ if value.is_empty() => Ok(None),
        Some(&tier) => Ok(Some(tier)),
        None => Err(value),
    }
}
