//! What malloc and free in assembly have to know of the group at the front; see `section::x86_64::front`.

pub use crate::lanes::direct::{ITEMS_AT, MALLOC_TABLE};
pub use crate::slab::arena::front::{NUMBERS, ORIGIN_AT_HAND, SPACE, UNIT_SHIFT};
pub use crate::slab::arena::heap_error::{freed_twice, written_to};
pub use crate::slab::class::KEY;
pub use crate::sys::rseq::RSEQ_CS;
pub use crate::sys::rseq::index_ptr::AREA_MASK;
