//! The modelled machine: its threads, their CPUs, and everything that `sys` requests.

use std::any::{Any, TypeId};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::checker::Checker;
use super::memory::AddressSpace;
use crate::sys::atomic::{AtomicU32, Ordering};
use crate::sys::machine;
use crate::sys::membarrier::FenceError;
use crate::tier::Tier;

/// The machine of a test.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// The number of CPUs.
    pub cpus: usize,
    /// The tier of the process.
    pub tier: Tier,
    /// The kernel's index of CPU 0, and the distance between the indices of consecutive CPUs.
    pub indices: (usize, usize),
    /// The number of NUMA nodes, to which CPUs belong in turn.
    pub nodes: usize,
    /// One step in this many is preceded by a signal or a move to another CPU; 0 for none.
    ///
    /// Only a checker that makes random choices does this.
    pub preempt_one_in: usize,
}

impl Machine {
    /// Creates a machine that preempts one step in 20, with one node and consecutive indices.
    pub const fn new(cpus: usize, tier: Tier) -> Machine {
        Machine { cpus, tier, indices: (0, 1), nodes: 1, preempt_one_in: 20 }
    }
}

/// The state of a thread on the machine.
#[derive(Clone, Copy, Debug)]
struct State {
    cpu: usize,
    has_lane: bool,
    /// The section that the thread is in.
    section: Option<u64>,
    /// The steps that the thread takes before it is killed or interrupted.
    steps_left: Option<usize>,
}

/// The payload with which a thread ends that is killed.
struct Killed;

pub(super) struct Execution {
    pub(super) machine: Machine,
    pub(super) checker: Box<dyn Checker>,
    pub(super) address_space: AddressSpace,
    threads: RefCell<Vec<State>>,
    locals: RefCell<HashMap<(usize, TypeId), Rc<dyn Any>>>,
    /// For threads that are interrupted after some steps, what runs then.
    interrupts: RefCell<HashMap<usize, Box<dyn FnOnce()>>>,
    sections: Cell<u64>,
    time: Cell<u64>,
    clock: Cell<u64>,
}

thread_local! {
    // Both checkers run all threads of an execution on one system thread.
    static NOW: RefCell<Option<Rc<Execution>>> = const { RefCell::new(None) };
}

/// Returns the execution in progress.
///
/// # Panics
///
/// If there is none, because the code under test was called outside of a model.
pub(super) fn now() -> Rc<Execution> {
    NOW.with_borrow(Clone::clone)
        .expect("no execution in progress: code built with thiscpu_model runs in models only")
}
/// Returns the execution in progress, after a possible preemption of the running thread.
pub(super) fn step() -> Rc<Execution> {
    let now = now();
    now.preempt();
    now.count_step();
    now
}

/// Runs `test` as one execution on `machine`.
pub(super) fn execute(machine: Machine, checker: Box<dyn Checker>, test: &dyn Fn()) {
    let execution = Rc::new(Execution {
        machine,
        checker,
        address_space: AddressSpace::new(),
        threads: RefCell::default(),
        locals: RefCell::default(),
        interrupts: RefCell::default(),
        sections: Cell::new(0),
        time: Cell::new(0),
        clock: Cell::new(0),
    });
    NOW.with_borrow_mut(|now| *now = Some(execution.clone()));
    execution.begin_thread(0);
    test();
    // Objects that the checker created must be dropped while its execution lasts.
    NOW.with_borrow_mut(Option::take);
}

impl Execution {
    fn begin_thread(&self, cpu: usize) {
        let me = self.checker.me();
        let mut threads = self.threads.borrow_mut();
        let state = State { cpu, has_lane: true, section: None, steps_left: None };
        let count = threads.len().max(me + 1);
        threads.resize(count, state);
        threads[me] = state;
        self.locals.borrow_mut().retain(|(thread, _), _| *thread != me);
    }

    fn state(&self) -> State {
        self.threads.borrow()[self.checker.me()]
    }

