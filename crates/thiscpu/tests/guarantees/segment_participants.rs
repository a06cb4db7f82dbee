//! Shared budgets: when the units of a process come back.

use std::fs::File;
use std::os::fd::{AsRawFd as _, FromRawFd as _, IntoRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::Ordering::SeqCst;

use thiscpu::{Segment, SegmentErrorKind, SharedAcquireError, SharedBudget};
use thiscpu_test_support::child;

use crate::common::segment::{
    Place, Processes, file_of, in_processes, shared_words, small, small_segment,
};
use crate::common::{DEFAULT_ONLY, Scenario, TIERS, fork, scale, scenario, together};

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario!(segment_participants::child_of_fork_holds_nothing, TIERS),
    scenario!(segment_participants::child_of_raw_clone_holds_nothing, DEFAULT_ONLY),
    scenario!(segment_participants::child_of_vfork_acts_for_its_parent, DEFAULT_ONLY),
    scenario!(segment_participants::parents_lock_ends_with_the_parent, DEFAULT_ONLY),
    scenario!(segment_participants::killed_process_returns_everything, TIERS),
    scenario!(segment_participants::zombie_returns_everything, DEFAULT_ONLY),
    scenario!(segment_participants::executed_program_returns_everything, DEFAULT_ONLY),
    scenario!(segment_participants::stopped_process_keeps_everything, DEFAULT_ONLY),
    scenario!(segment_participants::daemon_holds_what_it_acquires, DEFAULT_ONLY),
    scenario!(segment_participants::threads_may_end_in_any_order, DEFAULT_ONLY),
    scenario!(segment_participants::process_that_closes_all_files_is_alive, DEFAULT_ONLY),
    scenario!(segment_participants::closed_lock_is_taken_again, DEFAULT_ONLY),
    scenario!(segment_participants::files_of_others_are_left_alone, DEFAULT_ONLY),
    scenario!(segment_participants::processes_of_other_namespaces_are_seen, DEFAULT_ONLY)
        .needs(can_make_namespace),
    scenario!(segment_participants::slots_are_used_again, DEFAULT_ONLY),
    scenario!(segment_participants::slots_have_an_end, DEFAULT_ONLY),
    scenario!(segment_participants::dropped_segment_returns_everything, DEFAULT_ONLY),
    scenario!(segment_participants::dead_processes_return_units_of_each_budget, DEFAULT_ONLY),
];

pub(crate) const LIMIT: u64 = 100;

pub(crate) fn budget(segment: &Segment) -> SharedBudget {
    segment.budget("budget", LIMIT).expect("room")
}

