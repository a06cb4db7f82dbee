//! Breakpoints, and what happens when the program runs into one.
//!
//! The kernel aborts a section before it delivers a signal in it. So the handler of a breakpoint in a
//! range finds the thread at that section's abort handler; it takes the breakpoint away, does what
//! conflicts, and returns there. At a breakpoint outside of a range it finds the thread at the
//! breakpoint, and returns to the instruction that stood there.

use std::cell::{Cell, RefCell};
use std::io;
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::SeqCst};

use anyhow::{Result, ensure};

use thiscpu::__test_support;

use crate::copies::Inlined;
use crate::memory::Memory;
use crate::point::{BREAKPOINT, PAST, Place, Point};

/// More traps than any op can run into before it turns to its slow lane.
const TRAPS_MAX: u32 = 200;

/// Which breakpoints are set, and how often each is run into.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Plan<'a> {
    /// All ranges begin with one, each once: to see which copies an op passes.
    Explore,
    /// One at the target, and one at the beginning of each copy that is passed before, each once.
    Once(Target<'a>),
    /// One at the target and one at the beginning of each copy behind it, which stay; and one at the
    /// beginning of each copy that is passed before, once.
    Always(Target<'a>),
}

/// A point that an op comes to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    /// The copies that the op passes when each is aborted once.
    pub(crate) path: &'a [usize],
    /// Which of them the point is in.
    pub(crate) at: usize,
    pub(crate) point: Point,
}

impl<'a> Target<'a> {
    /// The copies that must be aborted first.
    pub(crate) fn passes(&self) -> &'a [usize] {
        &self.path[..self.at]
    }

    fn is_in(&self, copy: usize) -> bool {
        self.path[self.at] == copy
    }
}

/// Breakpoints that are set while an op runs, and what they found.
pub(crate) struct Trap<'a> {
    memory: &'a Memory,
    copies: &'a [Inlined],
    plan: Plan<'a>,
    conflict: &'a dyn Fn(),
    /// Called when the op begins again after what conflicted.
    look: Option<&'a dyn Fn()>,
    /// The breakpoints that are still there.
    set: RefCell<Vec<Point>>,
    /// The copies that were aborted at their beginning, in this order.
    pub(crate) passed: RefCell<Vec<usize>>,
    /// Whether the point was reached.
    pub(crate) hit: Cell<bool>,
    pub(crate) traps: Cell<u32>,
    pub(crate) wrong: RefCell<Option<String>>,
}

/// What the handler finds. One thread at a time runs into breakpoints.
static TRAP: AtomicPtr<Trap<'static>> = AtomicPtr::new(ptr::null_mut());

/// Has SIGTRAP handled here, for good.
pub(crate) fn install() -> Result<()> {
    // SAFETY: all zeroes is a valid sigaction: the default action, and an empty mask.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = trapped as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO;
    // SAFETY: the handler takes the three arguments that SA_SIGINFO gives, and is never unloaded.
    let result = unsafe { libc::sigaction(libc::SIGTRAP, &action, ptr::null_mut()) };
    ensure!(result == 0, "SIGTRAP cannot be handled: {}", io::Error::last_os_error());
    Ok(())
}

impl<'a> Trap<'a> {
    pub(crate) fn new(
        memory: &'a Memory,
        copies: &'a [Inlined],
        plan: Plan<'a>,
        conflict: &'a dyn Fn(),
    ) -> Trap<'a> {
        Trap {
            memory,
            copies,
            plan,
            conflict,
            look: None,
            set: RefCell::default(),
            passed: RefCell::default(),
            hit: Cell::new(false),
            traps: Cell::new(0),
            wrong: RefCell::default(),
        }
    }

    /// Stops the op once more in each copy that it passed before the target, should it come back there,
    /// and calls `look`.
    pub(crate) fn looking(self, look: &'a dyn Fn()) -> Trap<'a> {
        Trap { look: Some(look), ..self }
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

    /// The points at which breakpoints are set at first.
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
            give_up(&format!("the code at {address:#x} cannot be written: {error}"));
        }
    }

    /// What the handler does; `pc` is where it found the thread. Where the thread goes on.
    fn sprung(&self, pc: usize) -> usize {
        self.traps.set(self.traps.get() + 1);
        if self.traps.get() > TRAPS_MAX {
            self.say(format!("it was aborted {TRAPS_MAX} times and goes on trying"));
            self.disarm();
            return pc;
        }
        match self.copies.iter().position(|copy| copy.abort == pc) {
            Some(aborted) => self.aborted(aborted, pc),
            None => self.not_aborted(pc),
        }
    }

    fn aborted(&self, aborted: usize, pc: usize) -> usize {
        match self.plan {
            Plan::Once(target) if target.is_in(aborted) && target.point.place == Place::Inside => {
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
                if let (true, Some(look)) = (self.hit.get(), self.look) {
                    look();
                }
            }
        }
        pc
    }

    fn not_aborted(&self, pc: usize) -> usize {
        let at = pc - PAST;
        let found = self.set.borrow().iter().copied().find(|point| point.address == at);
        let Some(point) = found else {
            give_up(&format!("a trap at {at:#x}, where there is no breakpoint"));
        };
        if point.place == Place::Inside && self.is_no_section(at) {
            self.set.borrow_mut().retain(|other| other.address != at);
            self.put(at, &point.code);
        } else if point.place == Place::Inside {
            self.say(format!("the kernel did not abort it at {at:#x}"));
            self.disarm();
        } else {
            self.reached();
        }
        at
    }

    /// Whether that is in a near section, which a thread that was not let in only passes: it is refused there.
    fn is_no_section(&self, at: usize) -> bool {
        let here = |copy: &&Inlined| copy.points.iter().any(|point| point.address == at);
        self.copies.iter().find(here).is_some_and(Inlined::is_near)
            && !__test_support::is_direct_enabled()
    }

    fn reached(&self) {
        self.hit.set(true);
        // First, because what conflicts runs through the same code.
        self.disarm();
        (self.conflict)();
        if let (Some(_), Plan::Once(target)) = (self.look, self.plan) {
            self.arm(
                target.passes().iter().map(|&copy| first_inside(&self.copies[copy])).collect(),
            );
        }
    }

    fn say(&self, wrong: String) {
        self.wrong.borrow_mut().get_or_insert(wrong);
    }
}

fn first_inside(copy: &Inlined) -> Point {
    // Every copy has points inside; `point::all` saw to that.
    copy.points.iter().copied().find(|point| point.place == Place::Inside).unwrap_or(copy.points[0])
}

/// A signal handler; but what it interrupts are sections and the few instructions around them, which
/// hold no lock and allocate nothing. So it may do what any code may.
extern "C" fn trapped(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands a SA_SIGINFO handler the interrupted thread's context, this handler's
    // alone until it returns.
    let pc = pc(unsafe { &mut *context.cast::<libc::ucontext_t>() });
    // SAFETY: null, or what `around` points to, on this thread, until the op returns.
    match unsafe { TRAP.load(SeqCst).as_ref() } {
        Some(trap) => *pc = trap.sprung(*pc as usize) as _,
        None => give_up(&format!("a trap at {pc:#x}, where nothing is being driven")),
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

/// There is no way back from a breakpoint that cannot be explained or taken away.
fn give_up(why: &str) -> ! {
    eprintln!("thiscpu-aborts: {why}");
    std::process::abort()
}
