//! Leads a repeated operation to an instruction without a step for each earlier one.
//!
//! Each run records the addresses at which its steps stop. The next run goes at full speed to a
//! breakpoint near the end of that record, and steps from there. Steps abort every section, so each
//! section on the way gets a breakpoint too.

use std::cell::UnsafeCell;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::atomic::{Ordering::SeqCst, compiler_fence};

use super::signal;

/// The bit of the flags register that makes each instruction trap.
pub(super) const TRAP_FLAG: u64 = 0x100;

/// The instruction of a breakpoint.
const BREAKPOINT: u8 = 0xcc;

/// The steps that a record has room for.
const STEPS_MAX: usize = 1 << 20;
/// The bytes of a record.
const RECORD_BYTES: usize = 8 * (1 + STEPS_MAX);
/// The sections that may be on the way.
const SECTIONS_MAX: usize = 64;

/// The breakpoints and the record, which the handler uses.
///
/// A breakpoint must not stand in code that the handler executes. So the handler only reads and
/// writes these words itself: even an atomic is a call, in a build without optimizations.
struct State {
    /// The thread that runs the operation.
    thread: libc::pthread_t,
    /// The address of the breakpoint from which steps follow, or 0.
    target: usize,
    /// The byte at that address.
    code: u8,
    /// How often the thread comes to the target until the steps begin.
    visits_left: u32,
    /// Whether the thread steps over the target, which it will visit again.
    steps_over: bool,
    /// The starts of sections that have a breakpoint, and the bytes there.
    sections: [(usize, u8); SECTIONS_MAX],
    sections_len: usize,
    /// The record, or null: the number of addresses, and then these.
    record: *mut usize,
}

struct Shared(UnsafeCell<State>);

// SAFETY: only the thread that runs the operation, and its handler, access the state while
// breakpoints are set. The handler on other threads reads only the first field, which is written
// before the first breakpoint is set.
unsafe impl Sync for Shared {}

static STATE: Shared = Shared(UnsafeCell::new(State {
    thread: 0,
    target: 0,
    code: 0,
    visits_left: 0,
    steps_over: false,
    sections: [(0, 0); SECTIONS_MAX],
    sections_len: 0,
    record: std::ptr::null_mut(),
}));

unsafe extern "C" {
    static __executable_start: u8;
    static etext: u8;
    static __start___rseq_cs: [usize; 4];
    static __stop___rseq_cs: [usize; 4];
}

/// Returns the addresses of this program's code.
fn code() -> Range<usize> {
    (&raw const __executable_start).addr()..(&raw const etext).addr()
}

/// Returns the descriptors of all sections: flags, start, length and abort handler.
fn descriptors() -> &'static [[usize; 4]] {
    let (begin, end) = (&raw const __start___rseq_cs, &raw const __stop___rseq_cs);
    // SAFETY: the linker puts these symbols around all descriptors, which are 32 bytes each and
    // constant once the program is loaded.
    unsafe { std::slice::from_raw_parts(begin, end.offset_from_unsigned(begin)) }
}

/// The way of a run to the instruction at which it is to be stopped.
pub(super) struct Way {
    /// The breakpoint from which the run steps, or 0 if it steps from its beginning.
    target: usize,
    /// How often the run comes to the breakpoint.
    visits: u32,
    /// The starts of the sections before it.
    sections: Vec<usize>,
    /// The number of steps.
    pub(super) steps: u64,
}

impl Way {
    /// Returns the trap flag with which the run begins.
    pub(super) fn trap_flag(&self) -> u64 {
        if self.target == 0 { TRAP_FLAG } else { 0 }
    }

    /// Sets the breakpoints for the run that comes next.
    pub(super) fn prepare(&self) {
        if self.target == 0 {
            return;
        }
        // SAFETY: no operation runs now, so only this thread accesses the state. The addresses are
        // in this program's code, which `Replay::new` has made writable.
        unsafe {
            let state = STATE.0.get();
            (*state).visits_left = self.visits;
            (*state).sections_len = self.sections.len();
            for (index, &start) in self.sections.iter().enumerate() {
                (*state).sections[index] = (start, *(start as *const u8));
            }
            (*state).target = self.target;
            (*state).code = *(self.target as *const u8);
            compiler_fence(SeqCst);
            for &start in &self.sections {
                *(start as *mut u8) = BREAKPOINT;
            }
            *(self.target as *mut u8) = BREAKPOINT;
            compiler_fence(SeqCst);
        }
    }

    /// Returns whether the run, which has ended, reached the instruction where its steps begin.
    pub(super) fn has_led_there(&self) -> bool {
        // SAFETY: the run has ended, so only this thread accesses the state.
        self.target == 0 || unsafe { (*STATE.0.get()).visits_left == 0 }
    }
}

