//! The atomics of all protocols: `core`'s, or those of a model checker.

#[cfg(thiscpu_model)]
pub(crate) use crate::model::atomic::*;

#[cfg(not(thiscpu_model))]
pub(crate) use core::sync::atomic::{
    AtomicBool, AtomicI64, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
    Ordering, fence,
};

#[cfg(not(thiscpu_model))]
pub(crate) use portable_atomic::AtomicU128;
