//! Breakpoints, and their handler.
//!
//! The kernel aborts a section before it delivers a signal in it. So the handler of a breakpoint in
//! a range finds the thread at that section's abort handler. It removes the breakpoint, causes the
//! conflict, and returns there. At a breakpoint outside of ranges the handler finds the thread at
//! the breakpoint, and returns to the original instruction.

use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::SeqCst};

use anyhow::{Context as _, Result};
use thiscpu::__test_support;
use thiscpu_test_support::signals;

use crate::copies::SectionCopy;
use crate::memory::Memory;
use crate::point::{BREAKPOINT, PAST, Point, PointKind};

/// More traps than any operation can hit before it uses the shared lane.
const TRAPS_MAX: u32 = 200;

/// The breakpoints that are set, and how often each is hit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Plan<'a> {
    /// One at the start of each range, once each, to find the copies that an operation executes.
    Explore,
    /// One at the target, and one at the start of each copy before it, once each.
    Once(Target<'a>),
    /// One at the target and one at the start of each copy behind it, each time.
    ///
    /// Also one at the start of each copy before it, once.
    Always(Target<'a>),
}

/// A point that an operation reaches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    /// The copies that the operation executes if each is aborted once.
    pub(crate) path: &'a [usize],
    /// The index of the copy that contains the point.
    pub(crate) at: usize,
    pub(crate) point: Point,
}

impl<'a> Target<'a> {
    /// Returns the copies that must be aborted first.
    pub(crate) fn passes(&self) -> &'a [usize] {
        &self.path[..self.at]
    }

    fn is_in(&self, copy: usize) -> bool {
        self.path[self.at] == copy
    }
}

/// Breakpoints that are set while an operation runs, and their findings.
pub(crate) struct Trap<'a> {
    memory: &'a Memory,
    copies: &'a [SectionCopy],
    plan: Plan<'a>,
    conflict: &'a dyn Fn(),
    /// Called when the operation tries again after the conflict.
    check: Option<&'a dyn Fn()>,
    /// The breakpoints that are still set.
    set: RefCell<Vec<Point>>,
    /// The copies that were aborted at their start, in this order.
    pub(crate) passed: RefCell<Vec<usize>>,
    /// Whether the point was reached.
    pub(crate) hit: Cell<bool>,
    pub(crate) traps: Cell<u32>,
    pub(crate) mismatch: RefCell<Option<String>>,
}

/// The trap that the handler uses. One thread at a time hits breakpoints.
static TRAP: AtomicPtr<Trap<'static>> = AtomicPtr::new(ptr::null_mut());

/// Installs the handler of SIGTRAP, which stays.
pub(crate) fn install() -> Result<()> {
    // SAFETY: the handler takes the three arguments that SA_SIGINFO gives. It interrupts only code
    // in which any call is allowed.
    let result = unsafe { signals::install(libc::SIGTRAP, trapped as *const (), libc::SA_SIGINFO) };
    result.context("cannot handle SIGTRAP")
}

