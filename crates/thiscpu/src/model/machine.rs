//! The machine: its threads, where they are, and what `sys` asks of it.

use std::any::{Any, TypeId};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::checker::Checker;
use super::memory::AddressSpace;
use crate::sys::atomic::{AtomicU32, Ordering};
use crate::sys::machine;
use crate::sys::membarrier::FenceError;
use crate::tier::Tier;

/// What a test runs on.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// How many CPUs there are.
    pub cpus: usize,
    /// What the process runs on.
    pub tier: Tier,
    /// The kernel's index of CPU 0, and how far the indices of the next CPUs are from it and each other.
    pub indices: (usize, usize),
    /// How many NUMA nodes the CPUs are shared out to, in turn.
    pub nodes: usize,
    /// One step in so many is preceded by a signal or a move to another CPU, where the checker
    /// leaves something to chance; 0 for none.
    pub preempt_one_in: usize,
}

impl Machine {
    /// A machine whose threads are moved and interrupted now and then.
    pub const fn new(cpus: usize, tier: Tier) -> Machine {
        Machine { cpus, tier, indices: (0, 1), nodes: 1, preempt_one_in: 20 }
    }
}

/// A thread's part of the machine.
#[derive(Clone, Copy, Debug)]
struct State {
    cpu: usize,
    has_lane: bool,
    /// The section it is in.
    section: Option<u64>,
}

/// One execution under a checker.
pub(super) struct Execution {
    pub(super) machine: Machine,
    pub(super) checker: Box<dyn Checker>,
    pub(super) address_space: AddressSpace,
    threads: RefCell<Vec<State>>,
    locals: RefCell<HashMap<(usize, TypeId), Rc<dyn Any>>>,
    sections: Cell<u64>,
    time: Cell<u64>,
    clock: Cell<u64>,
}

thread_local! {
    // Both checkers run all threads of an execution on one thread of the system.
    static NOW: RefCell<Option<Rc<Execution>>> = const { RefCell::new(None) };
}

/// The execution under way.
///
/// # Panics
///
/// If there is none: the code under test was called outside of a model.
pub(super) fn now() -> Rc<Execution> {
    NOW.with_borrow(Clone::clone).expect("this is built for models and runs in them only")
}

/// Runs `test` as one execution on `machine`.
pub(super) fn execute(machine: Machine, checker: Box<dyn Checker>, test: &dyn Fn()) {
    let execution = Rc::new(Execution {
        machine,
        checker,
        address_space: AddressSpace::new(),
        threads: RefCell::default(),
        locals: RefCell::default(),
        sections: Cell::new(0),
        time: Cell::new(0),
        clock: Cell::new(0),
    });
    NOW.with_borrow_mut(|now| *now = Some(execution.clone()));
    execution.begin_thread(0);
    test();
    // What the checker made must go while its execution lasts.
    NOW.with_borrow_mut(Option::take);
}

