//! Per-CPU words.

use std::mem::ManuallyDrop;
use std::ptr::without_provenance_mut;

use thiscpu::__internal::word::{AnyWord, handle_of, of_handle};
use thiscpu::PerCpu;

use crate::ffi::{OutParam, catch, copy_out};
use crate::inline_abi;
use crate::status::Status;

/// A word of 1, 2, 4 or 8 bytes per CPU. Rust: `PerCpu<u8>` to `PerCpu<u64>`.
///
/// An operation on this CPU's word is one restartable sequence, without an atomic instruction. It
/// is not atomic with respect to other CPUs, which have words of their own. The thread may have
/// moved to another CPU when the call returns.
///
/// Values have 64 bits in every function; a narrower word uses their lower bits. An inlined add
/// tries the sequence for 8 bytes first, so an add to a narrower word costs two sequences. Use 8
/// bytes where speed matters. A handle is a number and not an address: do not dereference it.
///
/// - Threads: any number may call all functions at once, except `thiscpu_word_destroy`.
/// - Lifetime: from `thiscpu_word_create` to `thiscpu_word_destroy`.
/// - Signal handlers: all functions, except `thiscpu_word_create` and `thiscpu_word_destroy`.
/// - After `fork`: the child has words of its own, with the parent's values.
/// - Memory order: what a thread did before it changed a word happens before the return of each
///   later operation on that word. `_values` orders nothing.
pub struct ThiscpuWord {
    _unused: [u8; 0],
}

/// Returns the word of a handle.
///
/// # Safety
///
/// The handle is null, misaligned or live. The result may be dropped only if no thread uses the
/// handle any more.
unsafe fn deref(handle: *const ThiscpuWord) -> Result<AnyWord, Status> {
    if handle.is_null() {
        return Err(Status::NullPointer);
    }
    // SAFETY: the caller guarantees that the handle is misaligned, which `of_handle` detects, or
    // that of a live word. The result is only dropped by the handle's owner.
    unsafe { of_handle(handle.addr()) }.ok_or(Status::Misaligned)
}

fn new<T: thiscpu::PerCpuWord>() -> Result<usize, Status> {
    let word = ManuallyDrop::new(PerCpu::<T>::try_new()?);
    Ok(handle_of(&word))
}

fn widen<V: Into<u64>>(value: V) -> u64 {
    value.into()
}

/// Evaluates `$do` with the word as `$it` and the type of its values as `$Value`.
macro_rules! for_any_width {
    ($word:expr, |$it:ident: $Value:ident| $do:expr) => {
        match $word {
            AnyWord::One($it) => {
                type $Value = u8;
                $do
            }
            AnyWord::Two($it) => {
                type $Value = u16;
                $do
            }
            AnyWord::Four($it) => {
                type $Value = u32;
                $do
            }
            AnyWord::Eight($it) => {
                type $Value = u64;
                $do
            }
        }
    };
}

/// Creates a word of `bytes` bytes that is 0 on every CPU, and stores its handle in `*word`.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `NO_ADDRESS_SPACE`, `UNKNOWN_TIER`, `TIER_UNAVAILABLE`;
///   `INVALID_SIZE` if `bytes` is not 1, 2, 4 or 8.
/// - Blocks: while another thread allocates or frees per-CPU memory.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_word_create(bytes: usize, word: *mut *mut ThiscpuWord) -> Status {
    catch(|| {
        // SAFETY: the header requires that `word` is null or valid for writes.
        let out = unsafe { OutParam::new(word) }?;
        let handle = match bytes {
            1 => new::<u8>(),
            2 => new::<u16>(),
            4 => new::<u32>(),
            8 => new::<u64>(),
            _ => Err(Status::InvalidSize),
        };
        inline_abi::publish();
        out.write(without_provenance_mut(handle?));
        Ok(())
    })
}

