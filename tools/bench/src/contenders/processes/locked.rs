//! A count under a lock whose holder may die: a robust mutex, and a System V semaphore.

use std::{
    cell::UnsafeCell,
    io,
    mem::MaybeUninit,
    sync::atomic::{AtomicI64, Ordering::Relaxed},
};

use anyhow::{Context as _, Result, ensure};

use super::{Contender, SharedMemory, Zeroed};

/// A mutex and the count beside it, on cache lines of their own.
#[repr(C, align(128))]
pub(crate) struct Guarded {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    count: AtomicI64,
}

// SAFETY: the mutex is only accessed by the C library, whose mutexes threads share.
unsafe impl Sync for Guarded {}
// SAFETY: a mutex of zeros is one that is not locked, and an atomic of zeros is 0.
unsafe impl Zeroed for Guarded {}

/// `robust-mutex`: a count under a mutex that survives the death of its holder.
pub(crate) struct RobustMutex(SharedMemory<Guarded>);

impl RobustMutex {
    /// Passes the count to `body` while the mutex is locked.
    #[inline(always)]
    pub(crate) fn locked<T>(&self, body: impl FnOnce(&AtomicI64) -> T) -> T {
        let mutex = self.0.mutex.get();
        // SAFETY: `try_new` has initialized the mutex.
        if unsafe { libc::pthread_mutex_lock(mutex) } == libc::EOWNERDEAD {
            // SAFETY: this thread has locked it. The count is right whenever its holder dies.
            unsafe { libc::pthread_mutex_consistent(mutex) };
        }
        let result = body(&self.0.count);
        // SAFETY: this thread has locked it.
        unsafe { libc::pthread_mutex_unlock(mutex) };
        result
    }
}

impl Contender for RobustMutex {
    fn try_new() -> Result<Self> {
        let guarded = SharedMemory::<Guarded>::zeroed()?;
        let mut attributes = MaybeUninit::uninit();
        let attributes = attributes.as_mut_ptr();
        // SAFETY: the first call initializes the attributes, which live until the last one. No
        // other process knows the mutex yet.
        let results = unsafe {
            [
                libc::pthread_mutexattr_init(attributes),
                libc::pthread_mutexattr_setpshared(attributes, libc::PTHREAD_PROCESS_SHARED),
                libc::pthread_mutexattr_setrobust(attributes, libc::PTHREAD_MUTEX_ROBUST),
                libc::pthread_mutex_init(guarded.mutex.get(), attributes),
                libc::pthread_mutexattr_destroy(attributes),
            ]
        };
        ensure!(results == [0; 5], "cannot make a robust mutex: {results:?}");
        Ok(Self(guarded))
    }

    #[inline(always)]
    fn add(&self, _process: usize) {
        self.locked(increment);
    }

    fn sum(&self) -> i64 {
        self.0.count.load(Relaxed)
    }
}

/// Adds 1 without an atomic addition, under a lock.
#[inline(always)]
fn increment(count: &AtomicI64) {
    // Relaxed: the lock orders these.
    count.store(count.load(Relaxed) + 1, Relaxed);
}

/// `sysv-semaphore`: a count under a semaphore that the kernel releases if its holder dies.
pub(crate) struct SysvSemaphore {
    id: i32,
    guarded: SharedMemory<Guarded>,
}

impl SysvSemaphore {
    /// Makes a semaphore of `value`, which is at most 32,767.
    pub(crate) fn with_value(value: i32) -> Result<Self> {
        let guarded = SharedMemory::zeroed()?;
        // SAFETY: the call takes numbers.
        let id = unsafe { libc::semget(libc::IPC_PRIVATE, 1, libc::IPC_CREAT | 0o600) };
        ensure!(id >= 0, "cannot make a semaphore: {}", io::Error::last_os_error());
        let semaphore = Self { id, guarded };
        // SAFETY: the call takes numbers with this command.
        let set = unsafe { libc::semctl(id, 0, libc::SETVAL, value) };
        (set == 0).then_some(semaphore).context("cannot set a semaphore")
    }

    pub(crate) fn value(&self) -> i32 {
        // SAFETY: the call takes numbers with this command.
        unsafe { libc::semctl(self.id, 0, libc::GETVAL) }
    }

    /// Changes the value; what this process has changed is undone when it ends.
    ///
    /// Waits if the value would be negative, or returns false with `IPC_NOWAIT` in `flags`.
    #[inline(always)]
    pub(crate) fn change(&self, by: i16, flags: i32) -> bool {
        let flags = (libc::SEM_UNDO | flags) as i16;
        let mut operation = libc::sembuf { sem_num: 0, sem_op: by, sem_flg: flags };
        loop {
            // SAFETY: the operation lives during the call.
            if unsafe { libc::semop(self.id, &raw mut operation, 1) } == 0 {
                return true;
            }
            // A signal may interrupt the wait.
            if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return false;
            }
        }
    }
}

impl Contender for SysvSemaphore {
    // An operation is two system calls, and a contended one waits.
    const STEP: u32 = 16;

    fn try_new() -> Result<Self> {
        Self::with_value(1)
    }

    #[inline(always)]
    fn add(&self, _process: usize) {
        self.change(-1, 0);
        increment(&self.guarded.count);
        self.change(1, 0);
    }

    fn sum(&self) -> i64 {
        // Relaxed: a sum at the end is ordered by the ends of the processes.
        self.guarded.count.load(Relaxed)
    }
}

impl Drop for SysvSemaphore {
    fn drop(&mut self) {
        // SAFETY: the call takes numbers. Children end without drops, so this is the last user.
        unsafe { libc::semctl(self.id, 0, libc::IPC_RMID) };
    }
}
