//! operator delete, in each of its forms. Whatever else they are told about the block, they free it.

use core::ffi::c_void;

use crate::basic::give_back;

/// `size_t`
type Size = usize;
/// `std::align_val_t`
type Align = usize;
/// `std::nothrow_t const&`
type Tag = *const c_void;

/// Defines functions that free their first argument.
macro_rules! deletes {
    ($($exported:literal $name:ident($($ignored:ty),*);)*) => {
        $(
            #[unsafe(export_name = $exported)]
            unsafe extern "C-unwind" fn $name(pointer: *mut c_void $(, _: $ignored)*) {
                // SAFETY: the caller's promise.
                unsafe { give_back(pointer) };
            }
        )*
    };
}

deletes! {
    "_ZdlPv" delete();
    "_ZdaPv" delete_array();
    "_ZdlPvm" delete_sized(Size);
    "_ZdaPvm" delete_array_sized(Size);
    "_ZdlPvSt11align_val_t" delete_aligned(Align);
    "_ZdaPvSt11align_val_t" delete_array_aligned(Align);
    "_ZdlPvmSt11align_val_t" delete_sized_aligned(Size, Align);
    "_ZdaPvmSt11align_val_t" delete_array_sized_aligned(Size, Align);
    "_ZdlPvRKSt9nothrow_t" delete_caught(Tag);
    "_ZdaPvRKSt9nothrow_t" delete_array_caught(Tag);
    "_ZdlPvSt11align_val_tRKSt9nothrow_t" delete_aligned_caught(Align, Tag);
    "_ZdaPvSt11align_val_tRKSt9nothrow_t" delete_array_aligned_caught(Align, Tag);
}