/// Waits until a condition holds; the deadline is that of the scenario.
pub(crate) fn until(what: impl Fn() -> bool) {
    while !what() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Asserts that a process still runs, and was not ended by its alarm.
#[track_caller]
fn assert_runs(pid: i32) {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    assert!(!matches!(state, Some('Z' | 'X') | None), "{stat}");
}

/// Acquires units that a dead process held, as soon as the kernel has released its lock.
#[track_caller]
fn assert_back(budget: &SharedBudget, n: u64) {
    until(|| budget.try_acquire(n).is_ok());
    let available = LIMIT - budget.acquired();
    assert_eq!(budget.try_acquire(available + 1), exhausted(available));
    budget.release(n);
    assert_eq!(budget.available(), available + n);
}

pub(crate) fn exhausted(available: u64) -> Result<(), SharedAcquireError> {
    Err(SharedAcquireError::Exhausted { available })
}

/// A process that holds units of a budget, and does something when it is told to.
pub(crate) struct Holder {
    process: Processes,
    pub(crate) pid: i32,
    pub(crate) orders: Orders,
}

/// What a [`Holder`] is to do next; a signal handler may give an order.
#[derive(Clone, Copy)]
pub(crate) struct Orders(&'static std::sync::atomic::AtomicU64);

impl Orders {
    /// Lets the process run its `then`, and waits until it has.
    pub(crate) fn tell(self) {
        self.0.store(2, SeqCst);
        until(|| self.0.load(SeqCst) == 1);
    }
}

impl Holder {
    /// Starts a process that runs `first`, and then each time it is told to `then`.
    pub(crate) fn start(first: impl FnOnce(), then: impl Fn()) -> Holder {
        let step = &shared_words()[0];
        let pid = fork::start(|| {
            first();
            step.store(1, SeqCst);
            loop {
                until(|| step.load(SeqCst) == 2);
                then();
                step.store(1, SeqCst);
            }
        });
        let holder = Holder { process: Processes::of(pid), pid, orders: Orders(step) };
        until(|| step.load(SeqCst) == 1);
        holder
    }

    /// Takes over a child that was forked elsewhere, and that nobody tells anything.
    pub(crate) fn of(pid: i32) -> Holder {
        Holder { process: Processes::of(pid), pid, orders: Orders(&shared_words()[0]) }
    }

    /// Lets the process run `then`, and waits until it has.
    pub(crate) fn tell(&self) {
        self.orders.tell();
    }

    /// Stops the process, and waits until it has stopped.
    pub(crate) fn stop(&self) {
        self.signal(libc::SIGSTOP);
        let mut status = 0;
        // SAFETY: the status is valid for writes.
        let stopped = unsafe { libc::waitpid(self.pid, &mut status, libc::WUNTRACED) };
        assert!(stopped == self.pid && libc::WIFSTOPPED(status), "status {status:#x}");
    }

    pub(crate) fn kill(self) {
        drop(self.process);
    }

    pub(crate) fn signal(&self, signal: i32) {
        // SAFETY: the child is this process's own and not reaped yet.
        assert_eq!(unsafe { libc::kill(self.pid, signal) }, 0);
    }
}

fn assert_child_holds_nothing(budget: &SharedBudget) {
    assert_eq!(budget.try_acquire(41), exhausted(40));
    let lease = budget.lease(30).expect("units are available");
    assert_eq!(budget.acquired(), 90);
    drop(lease);
    assert_eq!((budget.acquired(), budget.available()), (60, 40));
    budget.try_acquire(40).expect("units are available");
}

fn child_of_fork_holds_nothing() {
    let segment = small_segment();
    let budget = budget(&segment);
    budget.try_acquire(20).expect("units are available");
    let lease = budget.lease(10).expect("units are available");
    let owned = budget.try_acquire_owned(30).expect("units are available");
    for _ in 0..scale::rounds(40) {
        let (lease, owned) = (&lease, &owned);
        fork::run(|| {
            // SAFETY: bitwise copies of values that this process never drops: a child ends by
            // `_exit`.
            unsafe {
                drop(std::ptr::read(lease));
                drop(std::ptr::read(owned));
            }
            assert_child_holds_nothing(&budget);
        })
        .expect("a consistent child");
        // The child held 40 units.
        assert_back(&budget, 40);
    }
    drop(lease);
    drop(owned);
    budget.release(20);
    assert_eq!(budget.available(), LIMIT);
}

// No handler of forks runs in such a child.
fn child_of_raw_clone_holds_nothing() {
    let segment = small_segment();
    let budget = budget(&segment);
    budget.try_acquire(60).expect("units are available");
    for _ in 0..scale::rounds(20) {
        // SAFETY: without flags it is a fork of this thread; the child uses only this library.
        match unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } {
            0 => fork::exit_after(|| assert_child_holds_nothing(&budget)),
            child => fork::finish(child as i32).expect("a consistent child"),
        }
        assert_back(&budget, 40);
    }
}

fn child_of_vfork_acts_for_its_parent() {
    let segment = small_segment();
    let budget = budget(&segment);
    budget.try_acquire(60).expect("units are available");
    let scope = thiscpu::vfork_scope();
    let body = || {
        budget.release(10);
        budget.try_acquire(30).expect("units are available");
        assert_eq!(budget.try_acquire(21), exhausted(20));
    };
    assert_eq!(child::on_this_memory(body).expect("a process"), 0, "the child failed");
    drop(scope);
    assert_eq!(budget.acquired(), 80);
    // A process that has no slot takes none for its child.
    let first = fork::run(|| {
        let _scope = thiscpu::vfork_scope();
        let error = budget.try_acquire(1).expect_err("no slot");
        assert!(error.to_string().contains("use a budget before the vfork"), "{error}");
    });
    first.expect("an error");
}

// The child that makes no call has a copy of its parent's descriptor at first.
fn parents_lock_ends_with_the_parent() {
    let segment = small_segment();
    let budget = budget(&segment);
    let child = &shared_words()[0];
    let holder = Holder::start(
        || {
            budget.try_acquire(70).expect("units are available");
            let sleeper = fork::start(|| {
                loop {
                    std::thread::park();
                }
            });
            child.store(sleeper as u64, SeqCst);
        },
        || (),
    );
    assert_eq!(budget.try_acquire(31), exhausted(30));
    holder.kill();
    assert_back(&budget, LIMIT);
    assert_runs(child.load(SeqCst) as i32);
    // SAFETY: the process is a grandchild that still runs.
    assert_eq!(unsafe { libc::kill(child.load(SeqCst) as i32, libc::SIGKILL) }, 0);
}

fn killed_process_returns_everything() {
    let segment = small_segment();
    let budget = budget(&segment);
    for _ in 0..scale::rounds(20) {
        let hold = |_| {
            budget.try_acquire(1).expect("units are available");
            std::mem::forget(budget.lease(15).expect("units are available"));
        };
        let holder = Holder::start(|| _ = together(3, hold), || ());
        assert_eq!((budget.acquired(), budget.available()), (48, 52));
        holder.kill();
        assert_back(&budget, LIMIT);
        assert_eq!((budget.acquired(), budget.available()), (0, LIMIT));
    }
}

fn zombie_returns_everything() {
    let segment = small_segment();
    let budget = budget(&segment);
    let is_held = &shared_words()[0];
    let zombie = fork::start(|| {
        budget.try_acquire(60).expect("units are available");
        is_held.store(1, SeqCst);
    });
    until(|| is_held.load(SeqCst) == 1);
    until(|| budget.try_acquire(LIMIT).is_ok());
    assert_eq!(budget.acquired(), LIMIT);
    fork::finish(zombie).expect("success");
}

fn executed_program_returns_everything() {
    let segment = small_segment();
    let budget = budget(&segment);
    let is_held = &shared_words()[0];
    let program = fork::start(|| {
        budget.try_acquire(60).expect("units are available");
        is_held.store(1, SeqCst);
        panic!("{}", Command::new("/bin/sleep").arg("1000").exec());
    });
    let _ended = Processes::of(program);
    until(|| is_held.load(SeqCst) == 1);
    assert_back(&budget, LIMIT);
    assert_runs(program);
}

fn stopped_process_keeps_everything() {
    let segment = small_segment();
    let budget = budget(&segment);
    let holder =
        Holder::start(|| budget.try_acquire(60).expect("available"), || budget.release(60));
    holder.stop();
    for _ in 0..scale::rounds(200) {
        assert_eq!(budget.try_acquire(41), exhausted(40));
        std::thread::sleep(std::time::Duration::from_micros(200));
    }
    holder.signal(libc::SIGCONT);
    holder.tell();
    assert_eq!(budget.available(), LIMIT);
}

// The parent that starts it ends, and its units come back.
fn daemon_holds_what_it_acquires() {
    let segment = small_segment();
    let budget = budget(&segment);
    let [daemon, step] = [0, 1].map(|at| &shared_words()[at]);
    fork::run(|| {
        budget.try_acquire(10).expect("units are available");
        fork::start(|| {
            // SAFETY: the calls have no preconditions.
            unsafe { libc::setsid() };
            daemon.store(u64::from(std::process::id()), SeqCst);
            budget.try_acquire(60).expect("units are available");
            step.store(1, SeqCst);
            loop {
                std::thread::park();
            }
        });
        until(|| step.load(SeqCst) == 1);
    })
    .expect("the parent");
    until(|| budget.try_acquire(40).is_ok());
    assert_eq!(budget.try_acquire(1), exhausted(0));
    // SAFETY: the process is a grandchild that still runs.
    assert_eq!(unsafe { libc::kill(daemon.load(SeqCst) as i32, libc::SIGKILL) }, 0);
    until(|| budget.try_acquire(60).is_ok());
    assert_eq!(budget.acquired(), LIMIT);
}

/// Closes all descriptors except the standard streams.
pub(crate) fn close_all() {
    // SAFETY: the process uses none of its descriptors afterwards, except those of segments.
    assert_eq!(unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) }, 0);
}

