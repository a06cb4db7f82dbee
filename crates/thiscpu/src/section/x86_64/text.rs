//! The text of sections, shared by inlined sections and by functions in assembly.
//!
//! The macros take registers as they are spelled in the text.

/// A section: its descriptor, its entry, its range, and its abort handler.
///
/// The handler lies away from the code that runs. Labels 30 to 34 are the section's own; 33 is the
/// code that follows it.
#[doc(hidden)]
#[macro_export]
macro_rules! section_text {
    (
        $name:expr, enter: [$($enter:expr),* $(,)?] range: [$($range:expr),* $(,)?]
        aborted: $aborted:expr
    ) => {
        concat!(
            ".pushsection __rseq_cs, \"aw\"\n",
            ".balign 32\n",
            "30:\n",
            ".long 0, 0\n",
            ".quad 31f, 32f - 31f, 34f\n",
            ".popsection\n",
            ".pushsection __rseq_cs_ptr_array, \"aw\"\n",
            ".quad 30b\n",
            ".popsection\n",
            // The section's name, for checkers; it is not loaded at run time. The flag ties it to
            // the descriptors, so that a linker that drops unused code drops both or neither.
            ".pushsection .thiscpu_sections, \"o\", %progbits, __rseq_cs\n",
            ".quad 30b\n",
            ".asciz \"", $name, "\"\n",
            ".popsection\n",
            $($enter, "\n",)*
            "31:\n",
            $($range, "\n",)*
            "32:\n",
            ".pushsection __rseq_failure, \"ax\"\n",
            // An undefined instruction with the signature as its operand, so that only the kernel
            // can reach the handler.
            ".byte 0x0f, 0xb9, 0x3d\n",
            ".long 0x53053053\n",
            "34:\n",
            $aborted, "\n",
            ".popsection\n",
            "33:\n",
        )
    };
}

/// Lines of text, each made of pieces.
#[doc(hidden)]
#[macro_export]
macro_rules! section_lines {
    ($([$($piece:tt)*])*) => {
        concat!($($($piece,)* "\n",)*)
    };
}

/// The instructions that enter a direct section.
///
/// The thread's index pointer leads to its lane index, or is 0; see
/// [`crate::sys::rseq::index_ptr`]. So the section need not check the thread, and need not wait for
/// offsets. A pair of malloc and free takes 13 cycles this way, and 17 with offsets (Zen 4).
///
/// Leaves the index pointer in `ptr` and the thread's rseq area in `area`.
#[doc(hidden)]
#[macro_export]
macro_rules! direct_text {
    (ptr: $ptr:literal, area: $area:literal, a: $a:literal, out: $out:literal) => {
        concat!(
            $crate::section_lines! {
                // A linker that knows the offset turns the load into a constant.
                ["mov " $ptr ", qword ptr [rip + __thiscpu_0_1_index_ptr@gottpoff]"]
                ["mov " $ptr ", qword ptr fs:[" $ptr "]"]
            },
            $crate::direct_entry_text!(ptr: $ptr, area: $area, a: $a, out: $out),
        )
    };
}

/// The instructions that enter a direct section whose `ptr` holds the index pointer.
#[doc(hidden)]
#[macro_export]
macro_rules! direct_entry_text {
    (ptr: $ptr:literal, area: $area:literal, a: $a:literal, out: $out:literal) => {
        $crate::section_lines! {
            ["mov " $area ", " $ptr]
            ["and " $area ", {AREA_MASK}"]
            [$out]
            ["lea " $a ", [rip + 30b]"]
            ["mov qword ptr [" $area " + {RSEQ_CS}], " $a]
        }
    };
}

/// Finds the first top of the item in this thread's lane by malloc's direct table.
///
/// `a` holds the index before, and the address of the top after.
#[doc(hidden)]
#[macro_export]
macro_rules! malloc_table_text {
    (a: $a:literal, direct: $direct:literal, closed: $closed:literal) => {
        $crate::section_lines! {
            ["mov " $a ", qword ptr [" $direct " + " $a "*8]"]
            ["test " $a ", " $a]
            [$closed]
        }
    };
}

/// Counts down in the lane of malloc's group; leaves if the countdown is over.
///
/// The countdown lies at `a` + `at`; `word` is scratch, a register of 32 bits. This is no addition
/// in memory for the reason that `pop_object_text` gives.
#[doc(hidden)]
#[macro_export]
macro_rules! countdown_text {
    (a: $a:literal, at: $at:literal, word: $word:literal, over: $over:literal) => {
        $crate::section_lines! {
            ["mov " $word ", dword ptr [" $a $at "]"]
            ["dec " $word]
            [$over]
            ["mov dword ptr [" $a $at "], " $word]
        }
    };
}

/// The body of `pop_object` without a hot object.
///
/// `a` is the item's address in the lane. The first top lies at `a` + `at`, and the cell's top
/// `cell` bytes after it. `word` and `top` are scratch.
///
/// No address is a sum of two registers, and no instruction adds in memory. Each call loads what
/// the call before stored, and recent Xeons forward such a store before its address is known, but
/// only with the simplest addresses and operations. A pair of malloc and free takes 11 cycles
/// there. With two instructions less in each it takes 27.
#[doc(hidden)]
#[macro_export]
macro_rules! pop_object_text {
    (
        a: $a:literal, at: $at:literal, cell: $cell:literal, word: $word:literal, top: $top:literal,
        encoded: $encoded:literal, empty: $empty:literal
    ) => {
        $crate::section_lines! {
            ["lea " $word ", [" $a " + " $cell $at "]"]
            ["mov " $top ", qword ptr [" $word "]"]
            ["add " $a ", " $top]
            ["mov " $encoded ", qword ptr [" $a $at " - 8]"]
            ["test " $encoded ", " $encoded]
            [$empty]
            ["sub " $top ", 8"]
            ["mov qword ptr [" $word "], " $top]
        }
    };
}

/// The body of `push_object` without a hot object.
///
/// Operands are as in `pop_object_text`, which also explains the simple addresses.
#[doc(hidden)]
#[macro_export]
macro_rules! push_object_text {
    (
        a: $a:literal, at: $at:literal, cell: $cell:literal, word: $word:literal, top: $top:literal,
        encoded: $encoded:literal, full: $full:literal
    ) => {
        $crate::section_lines! {
            ["lea " $word ", [" $a " + " $cell $at "]"]
            ["mov " $top ", qword ptr [" $word "]"]
            ["add " $a ", " $top]
            ["cmp qword ptr [" $a $at "], 0"]
            [$full]
            ["mov qword ptr [" $a $at "], " $encoded]
            ["add " $top ", 8"]
            ["mov qword ptr [" $word "], " $top]
        }
    };
}
