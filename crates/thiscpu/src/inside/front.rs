//! What malloc and free in assembly have to know of the group at the front; see `section::x86_64::front`.

pub use crate::lanes::direct::{ITEMS_AT, MALLOC_TABLE};
pub use crate::slab::arena::for_assembly::{ARENA, CHUNK_SHIFT, CHUNKS_FROM_ORIGIN, FAST_ORIGIN};
pub use crate::slab::arena::heap_error::{double_free, write_after_free};
pub use crate::slab::class::KEY;
pub use crate::sys::rseq::RSEQ_CS;
pub use crate::sys::rseq::index_ptr::AREA_MASK;
