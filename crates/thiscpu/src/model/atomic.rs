//! The atomics of the modelled machine: those operations of `core`'s that this library uses.

use core::marker::PhantomData;
use core::sync::atomic as real;
pub(crate) use core::sync::atomic::Ordering;

use super::checker::Change;
use super::machine::{now, step};

/// Runs a full, acquire or release fence.
pub(crate) fn fence(order: Ordering) {
    now().checker.fence(order);
}

macro_rules! integers {
    ($($name:ident: $integer:ty),* $(,)?) => {$(
        /// An integer; the field holds the value that a modelled execution starts with.
        #[derive(Debug, Default)]
        #[repr(transparent)]
        pub(crate) struct $name(real::$name);

        impl $name {
            pub(crate) const fn new(value: $integer) -> Self {
                $name(real::$name::new(value))
            }

            fn at(&self) -> usize {
                core::ptr::from_ref(self) as usize
            }

            pub(super) fn first(&self) -> u64 {
                self.0.load(Ordering::Relaxed) as u64
            }

            fn change(&self, by: Change, order: [Ordering; 2]) -> Result<$integer, $integer> {
                match step().checker.change(self.at(), self.first(), by, order) {
                    Ok(before) => Ok(before as $integer),
                    Err(found) => Err(found as $integer),
                }
            }

            fn rmw(&self, by: Change, order: Ordering) -> $integer {
                let (Ok(before) | Err(before)) = self.change(by, [order, Ordering::Relaxed]);
                before
            }

            pub(crate) fn load(&self, order: Ordering) -> $integer {
                step().checker.load(self.at(), self.first(), order) as $integer
            }

            pub(crate) fn store(&self, value: $integer, order: Ordering) {
                step().checker.store(self.at(), self.first(), value as u64, order);
            }

            pub(crate) fn swap(&self, value: $integer, order: Ordering) -> $integer {
                self.rmw(Change::Swap(value as u64), order)
            }

            pub(crate) fn fetch_add(&self, n: $integer, order: Ordering) -> $integer {
                self.rmw(Change::Add(n as u64), order)
            }

            pub(crate) fn fetch_and(&self, mask: $integer, order: Ordering) -> $integer {
                self.rmw(Change::And(mask as u64), order)
            }

            pub(crate) fn fetch_or(&self, mask: $integer, order: Ordering) -> $integer {
                self.rmw(Change::Or(mask as u64), order)
            }

            pub(crate) fn fetch_min(&self, other: $integer, order: Ordering) -> $integer {
                let mut now = self.load(Ordering::Relaxed);
                while other < now {
                    match self.compare_exchange(now, other, order, Ordering::Relaxed) {
                        Ok(_) => break,
                        Err(found) => now = found,
                    }
                }
                now
            }

            pub(crate) fn compare_exchange(
                &self,
                old: $integer,
                new: $integer,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$integer, $integer> {
                self.change(
                    Change::Exchange { old: old as u64, new: new as u64 },
                    [success, failure],
                )
            }
        }
    )*};
}

integers!(
    AtomicU8: u8, AtomicU16: u16, AtomicU32: u32, AtomicU64: u64, AtomicI64: i64,
    AtomicUsize: usize,
);

#[derive(Debug, Default)]
#[repr(transparent)]
pub(crate) struct AtomicBool(AtomicU8);

impl AtomicBool {
    pub(crate) const fn new(value: bool) -> Self {
        AtomicBool(AtomicU8::new(value as u8))
    }

    pub(crate) fn load(&self, order: Ordering) -> bool {
        self.0.load(order) != 0
    }

    pub(crate) fn store(&self, value: bool, order: Ordering) {
        self.0.store(u8::from(value), order);
    }

    pub(crate) fn swap(&self, value: bool, order: Ordering) -> bool {
        self.0.swap(u8::from(value), order) != 0
    }
}

#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct AtomicPtr<T>(AtomicUsize, PhantomData<*mut T>);

// SAFETY: the type holds an address only, and accesses nothing through it, like `core`'s type.
unsafe impl<T> Sync for AtomicPtr<T> {}
// SAFETY: the type holds an address only, and accesses nothing through it, like `core`'s type.
unsafe impl<T> Send for AtomicPtr<T> {}

impl<T> AtomicPtr<T> {
    pub(crate) const fn new(pointer: *mut T) -> Self {
        assert!(pointer.is_null(), "no static of this library begins otherwise");
        AtomicPtr(AtomicUsize::new(0), PhantomData)
    }

    pub(crate) fn load(&self, order: Ordering) -> *mut T {
        core::ptr::with_exposed_provenance_mut(self.0.load(order))
    }

    pub(crate) fn store(&self, pointer: *mut T, order: Ordering) {
        self.0.store(pointer.expose_provenance(), order);
    }

    pub(crate) fn compare_exchange(
        &self,
        old: *mut T,
        new: *mut T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<*mut T, *mut T> {
        let pointer = core::ptr::with_exposed_provenance_mut;
        let (old, new) = (old.expose_provenance(), new.expose_provenance());
        self.0.compare_exchange(old, new, success, failure).map(pointer).map_err(pointer)
    }
}

#[derive(Debug)]
#[repr(C, align(16))]
pub(crate) struct AtomicU128([u64; 2]);

impl AtomicU128 {
    pub(crate) fn load(&self, order: Ordering) -> u128 {
        join(step().checker.load_pair(self.0.as_ptr() as usize, order))
    }

    pub(crate) fn compare_exchange(
        &self,
        old: u128,
        new: u128,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u128, u128> {
        let at = self.0.as_ptr() as usize;
        match step().checker.change_pair(at, split(old), split(new), [success, failure]) {
            Ok(()) => Ok(old),
            Err(found) => Err(join(found)),
        }
    }

    pub(crate) fn compare_exchange_weak(
        &self,
        old: u128,
        new: u128,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u128, u128> {
        self.compare_exchange(old, new, success, failure)
    }
}

fn join([low, high]: [u64; 2]) -> u128 {
    u128::from(high) << 64 | u128::from(low)
}

fn split(bits: u128) -> [u64; 2] {
    [bits as u64, (bits >> 64) as u64]
}