/// The record of an operation's steps.
pub(super) struct Replay {
    /// For each recorded step, how often its address has occurred up to it.
    visits: Vec<u32>,
    /// How often each address is in the record.
    counts: HashMap<usize, u32>,
    /// Addresses at which two consecutive steps stop, as a repeated string instruction does.
    ///
    /// The thread would come to a breakpoint there only once.
    repeated: HashSet<usize>,
}

impl Replay {
    /// Returns an empty record for an operation of the calling thread.
    pub(super) fn new() -> Replay {
        let (code, access) = (code(), libc::PROT_READ | libc::PROT_WRITE);
        let begin = code.start / 4096 * 4096;
        // Shared, so that a child that is killed leaves its record.
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: the first call only adds a permission to this program's code. The second maps new
        // memory at an address that the kernel chooses. No breakpoint is set.
        unsafe {
            let all = access | libc::PROT_EXEC;
            let allowed = libc::mprotect(begin as *mut _, code.end - begin, all);
            assert_eq!(allowed, 0, "writable code: {}", std::io::Error::last_os_error());
            let record = libc::mmap(std::ptr::null_mut(), RECORD_BYTES, access, flags, -1, 0);
            assert_ne!(record, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
            let state = STATE.0.get();
            (*state).thread = signal::this_thread();
            (*state).record = record.cast();
        }
        let (counts, repeated) = (HashMap::new(), HashSet::new());
        Replay { visits: Vec::new(), counts, repeated }
    }

    /// Returns the recorded addresses.
    pub(super) fn addresses(&self) -> &[usize] {
        // SAFETY: `new` has mapped room for the number and `STEPS_MAX` addresses, of which the
        // handler has written that many. Only runs change them, and none runs now.
        unsafe {
            let record = (*STATE.0.get()).record;
            std::slice::from_raw_parts(record.add(1), *record)
        }
    }

    /// Forgets all steps but the first ones; the next run records again those that it makes.
    pub(super) fn truncate(&mut self, len: usize) {
        for index in len..self.visits.len() {
            let address = self.addresses()[index];
            *self.counts.get_mut(&address).expect("a recorded address") -= 1;
        }
        self.visits.truncate(len);
        // SAFETY: no operation runs now, so only this thread accesses the state.
        unsafe { *(*STATE.0.get()).record = len };
    }

    /// Adds the steps that the last run has recorded.
    fn update(&mut self) {
        for index in self.visits.len()..self.addresses().len() {
            let address = self.addresses()[index];
            let count = self.counts.entry(address).or_default();
            *count += 1;
            self.visits.push(*count);
            if index > 0 && self.addresses()[index - 1] == address {
                self.repeated.insert(address);
            }
        }
    }

    /// Returns how many recorded steps a run should skip on its way to `steps`.
    fn best_start(&self, steps: u64) -> usize {
        let (mut best, mut cheapest, code) = (0, steps, code());
        for start in (1..self.visits.len().min(steps as usize - 1) + 1).rev() {
            let distance = steps - start as u64;
            if distance >= cheapest {
                break;
            }
            let address = self.addresses()[start - 1];
            // A visit costs a trap at the breakpoint, and one behind it.
            let cost = distance + 2 * u64::from(self.visits[start - 1]);
            if cost < cheapest && code.contains(&address) && !self.repeated.contains(&address) {
                (best, cheapest) = (start, cost);
            }
        }
        best
    }

    /// Returns the cheapest way to the instruction after `steps` others, which is at least 1.
    pub(super) fn way_to(&mut self, steps: u64) -> Way {
        self.update();
        let is_passed = |descriptor: &&[usize; 4]| {
            self.counts.get(&descriptor[3]).is_some_and(|&count| count > 0)
        };
        let passed = descriptors().iter().filter(is_passed);
        let mut sections: Vec<_> = passed.map(|descriptor| descriptor[1]).collect();
        let start = if sections.len() > SECTIONS_MAX { 0 } else { self.best_start(steps) };
        let (target, visits) = match start.checked_sub(1) {
            None => (0, 0),
            Some(last) => (self.addresses()[last], self.visits[last]),
        };
        if target == 0 {
            sections.clear();
        }
        self.truncate(start);
        Way { target, visits, sections, steps: steps - start as u64 }
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        // SAFETY: no operation runs now, so only this thread accesses the state. The mapping is
        // that of `new`, and nothing refers to it any more.
        unsafe {
            let state = STATE.0.get();
            libc::munmap((*state).record.cast(), RECORD_BYTES);
            (*state).record = std::ptr::null_mut();
        }
    }
}

/// Removes all breakpoints, as soon as the operation has ended.
///
/// The code behind it may execute the function in which a breakpoint stands.
pub(super) fn end_run() {
    compiler_fence(SeqCst);
    // SAFETY: the thread that runs the operation calls this, outside of the handler.
    unsafe { remove_all(STATE.0.get()) };
}

/// Removes all breakpoints.
///
/// # Safety
///
/// The caller must have exclusive access to the state.
unsafe fn remove_all(state: *mut State) {
    // SAFETY: the caller guarantees exclusive access. The addresses are in this program's code,
    // which `Replay::new` has made writable.
    unsafe {
        if (*state).target != 0 {
            *((*state).target as *mut u8) = (*state).code;
            (*state).target = 0;
        }
        while (*state).sections_len != 0 {
            (*state).sections_len -= 1;
            let (start, code) = (*state).sections[(*state).sections_len];
            *(start as *mut u8) = code;
        }
    }
}

/// Handles a breakpoint and the step over it; returns whether the trap is a step to count.
///
/// # Safety
///
/// The pointers must be those that the kernel passed to the handler of SIGTRAP.
pub(super) unsafe fn is_step(info: *const libc::siginfo_t, context: *mut libc::ucontext_t) -> bool {
    /// The `si_code` of a breakpoint.
    const SI_KERNEL: i32 = 0x80;
    // SAFETY: the caller guarantees that both pointers are valid, and nothing else refers to the
    // context. Only the thread that runs the operation gets to the other fields of the state. The
    // addresses are in this program's code, which `Replay::new` has made writable.
    unsafe {
        let (state, (counter, flags)) = (STATE.0.get(), counter_and_flags(context));
        let address = *counter as usize;
        if (*info).si_code == SI_KERNEL {
            if !is_abort_handler(address) {
                *counter -= 1;
                if on_breakpoint(state, address - 1) {
                    *flags |= TRAP_FLAG;
                }
            }
            return false;
        }
        if (*state).steps_over {
            (*state).steps_over = false;
            *((*state).target as *mut u8) = BREAKPOINT;
            *flags &= !TRAP_FLAG;
            return false;
        }
        if *flags & TRAP_FLAG == 0 {
            // The instruction that ended the run cleared the flag. A later run that stepped from
            // here would step on behind the operation.
            return false;
        }
        let record = (*state).record;
        if record as usize != 0 && *record < STEPS_MAX {
            *record += 1;
            *((record as usize + 8 * *record) as *mut usize) = address;
        }
    }
    true
}

/// Returns where a context has the program counter and the flags.
///
/// # Safety
///
/// The context must be valid.
pub(super) unsafe fn counter_and_flags(context: *mut libc::ucontext_t) -> (*mut u64, *mut u64) {
    // SAFETY: the caller guarantees that the context is valid; nothing is accessed.
    unsafe {
        let registers = &raw mut (*context).uc_mcontext;
        #[cfg(target_arch = "x86_64")]
        let found = (
            &raw mut (*registers).gregs[libc::REG_RIP as usize],
            &raw mut (*registers).gregs[libc::REG_EFL as usize],
        );
        #[cfg(target_arch = "aarch64")]
        let found = (&raw mut (*registers).pc, &raw mut (*registers).pstate);
        (found.0.cast(), found.1.cast())
    }
}

/// Returns whether the kernel has aborted a section, and so continues at this address.
fn is_abort_handler(address: usize) -> bool {
    let mut descriptor = (&raw const __start___rseq_cs) as usize;
    while descriptor != (&raw const __stop___rseq_cs) as usize {
        // SAFETY: the linker puts these symbols around all descriptors.
        if unsafe { *((descriptor + 24) as *const usize) } == address {
            return true;
        }
        descriptor += 32;
    }
    false
}

/// Handles a breakpoint outside of sections; returns whether the thread has to step.
///
/// # Safety
///
/// The state must be the only one, and the thread must be at the breakpoint.
unsafe fn on_breakpoint(state: *mut State, address: usize) -> bool {
    // SAFETY: the first field is constant while breakpoints are set, and only the thread that it
    // names accesses the others. The address is in this program's code, which `Replay::new` has
    // made writable.
    unsafe {
        if (*state).thread != libc::pthread_self() {
            // This thread runs into the breakpoint again until the run has removed it.
            libc::sched_yield();
            return false;
        }
        if (*state).target != address {
            // A section that the kernel does not abort: the run goes on, and misses its target.
            remove_all(state);
            return false;
        }
        (*state).visits_left -= 1;
        match (*state).visits_left {
            0 => remove_all(state),
            _ => {
                (*state).steps_over = true;
                *(address as *mut u8) = (*state).code;
            }
        }
        true
    }
}
