//! malloc and free in assembly, and the items of this crate that they need.
//!
//! A function that a compiler builds around a section has a branch twice, because assembly that may
//! jump out returns no value. It also leaves the section by jumps of six bytes where two would do,
//! and may begin anywhere. The cost of a call is the number of 64-byte blocks that it is fetched
//! from: one cycle each (Zen 4). The fast paths of these functions take two blocks. So each one
//! begins a block, and leaves by a short jump to a long jump behind its fast path.
//!
//! ```text
//! malloc: rdi size, r10 cell, rax address of the top, then the object
//! free:   rdi object, rax chunk, then cell, r10 address of the top
//! both:   rdx index pointer, r8 area, rcx scratch, then the item, rsi direct table, r9 top,
//!         r11 encoded pointer
//! ```
//!
//! A caller expects none of these registers to survive, and nothing is on the stack. So another
//! function takes the place of this one if it leaves by a jump.

pub use crate::lanes::direct::{KEY_TO_ITEMS, MALLOC_ITEMS_OFFSET, MALLOC_TABLE, ORIGIN_TO_ITEMS};
pub use crate::slab::arena::for_assembly::{CHUNK_SHIFT, CHUNKS_FROM_ORIGIN, TAG_BITS_OFFSET};
pub use crate::slab::arena::heap_error::{double_free, write_after_free};
pub use crate::sys::rseq::RSEQ_CS;
pub use crate::sys::rseq::index_ptr::AREA_MASK;