    fn change_state(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.threads.borrow_mut()[self.checker.me()]);
    }

    /// Returns the CPU of the running thread, and whether the thread has a lane.
    pub(super) fn current_cpu(&self) -> (usize, bool) {
        let state = self.state();
        (state.cpu, state.has_lane)
    }

    /// Returns the kernel's index of a CPU.
    pub(super) fn index_of(&self, cpu: usize) -> usize {
        self.machine.indices.0 + cpu * self.machine.indices.1
    }

    /// Sometimes interrupts the running thread, or moves it to another CPU.
    pub(super) fn preempt(&self) {
        let Machine { preempt_one_in, cpus, .. } = self.machine;
        if preempt_one_in > 0 && self.checker.choose(preempt_one_in) == Some(0) {
            let cpu = self.checker.choose(cpus).unwrap_or(0);
            self.move_to(cpu);
        }
    }

    /// Interrupts or kills the running thread before the step that was chosen for that.
    fn count_step(&self) {
        let mut is_over = false;
        self.change_state(|state| {
            is_over = state.steps_left == Some(0);
            state.steps_left = match is_over {
                true => None,
                false => state.steps_left.map(|steps| steps - 1),
            };
        });
        if !is_over {
            return;
        }
        let interrupt = self.interrupts.borrow_mut().remove(&self.checker.me());
        match interrupt {
            Some(interrupt) => interrupt(),
            // Without the panic hook, which would print a message.
            None => resume_unwind(Box::new(Killed)),
        }
    }

    /// Moves the running thread, and aborts the section that it is in.
    fn move_to(&self, cpu: usize) {
        let state = self.state();
        if let Some(section) = state.section {
            self.checker.with_cpu(state.cpu, &mut |current| {
                if *current == Some(section) {
                    *current = None;
                }
            });
        }
        self.change_state(|state| state.cpu = cpu);
    }

    /// Begins a section on the running thread's CPU, and aborts any other section there.
    pub(super) fn enter(&self) -> (usize, u64) {
        let section = self.sections.get() + 1;
        self.sections.set(section);
        let cpu = self.state().cpu;
        self.change_state(|state| state.section = Some(section));
        self.checker.with_cpu(cpu, &mut |current| *current = Some(section));
        (cpu, section)
    }

    /// Ends a section, with `last` as its last step; returns `false` if it was aborted.
    pub(super) fn leave(&self, (cpu, section): (usize, u64), mut last: impl FnMut()) -> bool {
        let mut is_whole = false;
        self.checker.with_cpu(cpu, &mut |current| {
            is_whole = *current == Some(section);
            if is_whole {
                last();
                *current = None;
            }
        });
        self.change_state(|state| state.section = None);
        is_whole
    }

    /// Runs `step` in a section; returns `false` if the section was aborted.
    pub(super) fn during(&self, (cpu, section): (usize, u64), mut step: impl FnMut()) -> bool {
        let mut is_whole = false;
        self.checker.with_cpu(cpu, &mut |current| {
            is_whole = *current == Some(section);
            if is_whole {
                step();
            }
        });
        is_whole
    }

    fn fence(&self) {
        // A full barrier on this CPU and, one by one, on each other; the section that a CPU is in
        // is aborted.
        self.checker.fence(Ordering::SeqCst);
        for cpu in 0..self.machine.cpus {
            self.checker.with_cpu(cpu, &mut |current| *current = None);
        }
        self.checker.fence(Ordering::SeqCst);
    }
}

/// A thread of the modelled program.
pub struct Thread<R> {
    result: Arc<Mutex<Option<R>>>,
    join: Box<dyn FnOnce()>,
}

impl<R> Thread<R> {
    /// Waits for the thread and returns its result.
    ///
    /// # Panics
    ///
    /// If the thread panicked.
    pub fn join(self) -> R {
        (self.join)();
        self.result.lock().expect("no panic").take().expect("the thread has ended")
    }
}

/// Starts a thread on `cpu`.
pub fn spawn<R: Send + 'static>(
    cpu: usize,
    work: impl FnOnce() -> R + Send + 'static,
) -> Thread<R> {
    let result = Arc::new(Mutex::new(None));
    let slot = result.clone();
    let join = now().checker.spawn(Box::new(move || {
        now().begin_thread(cpu);
        let value = work();
        *slot.lock().expect("no panic") = Some(value);
    }));
    Thread { result, join }
}

/// Runs `work` in the calling thread, but kills it before the step after so many steps.
///
/// Returns `None` if it was killed. Its remaining steps never run; values that it has on its stack
/// are dropped.
pub fn killed_after<R>(steps: usize, work: impl FnOnce() -> R) -> Option<R> {
    now().change_state(|state| state.steps_left = Some(steps));
    let result = catch_unwind(AssertUnwindSafe(work));
    now().change_state(|state| state.steps_left = None);
    match result {
        Ok(result) => Some(result),
        Err(payload) if payload.is::<Killed>() => None,
        Err(payload) => resume_unwind(payload),
    }
}

/// Runs `work` in the calling thread, and `interrupt` before the step after so many steps.
///
/// So it tests a process that is stopped, while others go on. Returns the result, and whether
/// `interrupt` has run.
pub fn interrupted_after<R>(
    steps: usize,
    interrupt: impl FnOnce() + 'static,
    work: impl FnOnce() -> R,
) -> (R, bool) {
    let now = now();
    now.interrupts.borrow_mut().insert(now.checker.me(), Box::new(interrupt));
    now.change_state(|state| state.steps_left = Some(steps));
    let result = work();
    now.change_state(|state| state.steps_left = None);
    let has_run = now.interrupts.borrow_mut().remove(&now.checker.me()).is_none();
    (result, has_run)
}

/// Moves the calling thread to `cpu`.
pub fn run_on(cpu: usize) {
    now().move_to(cpu);
}

