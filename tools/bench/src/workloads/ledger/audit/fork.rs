//! Children that are forked in the middle of everything, and check what they find.
//!
//! A child has one thread and whatever others left half done. It uses the ledger, and takes no lock of anything but that
//! and the allocator, which glibc makes for it.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use anyhow::{Context as _, Result};
use fastrand::Rng;

use super::{
    shared::{MOVED, PASSED, Shared, TENANT_SLOTS},
    tenant::{COUNTERS, Errors, Tenant},
};

/// How many tenants a child looks at.
const TENANTS: usize = 64;
/// A child that hangs is ended by a signal after so many seconds, by itself.
const ALARM_S: u32 = 60;

/// How children end.
const SOUND: i32 = 0;
const WRONG: i32 = 1;
const PANICKED: i32 = 2;

pub(super) struct Forks {
    random: Rng,
    pub(super) children: u64,
    /// Those that found something wrong, panicked or hung.
    pub(super) wrong: u64,
}

impl Forks {
    pub(super) fn new(round: u32) -> Self {
        Self { random: Rng::with_seed(round.into()), children: 0, wrong: 0 }
    }

    /// Forks a child and waits for its end.
    pub(super) fn fork(&mut self, shared: &Shared) -> Result<()> {
        // Taken before: in the child somebody may have the lock of a slot for ever.
        let tenants: Vec<_> =
            (0..TENANTS).map(|_| shared.tenant(self.random.usize(..TENANT_SLOTS))).collect();
        // SAFETY: the child does only what the child of a process with threads may; see above.
        let child = match unsafe { libc::fork() } {
            0 => live(shared, &tenants),
            -1 => return Err(io::Error::last_os_error()).context("cannot fork"),
            child => child,
        };
        self.children += 1;
        self.wrong += u64::from(wait(child)? != SOUND);
        tenants.into_iter().for_each(|tenant| shared.release(tenant));
        Ok(())
    }
}

/// A child's life.
fn live(shared: &Shared, tenants: &[Arc<Tenant>]) -> ! {
    // SAFETY: neither call touches this process's memory; the default action ends it.
    unsafe {
        libc::signal(libc::SIGALRM, libc::SIG_DFL);
        libc::alarm(ALARM_S);
    }
    let status = match catch_unwind(AssertUnwindSafe(|| is_right(shared, tenants))) {
        Ok(true) => SOUND,
        Ok(false) => WRONG,
        Err(_) => PANICKED,
    };
    // SAFETY: ends the child without running what the parent registered for its exit.
    unsafe { libc::_exit(status) }
}

/// In a child: whether what it finds is what the oracle say, and what becomes of it when it goes on alone.
fn is_right(shared: &Shared, tenants: &[Arc<Tenant>]) -> bool {
    let errors = Errors::default();
    shared.check_snapshot(&errors);
    tenants.iter().chain(tenants).for_each(|tenant| tenant.check(&errors));
    shared.transfer_accounts.iter().for_each(|account| account.check(&errors));
    for (nth, tenant) in tenants.iter().enumerate() {
        let [first, second] = tenant.account.snapshot();
        (0..300).for_each(|_| tenant.account.charge(nth % COUNTERS, 7));
        let more = |index| if nth % COUNTERS == index { 2_100 } else { 0 };
        errors.judge_exactly(first + more(0), tenant.account.sum(0));
        errors.judge_exactly(second + more(1), tenant.account.sum(1));
    }
    for pair in shared.transfer_accounts.windows(2) {
        pair[0].transfer_to(&pair[1], MOVED, 300);
        pair[0].charge(PASSED, 1, 300);
        pair[1].charge(PASSED, -1, 300);
    }
    shared.check_snapshot(&errors);
    let new = Tenant::open(&shared.ledger, &errors);
    new.charge(0, 1, 300);
    drop(new.close(&errors));
    !errors.are_any()
}

/// Waits for a child's end. Its status, or that of a child which panicked if a signal ended it.
fn wait(child: i32) -> Result<i32> {
    let mut status = 0;
    loop {
        // SAFETY: the status is valid for writes.
        match unsafe { libc::waitpid(child, &mut status, 0) } {
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            -1 => return Err(io::Error::last_os_error()).context("cannot wait for a child"),
            _ if libc::WIFEXITED(status) => return Ok(libc::WEXITSTATUS(status)),
            _ => return Ok(PANICKED),
        }
    }
}
