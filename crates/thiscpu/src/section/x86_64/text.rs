//! The text of sections, which inlined ones and functions in assembly have in common: registers are given as they are spelled there.

/// A section: its descriptor, what enters it, its range, and the abort handler, which lies away from the code that runs. Its labels
/// are 30 to 34, of which 33 is what follows it.
#[doc(hidden)]
#[macro_export]
macro_rules! section_text {
    ($name:expr, enter: [$($enter:expr),* $(,)?] range: [$($range:expr),* $(,)?] aborted: $aborted:expr) => {
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
            // For checkers: which section this is. Not loaded when the program runs. The flag ties it
            // to the descriptors, so that a linker which drops what nobody uses drops both or none.
            ".pushsection .thiscpu_sections, \"o\", %progbits, __rseq_cs\n",
            ".quad 30b\n",
            ".asciz \"", $name, "\"\n",
            ".popsection\n",
            $($enter, "\n",)*
            "31:\n",
            $($range, "\n",)*
            "32:\n",
            ".pushsection __rseq_failure, \"ax\"\n",
            // An undefined instruction whose operand is the signature, so that nothing but the
            // kernel ever gets here.
            ".byte 0x0f, 0xb9, 0x3d\n",
            ".long 0x53053053\n",
            "34:\n",
            $aborted, "\n",
            ".popsection\n",
            "33:\n",
        )
    };
}

/// Lines, each of some pieces.
#[doc(hidden)]
#[macro_export]
macro_rules! section_lines {
    ($([$($piece:tt)*])*) => {
        concat!($($($piece,)* "\n",)*)
    };
}

/// What enters a near section: a word of the thread's own says where its lane index is, or that there is none for it; see [`crate::sys::rseq::index_ptr`]. So
/// there is nothing to look at, and no offsets to wait for: a pair of malloc took 17 cycles with them and 13 without (Zen 4).
///
/// `near` is that word then, and `area` the thread's rseq area.
#[doc(hidden)]
#[macro_export]
macro_rules! direct_text {
    (ptr: $ptr:literal, area: $area:literal, a: $a:literal, out: $out:literal) => {
        $crate::section_lines! {
            // A linker that knows the distance puts it in place of the load.
            ["mov " $ptr ", qword ptr [rip + __thiscpu_0_1_index_ptr@gottpoff]"]
            ["mov " $ptr ", qword ptr fs:[" $ptr "]"]
            ["mov " $area ", " $ptr]
            ["and " $area ", {AREA_MASK}"]
            [$out]
            ["lea " $a ", [rip + 30b]"]
            ["mov qword ptr [" $area " + {RSEQ_CS}], " $a]
        }
    };
}

/// The part of a section by the front that finds the item's first top in this thread's lane, and leaves its address in `a`. The index is in there before.
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

/// The body of `pop_object` where a lane has no hot entry; `a` is the item's address in the lane, its first top is `at` from there, and that of the cell `cell` from
/// that. `word` and `top` are scratch.
///
/// No address here is a sum of two registers, nor is anything summed in memory: what one call stores, the next one loads, and recent Xeons forward it
/// before they know where it is stored, but only from and to the simplest addresses and operations. A pair of malloc takes 11 cycles there, and 27
/// with two operations less in each.
#[doc(hidden)]
#[macro_export]
macro_rules! pop_object_text {
    (a: $a:literal, at: $at:literal, cell: $cell:literal, word: $word:literal, top: $top:literal, entry: $entry:literal, empty: $empty:literal) => {
        $crate::section_lines! {
            ["lea " $word ", [" $a " + " $cell $at "]"]
            ["mov " $top ", qword ptr [" $word "]"]
            ["add " $a ", " $top]
            ["mov " $entry ", qword ptr [" $a $at " - 8]"]
            ["test " $entry ", " $entry]
            [$empty]
            ["sub " $top ", 8"]
            ["mov qword ptr [" $word "], " $top]
        }
    };
}

/// The body of `push_object` where a lane has no hot entry; as above.
#[doc(hidden)]
#[macro_export]
macro_rules! push_object_text {
    (a: $a:literal, at: $at:literal, cell: $cell:literal, word: $word:literal, top: $top:literal, entry: $entry:literal, full: $full:literal) => {
        $crate::section_lines! {
            ["lea " $word ", [" $a " + " $cell $at "]"]
            ["mov " $top ", qword ptr [" $word "]"]
            ["add " $a ", " $top]
            ["cmp qword ptr [" $a $at "], 0"]
            [$full]
            ["mov qword ptr [" $a $at "], " $entry]
            ["add " $top ", 8"]
            ["mov qword ptr [" $word "], " $top]
        }
    };
}
