//! operator delete. Two forms free the block; the others call these and ignore further arguments.

use core::ffi::c_void;

use thiscpu_malloc::define_free;

use crate::interpose::resolve;

type Block = *mut c_void;
/// `size_t`
type Size = usize;
/// `std::align_val_t`
type Align = usize;
/// `std::nothrow_t const&`
type Tag = *const c_void;

type Delete = unsafe extern "C-unwind" fn(Block);
type DeleteAligned = unsafe extern "C-unwind" fn(Block, Align);

define_free!(
    /// Implements `operator delete(void*)`.
    #[unsafe(export_name = "_ZdlPv")]
    fn delete(*mut c_void), in ".text.delete"
);

define_free!(
    /// Implements `operator delete(void*, std::align_val_t)`, and ignores the alignment.
    #[unsafe(export_name = "_ZdlPvSt11align_val_t")]
    fn delete_aligned(*mut c_void), in ".text.delete_aligned"
);

/// Defines functions that call another form, which the program may have replaced.
macro_rules! forward {
    (
        $target:literal as $type:ty: $arguments:tt;
        $($exported:literal $name:ident($($argument:ident: $kind:ty),*);)*
    ) => {
        $(
            #[unsafe(export_name = $exported)]
            unsafe extern "C-unwind" fn $name($($argument: $kind),*) {
                let function = resolve!($target as $type);
                // SAFETY: the caller guarantees that the block is null, or was allocated by the
                // operator new that belongs to this form, and is not used any more.
                unsafe { function $arguments };
            }
        )*
    };
}

forward! {
    "_ZdlPv" as Delete: (block);
    "_ZdaPv" delete_array(block: Block);
    "_ZdlPvm" delete_sized(block: Block, _size: Size);
    "_ZdaPvm" delete_array_sized(block: Block, _size: Size);
    "_ZdlPvRKSt9nothrow_t" delete_nothrow(block: Block, _tag: Tag);
    "_ZdaPvRKSt9nothrow_t" delete_array_nothrow(block: Block, _tag: Tag);
}

forward! {
    "_ZdlPvSt11align_val_t" as DeleteAligned: (block, align);
    "_ZdaPvSt11align_val_t" delete_array_aligned(block: Block, align: Align);
    "_ZdlPvmSt11align_val_t" delete_sized_aligned(block: Block, _size: Size, align: Align);
    "_ZdaPvmSt11align_val_t" delete_array_sized_aligned(block: Block, _size: Size, align: Align);
    "_ZdlPvSt11align_val_tRKSt9nothrow_t" delete_aligned_nothrow(
        block: Block, align: Align, _tag: Tag
    );
    "_ZdaPvSt11align_val_tRKSt9nothrow_t" delete_array_aligned_nothrow(
        block: Block, align: Align, _tag: Tag
    );
}