impl Execution {
    fn begin_thread(&self, cpu: usize) {
        let me = self.checker.me();
        let mut threads = self.threads.borrow_mut();
        let state = State { cpu, has_lane: true, section: None };
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

    /// The CPU that the running thread is on, and whether it may run sections.
    pub(super) fn current_cpu(&self) -> (usize, bool) {
        let state = self.state();
        (state.cpu, state.has_lane)
    }

    /// The kernel's index of a CPU.
    pub(super) fn index_of(&self, cpu: usize) -> usize {
        self.machine.indices.0 + cpu * self.machine.indices.1
    }

    /// Now and then interrupts the running thread, or moves it to another CPU.
    pub(super) fn preempt(&self) {
        let Machine { preempt_one_in, cpus, .. } = self.machine;
        if preempt_one_in > 0 && self.checker.choose(preempt_one_in) == Some(0) {
            let cpu = self.checker.choose(cpus).unwrap_or(0);
            self.move_to(cpu);
        }
    }

    /// Moves the running thread, which aborts the section that it is in.
    fn move_to(&self, cpu: usize) {
        let state = self.state();
        if let Some(section) = state.section {
            self.checker.with_cpu(state.cpu, &mut |there| {
                if *there == Some(section) {
                    *there = None;
                }
            });
        }
        self.change_state(|state| state.cpu = cpu);
    }

    /// Begins a section on the running thread's CPU, which aborts another's there.
    pub(super) fn enter(&self) -> (usize, u64) {
        let section = self.sections.get() + 1;
        self.sections.set(section);
        let cpu = self.state().cpu;
        self.change_state(|state| state.section = Some(section));
        self.checker.with_cpu(cpu, &mut |there| *there = Some(section));
        (cpu, section)
    }

    /// Ends a section: with `last` as its last step, if it was not aborted. Whether it was not.
    pub(super) fn leave(&self, (cpu, section): (usize, u64), mut last: impl FnMut()) -> bool {
        let mut whole = false;
        self.checker.with_cpu(cpu, &mut |there| {
            whole = *there == Some(section);
            if whole {
                last();
                *there = None;
            }
        });
        self.change_state(|state| state.section = None);
        whole
    }

    /// Does `step` in a section, if that was not aborted. Whether it was not.
    pub(super) fn during(&self, (cpu, section): (usize, u64), mut step: impl FnMut()) -> bool {
        let mut whole = false;
        self.checker.with_cpu(cpu, &mut |there| {
            whole = *there == Some(section);
            if whole {
                step();
            }
        });
        whole
    }

    fn fence(&self) {
        // A full barrier here and, CPU by CPU, there; what a CPU is in the middle of is aborted.
        self.checker.fence(Ordering::SeqCst);
        for cpu in 0..self.machine.cpus {
            self.checker.with_cpu(cpu, &mut |there| *there = None);
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
    /// If the thread did.
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
    let there = result.clone();
    let join = now().checker.spawn(Box::new(move || {
        now().begin_thread(cpu);
        let value = work();
        *there.lock().expect("no panic") = Some(value);
    }));
    Thread { result, join }
}

/// Moves the calling thread.
pub fn run_on(cpu: usize) {
    now().move_to(cpu);
}

/// What the calling thread has of its own, as in a `thread_local`; made when it asks first.
pub(crate) fn local<T: Default + 'static>() -> Rc<T> {
    let now = now();
    let mut locals = now.locals.borrow_mut();
    let local = locals.entry((now.checker.me(), TypeId::of::<T>()));
    let local = local.or_insert_with(|| Rc::new(T::default()));
    local.clone().downcast().expect("it was found by its type")
}

/// Makes the calling thread one without a lane.
pub fn leave_lanes() {
    now().change_state(|state| state.has_lane = false);
}

/// A number below `below`, where the checker leaves something to chance; else 0.
pub fn choose(below: usize) -> usize {
    now().checker.choose(below).unwrap_or(0)
}

/// The number of calls of this so far, in the order in which steps are taken: a clock for
/// histories. Not a step.
pub fn tick() -> u64 {
    let now = now();
    now.time.set(now.time.get() + 1);
    now.time.get()
}

/// Lets a second pass on the machine's clock. Not a step.
pub fn advance_clock_1s() {
    let now = now();
    now.clock.set(now.clock.get() + 1_000_000_000);
}

/// The tier of the execution under way.
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

    fn node() -> usize {
        let now = now();
        now.current_cpu().0 % now.machine.nodes
    }

    fn nodes() -> usize {
        now().machine.nodes
    }

    unsafe fn forget(_: usize, _: usize) -> bool {
        // What is in memory is not dropped: nothing here may rest on that.
        true
    }

    fn prefer_huge_pages(_: usize, _: usize, _: bool) -> bool {
        true
    }

    fn page_bytes() -> usize {
        4096
    }

    fn coarse_time() -> u64 {
        now().clock.get()
    }

    fn register(_: Tier) -> bool {
        now().current_cpu().1
    }

    fn fence() -> Result<(), FenceError> {
        now().fence();
        Ok(())
    }

    fn fence_alone() -> Result<(), i32> {
        now().fence();
        Ok(())
    }

    fn generation() -> u32 {
        1
    }

    fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
        // Time passes as the checker likes.
        if timeout.is_some() && now().checker.choose(2) == Some(0) {
            return;
        }
        let at = core::ptr::from_ref(word) as usize;
        now().checker.wait(at, &|| word.load(Ordering::Relaxed) == expected);
    }

    fn wake(word: *const AtomicU32, how_many: i32) {
        now().checker.wake(word as usize, how_many as usize);
    }

    fn pause() {
        now().checker.yield_now();
    }

    fn reserve(before: usize, bytes: usize, align: usize) -> Result<usize, i32> {
        Ok(now().address_space.reserve(before, bytes, align))
    }

    fn open(_: usize, _: usize) -> Result<(), i32> {
        Ok(())
    }

    fn map(bytes: usize) -> Result<usize, i32> {
        Ok(now().address_space.map(bytes))
    }

    fn gap(bytes: usize, align: usize) -> Result<usize, i32> {
        Ok(now().address_space.reserve(0, bytes, align))
    }

    fn map_at(_: usize, _: usize) -> Result<(), i32> {
        Ok(())
    }

    fn map_zeros_at(_: usize, _: usize) -> Result<(), i32> {
        Ok(())
    }

    fn is_mapped(_: usize, _: usize) -> bool {
        true
    }

    unsafe fn unmap(_: usize, _: usize) {}
}
