//! Per-CPU memory: lanes, the items in them, and the tables that lead there.
//!
//! - `table`: from the kernel's index (`mm_cid` or `cpu_id`) to a lane;
//! - `region`: the address space that lanes are in, and the allocation of items;
//! - `item`: an item that is freed when dropped;
//! - `direct`: tables that lead from an index straight to one item;
//! - `current`: the calling thread's lane, seen from outside a section.

pub(crate) mod current;
pub(crate) mod direct;
pub(crate) mod item;
pub(crate) mod region;
pub(crate) mod table;
