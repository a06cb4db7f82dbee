//! Per-CPU words.

use std::mem::ManuallyDrop;
use std::ptr::without_provenance_mut;

use thiscpu::PerCpu;
use thiscpu::inside::word::{AnyWord, handle_of, of_handle};

use crate::ffi::{call, copy_out, place};
use crate::inline_abi;
use crate::status::Status;

/// A word of 1, 2, 4 or 8 bytes of which each CPU has its own: what is done to one happens in one restartable sequence, without
/// an atomic instruction. It is no atomic operation towards other CPUs, which have their own words; and the thread may be on another by the time
/// the call returns. An inlined add to a word of less than 8 bytes takes two sections, the first of which is refused. Values are 64 bits in every function; of those that go into a narrower word the lower bits are taken.
/// A handle says where the word is, and is no address of anything itself.
///
/// All its functions may be called by any number of threads at once, `thiscpu_word_destroy` by the last. But for that and
/// `thiscpu_word_create` they never wait, and may be called from signal handlers too.
pub struct ThiscpuWord {
    _of_none: [u8; 0],
}

/// The word of a handle.
///
/// # Safety
///
/// It is null, misaligned, or of a word that lives.
unsafe fn there(handle: *const ThiscpuWord) -> Result<AnyWord, Status> {
    if handle.is_null() {
        return Err(Status::NullPointer);
    }
    // SAFETY: the caller's promise; what is returned is kept from being dropped.
    unsafe { of_handle(handle.addr()) }.ok_or(Status::Misaligned)
}

fn new<T: thiscpu::Word>() -> Result<usize, Status> {
    let word = ManuallyDrop::new(PerCpu::<T>::try_new()?);
    Ok(handle_of(&word))
}

fn wide<V: Into<u64>>(value: V) -> u64 {
    value.into()
}

/// Does the same with a word of each width: `$do` with the word and the type of its values.
macro_rules! of_each_width {
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

/// Makes a word of so many bytes that is 0 on every CPU, and puts its handle into `*word`. The handle is valid until
/// `thiscpu_word_destroy`. May wait for another thread that creates something.
///
/// Errors: `THISCPU_STATUS_NULL_POINTER`; `THISCPU_STATUS_INVALID_SIZE` if `bytes` is not 1, 2, 4 or 8; `THISCPU_STATUS_NO_ADDRESS_SPACE`;
/// `THISCPU_STATUS_UNKNOWN_TIER`, `THISCPU_STATUS_TIER_UNAVAILABLE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_word_create(bytes: usize, word: *mut *mut ThiscpuWord) -> Status {
    call(|| {
        // SAFETY: a caller's pointer is null or valid, as the header asks.
        let place = unsafe { place(word) }?;
        let made = match bytes {
            1 => new::<u8>(),
            2 => new::<u16>(),
            4 => new::<u32>(),
            8 => new::<u64>(),
            _ => Err(Status::InvalidSize),
        };
        inline_abi::publish();
        place.put(without_provenance_mut(made?));
        Ok(())
    })
}

/// Ends a word. Null is none, and `THISCPU_STATUS_OK`. Nobody may use the handle any more, nor be using it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_word_destroy(word: *mut ThiscpuWord) -> Status {
    call(|| {
        if !word.is_null() {
            // SAFETY: a handle is null or live, as the header asks, and this one is the caller's to end.
            of_each_width!(unsafe { there(word) }?, |word: Value| drop::<PerCpu<Value>>(
                ManuallyDrop::into_inner(word)
            ));
        }
        Ok(())
    })
}

/// Adds `n` to this CPU's word, which wraps around.
///
/// Errors: `THISCPU_STATUS_NULL_POINTER`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_word_add(word: *mut ThiscpuWord, n: u64) -> Status {
    call(|| {
        // SAFETY: a handle is null or live, as the header asks.
        let word = unsafe { there(word) }?;
        of_each_width!(word, |word: Value| word.add(n as Value));
        Ok(())
    })
}

/// The same, and what the word is then into `*sum`.
///
/// Errors: `THISCPU_STATUS_NULL_POINTER`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_word_add_return(
    word: *mut ThiscpuWord,
    n: u64,
    sum: *mut u64,
) -> Status {
    call(|| {
        // SAFETY: as above, and a caller's pointer is null or valid.
        let (word, place) = unsafe { (there(word)?, place(sum)?) };
        place.put(of_each_width!(word, |word: Value| wide(word.add_return(n as Value))));
        Ok(())
    })
}

/// Replaces this CPU's word by `desired`, and puts what it was into `*old`.
///
/// Errors: `THISCPU_STATUS_NULL_POINTER`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_word_xchg(
    word: *mut ThiscpuWord,
    desired: u64,
    old: *mut u64,
) -> Status {
    call(|| {
        // SAFETY: as for `thiscpu_word_add_return`.
        let (word, place) = unsafe { (there(word)?, place(old)?) };
        place.put(of_each_width!(word, |word: Value| wide(word.xchg(desired as Value))));
        Ok(())
    })
}

/// Replaces this CPU's word by `desired` if it is `old`.
///
/// Errors: `THISCPU_STATUS_MISMATCH` if it is something else, which is put into `*found` (that may be null); `THISCPU_STATUS_NULL_POINTER`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_word_cmpxchg(
    word: *mut ThiscpuWord,
    old: u64,
    desired: u64,
    found: *mut u64,
) -> Status {
    call(|| {
        // SAFETY: as for `thiscpu_word_add`.
        let word = unsafe { there(word) }?;
        // SAFETY: as for `thiscpu_word_add_return`.
        let place = if found.is_null() { None } else { Some(unsafe { place(found) }?) };
        let result: Result<u64, u64> = of_each_width!(word, |word: Value| word
            .cmpxchg(old as Value, desired as Value)
            .map_or_else(|found| Err(wide(found)), |()| Ok(desired)));
        let Err(other) = result else { return Ok(()) };
        if let Some(place) = place {
            place.put(other);
        }
        Err(Status::Mismatch)
    })
}

/// The words of all CPUs, each as it was at some moment of its own. The first is that of threads which had no CPU of their own to work on; the
/// others are in the order in which they were first used, and have nothing to do with the numbers of CPUs. As many as there is capacity for into `values`, and how many
/// there are into `*count`. There is one for each CPU that was used, and one more, and their number may grow; with a `capacity` of 0 `values` may be null.
///
/// Errors: `THISCPU_STATUS_NULL_POINTER`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_word_values(
    word: *mut ThiscpuWord,
    values: *mut u64,
    capacity: usize,
    count: *mut usize,
) -> Status {
    call(|| {
        // SAFETY: as for `thiscpu_word_add_return`.
        let (word, place) = unsafe { (there(word)?, place(count)?) };
        // SAFETY: there is capacity for so many, as the header asks.
        let copied = of_each_width!(word, |word: Value| unsafe {
            copy_out(values, capacity, word.lanes().map(wide::<Value>))
        });
        place.put(copied?);
        Ok(())
    })
}