fn threads_may_end_in_any_order() {
    let segment = small_segment();
    let budget = budget(&segment);
    for closes in [false, true] {
        let step = &shared_words()[0];
        let process = Processes::of(fork::start(|| {
            let acquire = || budget.try_acquire(30).expect("units are available");
            std::thread::scope(|threads| _ = threads.spawn(acquire));
            let last = budget.clone();
            std::thread::spawn(move || {
                last.try_acquire(30).expect("units are available");
                if closes {
                    close_all();
                }
                step.store(1, SeqCst);
                until(|| step.load(SeqCst) == 2);
                last.release(60);
                step.store(3, SeqCst);
                until(|| false);
            });
            // SAFETY: ends the main thread; the other one goes on.
            unsafe { libc::syscall(libc::SYS_exit, 0) };
        }));
        until(|| step.load(SeqCst) == 1);
        for _ in 0..scale::rounds(20) {
            assert_eq!(budget.try_acquire(41), exhausted(40));
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        step.store(2, SeqCst);
        until(|| step.load(SeqCst) == 3);
        assert_eq!(budget.available(), LIMIT);
        drop(process);
    }
}

fn process_that_closes_all_files_is_alive() {
    let place = Place::new();
    for segment in [small_segment(), small().create(&place).expect("a segment")] {
        let budget = budget(&segment);
        let hold = || {
            budget.try_acquire(60).expect("units are available");
            // A name that looks like the state of a zombie in /proc.
            // SAFETY: the name ends with a zero byte.
            unsafe { libc::prctl(libc::PR_SET_NAME, c"a) Z b".as_ptr()) };
            close_all();
        };
        let holder = Holder::start(hold, || {
            budget.release(60);
            budget.try_acquire(50).expect("units are available");
            assert_eq!(budget.try_acquire(51), exhausted(50));
        });
        for _ in 0..scale::rounds(50) {
            assert_eq!(budget.try_acquire(41), exhausted(40));
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        holder.tell();
        assert_eq!(budget.try_acquire(51), exhausted(50));
        holder.kill();
        assert_back(&budget, LIMIT);
    }
}

/// Returns whether a process has locked a byte of a file.
pub(crate) fn has_lock(file: &File) -> bool {
    // SAFETY: all zeroes is a valid `flock`.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as i16;
    // SAFETY: the structure is valid for reads and writes.
    assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &mut lock) }, 0);
    lock.l_type != libc::F_UNLCK as i16
}