/// Destroys a word. No thread may use the handle during or after this call.
///
/// - NULL: allowed; does nothing.
/// - Returns: `OK`.
/// - Blocks: while another thread allocates or frees per-CPU memory.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_word_destroy(word: *mut ThiscpuWord) -> Status {
    catch(|| {
        if !word.is_null() {
            // SAFETY: the header requires that the handle is live, and that no thread uses it any
            // more, so the word may be dropped.
            for_any_width!(unsafe { deref(word) }?, |word: Value| drop::<PerCpu<Value>>(
                ManuallyDrop::into_inner(word)
            ));
        }
        Ok(())
    })
}

/// Adds `n` to this CPU's word, which wraps around.
///
/// Inlined; see `thiscpu_inline.h`.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_word_add(word: *mut ThiscpuWord, n: u64) -> Status {
    catch(|| {
        // SAFETY: the header requires that the handle is null or live. The word is not dropped.
        let word = unsafe { deref(word) }?;
        for_any_width!(word, |word: Value| word.add(n as Value));
        Ok(())
    })
}

/// Adds `n` to this CPU's word and stores its new value in `*sum`. The word wraps around.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_word_add_return(
    word: *mut ThiscpuWord,
    n: u64,
    sum: *mut u64,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that the handle is null or live, and `sum` null or valid for
        // writes. The word is not dropped.
        let (word, out) = unsafe { (deref(word)?, OutParam::new(sum)?) };
        out.write(for_any_width!(word, |word: Value| widen(word.add_return(n as Value))));
        Ok(())
    })
}

/// Replaces this CPU's word with `desired` and stores the previous value in `*old`.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_word_xchg(
    word: *mut ThiscpuWord,
    desired: u64,
    old: *mut u64,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that the handle is null or live, and `old` null or valid for
        // writes. The word is not dropped.
        let (word, out) = unsafe { (deref(word)?, OutParam::new(old)?) };
        out.write(for_any_width!(word, |word: Value| widen(word.xchg(desired as Value))));
        Ok(())
    })
}

/// Replaces this CPU's word with `desired` if it equals `old`.
///
/// If it does not, stores the value that it has in `*found` and returns `MISMATCH`.
///
/// - NULL: allowed for `found`; not for `word`.
/// - Returns: `OK`, `NULL_POINTER`, `MISMATCH`.
/// - Blocks: never.
/// - Signal handlers: allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_word_cmpxchg(
    word: *mut ThiscpuWord,
    old: u64,
    desired: u64,
    found: *mut u64,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that the handle is null or live, and `found` null or valid
        // for writes. The word is not dropped.
        let (word, out) = unsafe { (deref(word)?, OutParam::optional(found)?) };
        let result: Result<u64, u64> = for_any_width!(word, |word: Value| word
            .cmpxchg(old as Value, desired as Value)
            .map_or_else(|found| Err(widen(found)), |()| Ok(desired)));
        let Err(other) = result else { return Ok(()) };
        if let Some(out) = out {
            out.write(other);
        }
        Err(Status::Mismatch)
    })
}

/// Stores the words of all CPUs in `values`, and how many there are in `*count`.
///
/// `values` is an array of `capacity` elements; if there are more words, the first `capacity` are
/// stored. There is one word for each CPU that was used, and one more; their number may grow. The
/// first word belongs to threads that could not use a CPU's lane. The others are in the order in
/// which CPUs were first used, not of CPU numbers. Each value is read at a different instant.
///
/// - NULL: allowed for `values` if `capacity` is 0; not for `word` and `count`.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
/// - Signal handlers: allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_word_values(
    word: *mut ThiscpuWord,
    values: *mut u64,
    capacity: usize,
    count: *mut usize,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that the handle is null or live, and `count` null or valid
        // for writes. The word is not dropped.
        let (word, out) = unsafe { (deref(word)?, OutParam::new(count)?) };
        // SAFETY: the header requires that `values` has room for `capacity` elements.
        let copied = for_any_width!(word, |word: Value| unsafe {
            copy_out(values, capacity, word.lanes().map(widen::<Value>))
        });
        out.write(copied?);
        Ok(())
    })
}
