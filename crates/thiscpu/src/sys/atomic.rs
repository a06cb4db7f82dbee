//! The atomics that the protocols are written in.

pub(crate) use core::sync::atomic::{
    AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
    Ordering, fence,
};

pub(crate) use portable_atomic::AtomicU128;