/// Returns the calling thread's value of a type, like a `thread_local`; created at first use.
pub(crate) fn local<T: Default + 'static>() -> Rc<T> {
    let now = now();
    let mut locals = now.locals.borrow_mut();
    let local = locals.entry((now.checker.me(), TypeId::of::<T>()));
    let local = local.or_insert_with(|| Rc::new(T::default()));
    local.clone().downcast().expect("it was found by its type")
}

/// Takes the calling thread's lane away.
pub fn leave_lanes() {
    now().change_state(|state| state.has_lane = false);
}

/// Returns a random number below `below`, or 0 under a checker without random choices.
pub fn choose(below: usize) -> usize {
    now().checker.choose(below).unwrap_or(0)
}

/// Returns the number of its calls, in the order of steps: a clock for histories.
///
/// Not a step.
pub fn tick() -> u64 {
    let now = now();
    now.time.set(now.time.get() + 1);
    now.time.get()
}

/// Advances the machine's clock by a second. Not a step.
pub fn advance_clock_1s() {
    advance_clock(1_000_000_000);
}

/// Advances the machine's clock by some nanoseconds. Not a step.
pub fn advance_clock(ns: u64) {
    let now = now();
    now.clock.set(now.clock.get() + ns);
}

/// Returns the machine's clock in nanoseconds. Not a step.
pub fn clock() -> u64 {
    now().clock.get()
}

pub(crate) fn tier() -> Option<Tier> {
    Some(now().machine.tier)
}

/// The modelled machine, as `sys` sees it.
pub(crate) struct Model;

impl machine::Machine for Model {
    fn cpus() -> usize {
        now().machine.cpus
    }

    fn index(_: Tier) -> Option<usize> {
        let now = now();
        let (cpu, has_lane) = now.current_cpu();
        has_lane.then(|| now.index_of(cpu))
    }

    fn cpu_or_any() -> usize {
        Self::index(Tier::Atomic).unwrap_or(usize::MAX)
    }

    fn node() -> usize {
        let now = now();
        now.current_cpu().0 % now.machine.nodes
    }

    fn nodes() -> usize {
        now().machine.nodes
    }

    unsafe fn discard(_: usize, _: usize) -> bool {
        // The memory keeps its content, because code must not rely on losing it.
        true
    }

    fn prefer_huge_pages(_: usize, _: usize, _: bool) -> bool {
        true
    }

    fn resident_pages(_: usize, _: usize) -> Option<usize> {
        None
    }

    fn page_bytes() -> usize {
        4096
    }

    fn is_vfork_child() -> bool {
        false
    }

    fn time() -> u64 {
        now().clock.get()
    }

    fn coarse_time() -> u64 {
        Self::time()
    }

    fn memory_limit() -> usize {
        usize::MAX
    }

    fn register(_: Tier) -> bool {
        now().current_cpu().1
    }

    fn fence() -> Result<(), FenceError> {
        now().fence();
        Ok(())
    }

    fn membarrier_fence() -> Result<(), i32> {
        now().fence();
        Ok(())
    }

    fn generation() -> u32 {
        1
    }

    fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
        // The checker decides whether the timeout has passed.
        if timeout.is_some() && now().checker.choose(2) == Some(0) {
            return;
        }
        let at = core::ptr::from_ref(word) as usize;
        now().checker.wait(at, &|| word.load(Ordering::Relaxed) == expected);
    }

    fn wake(word: *const AtomicU32, how_many: i32) {
        now().checker.wake(word as usize, how_many as usize);
    }

    fn prefetch(_: usize) {}

    fn pause() {
        now().checker.yield_now();
    }

    fn reserve(before: usize, bytes: usize, align: usize) -> Result<usize, i32> {
        Ok(now().address_space.reserve(before, bytes, align))
    }

    fn commit(_: usize, _: usize) -> Result<(), i32> {
        Ok(())
    }

    fn map(bytes: usize) -> Result<usize, i32> {
        Ok(now().address_space.map(bytes))
    }

    fn find_gap(bytes: usize, align: usize) -> Result<usize, i32> {
        Ok(now().address_space.reserve(0, bytes, align))
    }

    fn map_at(_: usize, _: usize) -> Result<(), i32> {
        Ok(())
    }

    fn map_zeros_at(_: usize, _: usize) -> Result<(), i32> {
        Ok(())
    }

    fn reserve_at(_: usize, _: usize) -> Result<(), i32> {
        Ok(())
    }

    unsafe fn grow(_: usize, _: usize, _: usize) -> Result<(), i32> {
        Err(libc::ENOSYS)
    }

    unsafe fn remap(_: usize, _: usize, _: usize, _: usize) -> Result<(), i32> {
        Err(libc::ENOSYS)
    }

    fn is_mapped(_: usize, _: usize) -> bool {
        true
    }

    unsafe fn unmap(_: usize, _: usize) -> bool {
        true
    }
}