fn closed_lock_is_taken_again() {
    let place = Place::new();
    let segment = small().create(&place).expect("a segment");
    let file = File::options().read(true).write(true).open(&place).expect("a file");
    let holder = Holder::start(
        || {
            budget(&segment).try_acquire(60).expect("units are available");
            close_all();
        },
        // A refusal looks for dead processes, and for the lock of this one.
        || assert_eq!(budget(&segment).try_acquire(LIMIT), exhausted(40)),
    );
    assert!(!has_lock(&file), "the lock has another place");
    holder.tell();
    assert!(has_lock(&file), "no lock");
    holder.kill();
    until(|| !has_lock(&file));
}

// The program closes the lock's descriptor, and its number is another file's: also the segment's.
fn files_of_others_are_left_alone() {
    let place = Place::new();
    let segment = small().create(&place).expect("a segment");
    fork::run(|| {
        let budget = budget(&segment);
        budget.try_acquire(60).expect("units are available");
        close_all();
        let open = || File::options().read(true).write(true).open(&place).expect("a file");
        let mut strangers: Vec<_> = (0..20).map(|_| open()).collect();
        for _ in 0..3 {
            assert_eq!(budget.try_acquire(41), exhausted(40));
            // A child closes its copy of the lock, and nothing else.
            fork::run(|| {
                budget.try_acquire(1).expect("units are available");
                assert!(strangers.iter().all(|file| file.metadata().is_ok()));
            })
            .expect("a consistent child");
            until(|| budget.available() == 40);
        }
        // A lock of a stranger's description would end with it.
        let probe = open();
        strangers.drain(..).map(|file| OwnedFd::from(file).into_raw_fd()).for_each(|fd| {
            // SAFETY: the descriptor is this function's own.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        });
        assert!(has_lock(&probe), "no lock");
    })
    .expect("all files");
}

fn can_make_namespace() -> Result<(), String> {
    let child = fork::start(|| {
        // SAFETY: the call changes what this process's children see.
        let made = unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWPID) };
        assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
        fork::run(|| ()).expect("a child in the namespace");
    });
    fork::finish(child).map_err(|_| "needs PID namespaces".into())
}

