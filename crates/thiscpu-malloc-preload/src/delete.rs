//! operator delete. Two of its forms free; the others call these, whatever else they are told about the block.

use core::ffi::c_void;

use thiscpu_malloc::define_free;

use crate::interpose::resolve;

/// `size_t`
type Size = usize;
/// `std::align_val_t`
type Align = usize;
/// `std::nothrow_t const&`
type Tag = *const c_void;

type Delete = unsafe extern "C-unwind" fn(*mut c_void);
type DeleteAligned = unsafe extern "C-unwind" fn(*mut c_void, Align);

define_free!(
    /// `operator delete(void*)`
    #[unsafe(export_name = "_ZdlPv")]
    fn delete(*mut c_void), in ".text.delete"
);

define_free!(
    /// `operator delete(void*, std::align_val_t)`, which does not look at the alignment.
    #[unsafe(export_name = "_ZdlPvSt11align_val_t")]
    fn delete_aligned(*mut c_void), in ".text.delete_aligned"
);

/// Defines the forms without an alignment.
macro_rules! deletes {
    ($($exported:literal $name:ident($($ignored:ty),*);)*) => {
        $(
            #[unsafe(export_name = $exported)]
            unsafe extern "C-unwind" fn $name(pointer: *mut c_void $(, _: $ignored)*) {
                let function = resolve!("_ZdlPv" as Delete);
                // SAFETY: the caller's promise.
                unsafe { function(pointer) };
            }
        )*
    };
}

deletes! {
    "_ZdaPv" delete_array();
    "_ZdlPvm" delete_sized(Size);
    "_ZdaPvm" delete_array_sized(Size);
    "_ZdlPvRKSt9nothrow_t" delete_caught(Tag);
    "_ZdaPvRKSt9nothrow_t" delete_array_caught(Tag);
}

/// `operator delete[](void*, std::align_val_t)`
#[unsafe(export_name = "_ZdaPvSt11align_val_t")]
unsafe extern "C-unwind" fn delete_array_aligned(pointer: *mut c_void, align: Align) {
    let function = resolve!("_ZdlPvSt11align_val_t" as DeleteAligned);
    // SAFETY: the caller's promise.
    unsafe { function(pointer, align) };
}

/// `operator delete(void*, size_t, std::align_val_t)`
#[unsafe(export_name = "_ZdlPvmSt11align_val_t")]
unsafe extern "C-unwind" fn delete_sized_aligned(pointer: *mut c_void, _: Size, align: Align) {
    let function = resolve!("_ZdlPvSt11align_val_t" as DeleteAligned);
    // SAFETY: the caller's promise.
    unsafe { function(pointer, align) };
}

/// `operator delete[](void*, size_t, std::align_val_t)`
#[unsafe(export_name = "_ZdaPvmSt11align_val_t")]
unsafe extern "C-unwind" fn delete_array_sized_aligned(
    pointer: *mut c_void,
    _: Size,
    align: Align,
) {
    let function = resolve!("_ZdlPvSt11align_val_t" as DeleteAligned);
    // SAFETY: the caller's promise.
    unsafe { function(pointer, align) };
}

/// `operator delete(void*, std::align_val_t, std::nothrow_t const&)`
#[unsafe(export_name = "_ZdlPvSt11align_val_tRKSt9nothrow_t")]
unsafe extern "C-unwind" fn delete_aligned_caught(pointer: *mut c_void, align: Align, _: Tag) {
    let function = resolve!("_ZdlPvSt11align_val_t" as DeleteAligned);
    // SAFETY: the caller's promise.
    unsafe { function(pointer, align) };
}

/// `operator delete[](void*, std::align_val_t, std::nothrow_t const&)`
#[unsafe(export_name = "_ZdaPvSt11align_val_tRKSt9nothrow_t")]
unsafe extern "C-unwind" fn delete_array_aligned_caught(
    pointer: *mut c_void,
    align: Align,
    _: Tag,
) {
    let function = resolve!("_ZdlPvSt11align_val_t" as DeleteAligned);
    // SAFETY: the caller's promise.
    unsafe { function(pointer, align) };
}
