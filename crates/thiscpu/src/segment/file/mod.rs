//! The file of a segment: its format, and where everything in it is.
//!
//! - `budgets`: where budgets are, and the reclaim from all of them;
//! - `directory`: objects by name;
//! - `error`: why a segment, or an object of it, cannot be used;
//! - `layout`: the header, and the areas behind it;
//! - `mapping`: the file in this process, and memory from it;
//! - `objects`: a list of all objects;
//! - `place`: where the counters of one name are;
//! - `slots`: where participants are recorded.

pub(in crate::segment) mod budgets;
pub(in crate::segment) mod directory;
pub(in crate::segment) mod error;
pub(in crate::segment) mod layout;
pub(in crate::segment) mod mapping;
pub(in crate::segment) mod objects;
pub(in crate::segment) mod place;
pub(in crate::segment) mod slots;