/// Defines a function in assembly that contains a section on malloc's direct table.
///
/// `code` is what it does; its own operands follow. The operands of every such section are here.
/// The code begins at label 36. So `.org 36b + 128` behind a fast path is an error of the assembler
/// if the path takes more than two blocks.
#[cfg(target_arch = "x86_64")]
#[doc(hidden)]
#[macro_export]
macro_rules! define_section_fn {
    (
        $(#[$attribute:meta])* [$($function:tt)*] in $section:literal,
        code: [$($code:tt)*] $($operands:tt)*
    ) => {
        $(#[$attribute])*
        #[unsafe(naked)]
        // A linker section of its own, so that the alignment of the section is the function's.
        #[unsafe(link_section = $section)]
        $($function)* {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "36:",
                $($code)*
                ".cfi_endproc",
                ".balign 64",
                direct = sym $crate::__internal::malloc::MALLOC_TABLE,
                ITEMS_OFFSET = const $crate::__internal::malloc::MALLOC_ITEMS_OFFSET,
                KEY_TO_ITEMS = const $crate::__internal::malloc::KEY_TO_ITEMS,
                RSEQ_CS = const $crate::__internal::malloc::RSEQ_CS,
                AREA_MASK = const $crate::__internal::malloc::AREA_MASK,
                $($operands)*
            )
        }
    };
}

/// Defines a function that allocates: `fn(size: usize)` to a pointer.
///
/// `cells` has the cell of each size up to `largest`, in the item of the group with malloc's direct
/// table. `limit` is a word: sizes from it on are not looked up. It never exceeds `largest` by more
/// than 1, and is 0 to count all calls.
///
/// While it is 0, a call for a size up to `largest` subtracts the size and 1 from the thread's
/// [`sample_left`]. It goes on if the result is above 0, and if the word behind it equals
/// `interval`.
///
/// In all other cases, and if the section does not commit, the function becomes a jump to
/// `gated(size, is_counted)`. `is_counted` is false if `gated` still has to count the call.
///
/// [`sample_left`]: crate::__internal::sample_left
#[cfg(target_arch = "x86_64")]
#[doc(hidden)]
#[macro_export]
macro_rules! define_malloc_fn {
    (
        $(#[$attribute:meta])* $visibility:vis fn $name:ident() -> $object:ty, in $section:literal,
        cells: $cells:path, largest: $largest:expr, limit: $limit:path, interval: $interval:path,
        gated: $gated:path
    ) => {
        const _: () = {
            let cells: &[u16] = &$cells;
            assert!(cells.len() > $largest, "each size has a cell");
        };

        // As in inlined sections: the encoded pointer belongs to the thread that popped it, which
        // then checks the free mark of its object.
        $crate::define_section_fn!(
            $(#[$attribute])* [$visibility extern "C-unwind" fn $name(size: usize) -> $object]
            in $section,
            code: [
                "cmp rdi, qword ptr [rip + {limit}]",
                "jae 40f",
                "41:",
                "lea rax, [rip + {cells}]",
                "movzx r10d, word ptr [rax + rdi*2]",
                "lea rsi, [rip + {direct} + {ITEMS_OFFSET}]",
                $crate::section_text!(
                    "pop_object_malloc_asm",
                    enter: [$crate::direct_text!(ptr: "rdx", area: "r8", a: "rcx", out: "je 37f")]
                    range: [
                        "movzx ecx, word ptr [rdx + 4]",
                        $crate::malloc_table_text!(a: "rcx", direct: "rsi", closed: "je 37f"),
                        $crate::countdown_text!(
                            a: "rcx", at: " - 16", word: "eax", over: "js 37f"
                        ),
                        $crate::pop_object_text!(
                            a: "rcx", at: "", cell: "r10", word: "rax", top: "r9", encoded: "r11",
                            empty: "je 37f"
                        ),
                    ]
                    aborted: "jmp 37f"
                ),
                "mov rax, qword ptr [rsi - {KEY_TO_ITEMS}]",
                "sub rax, r11",
                // A free object's mark is its encoded pointer.
                "cmp qword ptr [rax], r11",
                "jne 38f",
                "mov qword ptr [rax], 0",
                "ret",
                ".org 36b + 128",
                "37:",
                // 3 bytes, so that a short jump leads to the next label.
                "push 1",
                "pop rsi",
                "jmp {gated}",
                "40:",
                "cmp rdi, {largest}",
                "ja 42f",
                // As `count` of heap profiles does it. 0 means that no distance was drawn yet.
                "mov rax, qword ptr [rip + __thiscpu_0_1_sample_left@gottpoff]",
                "mov rcx, rdi",
                "not rcx",
                "add rcx, qword ptr fs:[rax]",
                "jle 42f",
                "mov rdx, qword ptr fs:[rax + 8]",
                "cmp rdx, qword ptr [rip + {interval}]",
                "jne 42f",
                "mov qword ptr fs:[rax], rcx",
                "jmp 41b",
                "42:",
                "xor esi, esi",
                "jmp {gated}",
                "38:",
                "mov rdi, rax",
                "jmp {write_after_free}",
            ]
            cells = sym $cells,
            largest = const $largest,
            limit = sym $limit,
            interval = sym $interval,
            gated = sym $gated,
            write_after_free = sym $crate::__internal::malloc::write_after_free,
        );
    };
}

/// Defines a function that frees: an `unsafe fn` of a pointer.
///
/// A pointer that is null, not aligned like its slab's objects, or in no slab of malloc's group
/// goes to `general`, which has the function's type. If the section does not commit, the object
/// goes to `gated`, which finds it marked as free.
#[cfg(target_arch = "x86_64")]
#[doc(hidden)]
#[macro_export]
macro_rules! define_free_fn {
    (
        $(#[$attribute:meta])* $visibility:vis fn $name:ident($object:ty), in $section:literal,
        general: $general:path, gated: $gated:path
    ) => {
        // As `fast_tag_of`, and then as in the sections that are inlined.
        $crate::define_section_fn!(
            $(#[$attribute])* [$visibility unsafe extern "C-unwind" fn $name(object: $object)]
            in $section,
            code: [
                "lea rsi, [rip + {direct} + {ITEMS_OFFSET}]",
                "mov rcx, qword ptr [rsi - {ORIGIN_TO_ITEMS}]",
                "mov rax, rdi",
                "sub rax, rcx",
                "shr rax, {CHUNK_SHIFT}",
                "cmp rax, {CHUNKS_FROM_ORIGIN}",
                "jae 37f",
                // The address is not aligned like the chunk's blocks, or there are none.
                "test byte ptr [rcx + rax*4 + {TAG_BITS_OFFSET}], dil",
                "jnz 37f",
                "movzx eax, word ptr [rcx + rax*4]",
                "test eax, eax",
                "jz 37f",
                "mov r11, qword ptr [rsi - {KEY_TO_ITEMS}]",
                "sub r11, rdi",
                "cmp qword ptr [rdi], r11",
                "je 38f",
                "mov qword ptr [rdi], r11",
                $crate::section_text!(
                    "push_object_malloc_asm",
                    enter: [$crate::direct_text!(ptr: "rdx", area: "r8", a: "rcx", out: "je 39f")]
                    range: [
                        "movzx ecx, word ptr [rdx + 4]",
                        // As `malloc_table_text`, in three bytes less.
                        "mov rcx, qword ptr [rsi + rcx*8]",
                        "jrcxz 39f",
                        $crate::push_object_text!(
                            a: "rcx", at: "", cell: "rax", word: "r10", top: "r9", encoded: "r11",
                            full: "je 39f"
                        ),
                    ]
                    aborted: "jmp 39f"
                ),
                "ret",
                ".org 36b + 128",
                "37:",
                "jmp {general}",
                "38:",
                "jmp {double_free}",
                "39:",
                "jmp {gated}",
            ]
            ORIGIN_TO_ITEMS = const $crate::__internal::malloc::ORIGIN_TO_ITEMS,
            CHUNKS_FROM_ORIGIN = const $crate::__internal::malloc::CHUNKS_FROM_ORIGIN,
            CHUNK_SHIFT = const $crate::__internal::malloc::CHUNK_SHIFT,
            TAG_BITS_OFFSET = const $crate::__internal::malloc::TAG_BITS_OFFSET,
            general = sym $general,
            double_free = sym $crate::__internal::malloc::double_free,
            gated = sym $gated,
        );
    };
}
