//! malloc and free in assembly, for the group at the front.
//!
//! A function that is compiled around a section has a test twice, since assembly that jumps elsewhere returns no value; jumps of six bytes out of it, where two would do; and
//! begins anywhere. What counts is how many blocks of 64 bytes a call is fetched from: a call takes a cycle for each of them (Zen 4), and these take two.
//! So each begins a block, and what leaves it goes by way of a jump behind its end.
//!
//! ```text
//! malloc: rdi size, r10 cell, rax top's word, then object       free: rdi object, rax unit, then cell, r10 top's word
//! both:   rdx near, r8 area, rcx scratch, then the item's, rsi front, r9 top, r11 entry
//! ```
//!
//! None of these has to be kept for a caller, and there is nothing on the stack, so where one of them leaves by a jump the other function takes its place.

/// Defines a function in assembly that has a section on the group at the front. `code` is what it does, and what follows are the operands of that; those
/// that every such section has are here.
#[doc(hidden)]
#[macro_export]
macro_rules! define_front_function {
    (
        $(#[$attribute:meta])* [$($function:tt)*] in $section:literal, group: $group:path,
        code: [$($code:tt)*] $($operands:tt)*
    ) => {
        $(#[$attribute])*
        #[unsafe(naked)]
        // By itself, so that what it is aligned to is where it begins.
        #[unsafe(link_section = $section)]
        $($function)* {
            core::arch::naked_asm!(
                ".cfi_startproc",
                $($code)*
                ".cfi_endproc",
                ".balign 64",
                front = sym $crate::inside::front::MALLOC_TABLE,
                ITEMS_AT = const $crate::inside::front::ITEMS_AT,
                RSEQ_CS = const $crate::inside::front::RSEQ_CS,
                AREA_MASK = const $crate::inside::front::AREA_MASK,
                group = sym $group,
                KEY = const $crate::inside::front::KEY,
                $($operands)*
            )
        }
    };
}

/// Defines a function that allocates: `fn(size: usize)` to a pointer. What it does not do itself is left to `farther`, a function like it.
///
/// `cells` has the cell of each size up to `most`, and `group` is the group at the front.
#[doc(hidden)]
#[macro_export]
macro_rules! define_front_alloc {
    (
        $(#[$attribute:meta])* $visibility:vis fn $name:ident() -> $object:ty, in $section:literal,
        cells: $cells:path, most: $most:expr, group: $group:path, farther: $farther:path
    ) => {
        const _: () = {
            let cells: &[u16] = &$cells;
            assert!(cells.len() > $most, "each size has a cell");
        };

        // As in the sections that are inlined: the entry belongs to whoever took it, and its object is looked at for its mark.
        $crate::define_front_function!(
            $(#[$attribute])* [$visibility extern "C-unwind" fn $name(size: usize) -> $object] in $section, group: $group,
            code: [
                "cmp rdi, {MOST}",
                "ja 37f",
                "lea rax, [rip + {cells}]",
                "movzx r10d, word ptr [rax + rdi*2]",
                "lea rsi, [rip + {front} + {ITEMS_AT}]",
                $crate::section_text!(
                    "pop_object_malloc_asm",
                    enter: [$crate::direct_text!(near: "rdx", area: "r8", a: "rcx", out: "je 37f")]
                    range: [
                        "movzx ecx, word ptr [rdx + 4]",
                        $crate::malloc_table_text!(a: "rcx", front: "rsi", closed: "je 37f"),
                        $crate::pop_object_text!(a: "rcx", at: "", cell: "r10", word: "rax", top: "r9", entry: "r11", empty: "je 37f"),
                    ]
                    aborted: "jmp 37f"
                ),
                "mov rax, qword ptr [rip + {group} + {KEY}]",
                "sub rax, r11",
                // Its mark is the entry.
                "cmp qword ptr [rax], r11",
                "jne 38f",
                "mov qword ptr [rax], 0",
                "ret",
                "37:",
                "jmp {farther}",
                "38:",
                "mov rdi, rax",
                "jmp {write_after_free}",
            ]
            cells = sym $cells,
            MOST = const $most,
            farther = sym $farther,
            write_after_free = sym $crate::inside::front::write_after_free,
        );
    };
}

/// Defines a function that frees: `unsafe fn` of a pointer. What is in no slab of the group, or null, is left to `otherwise`, a function like
/// it; and what the lane has no room for to `farther`, which finds it marked as free.
#[doc(hidden)]
#[macro_export]
macro_rules! define_front_free {
    (
        $(#[$attribute:meta])* $visibility:vis fn $name:ident($object:ty), in $section:literal,
        group: $group:path, otherwise: $otherwise:path, farther: $farther:path
    ) => {
        // As `fast_tag_of`, and then as in the sections that are inlined.
        $crate::define_front_function!(
            $(#[$attribute])* [$visibility unsafe extern "C-unwind" fn $name(object: $object)] in $section, group: $group,
            code: [
                "mov rcx, qword ptr [rip + {arena} + {FAST_ORIGIN}]",
                "mov rax, rdi",
                "sub rax, rcx",
                "shr rax, {CHUNK_SHIFT}",
                "cmp rax, {CHUNKS_FROM_ORIGIN}",
                "jae 37f",
                "mov eax, dword ptr [rcx + rax*4]",
                "test eax, eax",
                "jle 37f",
                "mov r11, qword ptr [rip + {group} + {KEY}]",
                "sub r11, rdi",
                "cmp qword ptr [rdi], r11",
                "je 38f",
                "mov qword ptr [rdi], r11",
                "lea rsi, [rip + {front} + {ITEMS_AT}]",
                $crate::section_text!(
                    "push_object_malloc",
                    enter: [$crate::direct_text!(near: "rdx", area: "r8", a: "rcx", out: "je 39f")]
                    range: [
                        "movzx ecx, word ptr [rdx + 4]",
                        $crate::malloc_table_text!(a: "rcx", front: "rsi", closed: "je 39f"),
                        $crate::push_object_text!(a: "rcx", at: "", cell: "rax", word: "r10", top: "r9", entry: "r11", full: "je 39f"),
                    ]
                    aborted: "jmp 39f"
                ),
                "ret",
                "37:",
                "jmp {otherwise}",
                "38:",
                "jmp {double_free}",
                "39:",
                "jmp {farther}",
            ]
            arena = sym $crate::inside::front::ARENA,
            FAST_ORIGIN = const $crate::inside::front::FAST_ORIGIN,
            CHUNKS_FROM_ORIGIN = const $crate::inside::front::CHUNKS_FROM_ORIGIN,
            CHUNK_SHIFT = const $crate::inside::front::CHUNK_SHIFT,
            otherwise = sym $otherwise,
            double_free = sym $crate::inside::front::double_free,
            farther = sym $farther,
        );
    };
}