fn processes_of_other_namespaces_are_seen() {
    let segment = small_segment();
    let budget = budget(&segment);
    let [inner, step] = [0, 1].map(|at| &shared_words()[at]);
    budget.try_acquire(10).expect("units are available");
    let outer = Processes::of(fork::start(|| {
        // SAFETY: the call changes what this process's children see.
        unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWPID) };
        let child = fork::start(|| {
            // The numbers of its namespace are those of other processes outside.
            assert_eq!(std::process::id(), 1);
            budget.try_acquire(60).expect("units are available");
            // It sees processes outside, too.
            assert_eq!(budget.try_acquire(31), exhausted(30));
            step.store(1, SeqCst);
            loop {
                std::thread::park();
            }
        });
        inner.store(child as u64, SeqCst);
        fork::finish(child).expect_err("it is killed");
    }));
    until(|| step.load(SeqCst) == 1);
    for _ in 0..scale::rounds(50) {
        assert_eq!(budget.try_acquire(31), exhausted(30));
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    // SAFETY: the process is a grandchild that still runs.
    assert_eq!(unsafe { libc::kill(inner.load(SeqCst) as i32, libc::SIGKILL) }, 0);
    outer.finish();
    budget.release(10);
    assert_back(&budget, LIMIT);
}

fn slots_are_used_again() {
    let segment = small_segment();
    let budget = budget(&segment);
    for _ in 0..scale::rounds(200) {
        fork::run(|| {
            budget.try_acquire(1).expect("a slot");
            std::mem::forget(budget.lease(1).expect("a slot"));
        })
        .expect("a slot");
    }
    assert_back(&budget, LIMIT);
    // More processes at once than there are slots: some get an error, and then another's slot.
    let few = small().participants(8).anonymous().expect("a segment");
    let begun = &shared_words()[0];
    in_processes(20, |_| {
        until(|| match few.budget("budget", LIMIT) {
            Ok(budget) => {
                budget.try_acquire(5).expect("units are available");
                begun.fetch_add(1, SeqCst);
                true
            }
            Err(error) => {
                let is_full = matches!(
                    error.kind(),
                    SegmentErrorKind::TooManyParticipants { participants: 8 }
                );
                assert!(is_full, "{error}");
                false
            }
        });
    });
    assert_eq!(begun.load(SeqCst), 20);
}

fn slots_have_an_end() {
    let segment = small().participants(3).anonymous().expect("a segment");
    let budget = budget(&segment);
    let holders: Vec<_> =
        (0..7).map(|_| Holder::start(|| budget.try_acquire(10).expect("a slot"), || ())).collect();
    let child = || {
        let error = budget.try_acquire(1).expect_err("no slot");
        let text = error.to_string();
        assert!(text.contains("8 processes use them already; let one end"), "{text}");
        assert!(text.contains("`participants`"), "{text}");
        let another = segment.budget("another", 5).expect_err("no slot");
        assert_eq!(another.kind(), &SegmentErrorKind::TooManyParticipants { participants: 8 });
    };
    fork::run(child).expect("an error");
    assert_eq!(budget.acquired(), 70);
    holders.into_iter().for_each(Holder::kill);
    assert_back(&budget, LIMIT);
    fork::run(|| budget.try_acquire(1).expect("a slot")).expect("a slot");
}

fn dropped_segment_returns_everything() {
    let segment = small_segment();
    let budget = budget(&segment);
    for _ in 0..scale::rounds(100) {
        let other = Segment::from_fd(file_of(&segment).into()).expect("a segment");
        let others = self::budget(&other);
        others.try_acquire(60).expect("units are available");
        assert_eq!(budget.try_acquire(41), exhausted(40));
        let lease = others.try_acquire_owned(20).expect("units are available");
        drop((other, others));
        // The lease keeps the segment attached.
        assert_eq!(budget.try_acquire(21), exhausted(20));
        drop(lease);
        assert_eq!(budget.available(), LIMIT);
    }
    // One process may attach more often than once, each time with a slot of its own.
    let other = Segment::from_fd(file_of(&segment).into()).expect("a segment");
    let others = self::budget(&other);
    budget.try_acquire(LIMIT).expect("units are available");
    assert_eq!(others.try_acquire(1), exhausted(0));
}

fn dead_processes_return_units_of_each_budget() {
    let segment = small_segment();
    let names: Vec<_> = (0..20).map(|number| format!("budget {number}")).collect();
    let each = |act: &dyn Fn(SharedBudget, u64)| {
        for (number, name) in names.iter().enumerate() {
            act(segment.budget(name, LIMIT).expect("room"), number as u64);
        }
    };
    for first in 0..3 {
        fork::run(|| {
            each(&|budget, number| budget.try_acquire(number + 1).expect("units are available"));
        })
        .expect("a child");
        let first = segment.budget(&names[7 * first], LIMIT).expect("room");
        until(|| first.try_acquire(LIMIT).is_ok());
        first.release(LIMIT);
        each(&|budget, _| {
            budget.try_acquire(LIMIT).expect("all units");
            budget.release(LIMIT);
        });
    }
}