impl<'a> Trap<'a> {
    pub(crate) fn new(
        memory: &'a Memory,
        copies: &'a [SectionCopy],
        plan: Plan<'a>,
        conflict: &'a dyn Fn(),
    ) -> Trap<'a> {
        Trap {
            memory,
            copies,
            plan,
            conflict,
            check: None,
            set: RefCell::default(),
            passed: RefCell::default(),
            hit: Cell::new(false),
            traps: Cell::new(0),
            mismatch: RefCell::default(),
        }
    }

    /// Stops a repeated operation again in each copy before the target, and calls `check`.
    pub(crate) fn with_check(self, check: &'a dyn Fn()) -> Trap<'a> {
        Trap { check: Some(check), ..self }
    }

    /// Runs `op` with the breakpoints set.
    pub(crate) fn around<R>(&self, op: impl FnOnce() -> R) -> R {
        TRAP.store(ptr::from_ref(self).cast_mut().cast(), SeqCst);
        self.arm(self.points());
        let result = op();
        self.disarm();
        TRAP.store(ptr::null_mut(), SeqCst);
        result
    }

    /// Returns the points of the first breakpoints.
    fn points(&self) -> Vec<Point> {
        let begin = |&copy: &usize| first_inside(&self.copies[copy]);
        match self.plan {
            Plan::Explore => self.copies.iter().map(first_inside).collect(),
            Plan::Once(target) => target.passes().iter().map(begin).chain([target.point]).collect(),
            Plan::Always(target) => {
                let others = target.path.iter().filter(|&&copy| !target.is_in(copy));
                others.map(begin).chain([target.point]).collect()
            }
        }
    }

    fn arm(&self, points: Vec<Point>) {
        points.iter().for_each(|point| self.put(point.address, &BREAKPOINT));
        self.set.replace(points);
    }

    fn disarm(&self) {
        self.set.take().iter().for_each(|point| self.put(point.address, &point.code));
    }

    fn put(&self, address: usize, code: &[u8]) {
        if let Err(error) = self.memory.write(address, code) {
            abort(&format!("cannot write code at {address:#x}: {error}"));
        }
    }

    /// Handles a trap at `pc`, and returns where the thread continues.
    fn on_trap(&self, pc: usize) -> usize {
        self.traps.set(self.traps.get() + 1);
        if self.traps.get() > TRAPS_MAX {
            self.record(format!("it still tries after {TRAPS_MAX} aborts"));
            self.disarm();
            return pc;
        }
        match self.copies.iter().position(|copy| copy.abort == pc) {
            Some(aborted) => self.aborted(aborted, pc),
            None => self.outside_section(pc),
        }
    }

    fn aborted(&self, aborted: usize, pc: usize) -> usize {
        match self.plan {
            Plan::Once(target)
                if target.is_in(aborted) && target.point.kind == PointKind::Inside =>
            {
                self.reached();
            }
            Plan::Always(target) if !target.passes().contains(&aborted) => {
                self.hit.set(self.hit.get() || target.is_in(aborted));
            }
            _ => {
                let begin = first_inside(&self.copies[aborted]);
                self.set.borrow_mut().retain(|point| point.address != begin.address);
                self.put(begin.address, &begin.code);
                self.passed.borrow_mut().push(aborted);
                if let (true, Some(check)) = (self.hit.get(), self.check) {
                    check();
                }
            }
        }
        pc
    }

    fn outside_section(&self, pc: usize) -> usize {
        let at = pc - PAST;
        let found = self.set.borrow().iter().copied().find(|point| point.address == at);
        let Some(point) = found else {
            abort(&format!("a trap at {at:#x}, which is not a breakpoint"));
        };
        if point.kind == PointKind::Inside && self.is_disabled(at) {
            self.set.borrow_mut().retain(|other| other.address != at);
            self.put(at, &point.code);
        } else if point.kind == PointKind::Inside {
            self.record(format!("the kernel did not abort it at {at:#x}"));
            self.disarm();
        } else {
            self.reached();
        }
        at
    }

    /// Returns whether `at` is in a direct section that refuses this thread.
    fn is_disabled(&self, at: usize) -> bool {
        let has_point = |copy: &&SectionCopy| copy.points.iter().any(|point| point.address == at);
        self.copies.iter().find(has_point).is_some_and(SectionCopy::is_direct)
            && !__test_support::is_direct_enabled()
    }

    fn reached(&self) {
        self.hit.set(true);
        // First, because the conflict executes the same code.
        self.disarm();
        (self.conflict)();
        if let (Some(_), Plan::Once(target)) = (self.check, self.plan) {
            self.arm(
                target.passes().iter().map(|&copy| first_inside(&self.copies[copy])).collect(),
            );
        }
    }

    fn record(&self, mismatch: String) {
        self.mismatch.borrow_mut().get_or_insert(mismatch);
    }
}

fn first_inside(copy: &SectionCopy) -> Point {
    // `point::all` refuses a copy without points inside.
    copy.points
        .iter()
        .copied()
        .find(|point| point.kind == PointKind::Inside)
        .unwrap_or(copy.points[0])
}

/// Handles SIGTRAP.
///
/// The interrupted code is a section or one of the few instructions around it. It holds no lock and
/// does not allocate, so the handler may do what any code may.
extern "C" fn trapped(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives a SA_SIGINFO handler the interrupted thread's context, which only
    // this handler uses until it returns.
    let pc = pc(unsafe { &mut *context.cast::<libc::ucontext_t>() });
    // SAFETY: null, or a trap that `around` keeps alive on this thread until the operation returns.
    match unsafe { TRAP.load(SeqCst).as_ref() } {
        Some(trap) => *pc = trap.on_trap(*pc as usize) as _,
        None => abort(&format!("a trap at {pc:#x}, while no operation is driven")),
    }
}

#[cfg(target_arch = "x86_64")]
fn pc(context: &mut libc::ucontext_t) -> &mut i64 {
    &mut context.uc_mcontext.gregs[libc::REG_RIP as usize]
}

#[cfg(target_arch = "aarch64")]
fn pc(context: &mut libc::ucontext_t) -> &mut u64 {
    &mut context.uc_mcontext.pc
}

/// Aborts the process: a breakpoint is unknown or cannot be removed.
fn abort(why: &str) -> ! {
    eprintln!("thiscpu-aborts: {why}");
    std::process::abort()
}
