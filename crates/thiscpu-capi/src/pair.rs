//! Per-CPU pairs.

use thiscpu::PerCpuPair;

use crate::ffi::{call, copy_out, end, make, place, there};
use crate::status::Status;

/// Two adjacent halves of 4 or 8 bytes of which each CPU has its own, compared and replaced as one, by one store. Halves are 64 bits in every
/// function.
///
/// All its functions may be called by any number of threads at once, `thiscpu_pair_destroy` by the last. But for that and
/// `thiscpu_pair_create` they never wait, and may be called from signal handlers too.
pub struct ThiscpuPair(Pair);

enum Pair {
    Narrow(PerCpuPair<u32>),
    Wide(PerCpuPair<u64>),
}

/// The two halves of a pair, aligned to 16 bytes.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThiscpuHalves {
    /// The first half.
    pub first: u64,
    /// The second half.
    pub second: u64,
}

impl ThiscpuHalves {
    fn narrow(self) -> Result<(u32, u32), Status> {
        let half = |half: u64| half.try_into().map_err(|_| Status::OutOfRange);
        Ok((half(self.first)?, half(self.second)?))
    }
}

/// Makes a pair of halves of so many bytes, (0, 0) on every CPU, and puts its handle into `*pair`. The handle is valid until
/// `thiscpu_pair_destroy`. May wait for another thread that creates something.
///
/// Errors: `THISCPU_STATUS_NULL_POINTER`; `THISCPU_STATUS_INVALID_SIZE` if `half_bytes` is not 4 or 8; `THISCPU_STATUS_NO_ADDRESS_SPACE`;
/// `THISCPU_STATUS_UNKNOWN_TIER`, `THISCPU_STATUS_TIER_UNAVAILABLE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_pair_create(
    half_bytes: usize,
    pair: *mut *mut ThiscpuPair,
) -> Status {
    let new = || {
        Ok(ThiscpuPair(match half_bytes {
            4 => Pair::Narrow(PerCpuPair::try_new()?),
            8 => Pair::Wide(PerCpuPair::try_new()?),
            _ => return Err(Status::InvalidSize),
        }))
    };
    // SAFETY: a caller's pointer is null or valid, as the header asks.
    unsafe { make(pair, new) }
}

/// Ends a pair. Null is none, and `THISCPU_STATUS_OK`. Nobody may use the handle any more, nor be using it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_pair_destroy(pair: *mut ThiscpuPair) -> Status {
    // SAFETY: as above; the handle is the caller's to end.
    unsafe { end(pair) }
}

/// Replaces this CPU's pair by `*desired` if it is `*old`.
///
/// Errors: `THISCPU_STATUS_MISMATCH` if it is something else, which is put into `*found` (that may be null, or `old`);
/// `THISCPU_STATUS_MISALIGNED` if a pointer is no multiple of 16; `THISCPU_STATUS_OUT_OF_RANGE` if a half does not fit into its
/// bytes; `THISCPU_STATUS_NULL_POINTER`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_pair_cmpxchg(
    pair: *mut ThiscpuPair,
    old: *const ThiscpuHalves,
    desired: *const ThiscpuHalves,
    found: *mut ThiscpuHalves,
) -> Status {
    call(|| {
        // SAFETY: a handle is null or live, as the header asks, and a caller's pointer is null or valid.
        let (pair, old, new) = unsafe { (there(pair)?, *there(old)?, *there(desired)?) };
        // SAFETY: as above.
        let place = if found.is_null() { None } else { Some(unsafe { place(found) }?) };
        let result = match &pair.0 {
            Pair::Narrow(pair) => pair
                .cmpxchg_double(old.narrow()?, new.narrow()?)
                .map_err(|(first, second)| (first.into(), second.into())),
            Pair::Wide(pair) => {
                pair.cmpxchg_double((old.first, old.second), (new.first, new.second))
            }
        };
        let Err((first, second)) = result else { return Ok(()) };
        if let Some(place) = place {
            place.put(ThiscpuHalves { first, second });
        }
        Err(Status::Mismatch)
    })
}

/// The pairs of all CPUs, each half as it was at some moment of its own: as many as there is room for into `values`, and how many
/// there are into `*count`. There is one for each CPU that was used, and one more, and their number may grow; with a `capacity` of 0 `values` may be null.
///
/// Errors: `THISCPU_STATUS_NULL_POINTER`, `THISCPU_STATUS_MISALIGNED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_pair_values(
    pair: *mut ThiscpuPair,
    values: *mut ThiscpuHalves,
    capacity: usize,
    count: *mut usize,
) -> Status {
    call(|| {
        // SAFETY: as for `thiscpu_pair_cmpxchg`.
        let (pair, place) = unsafe { (there(pair)?, place(count)?) };
        // SAFETY: there is room for so many, as the header asks.
        let copied = unsafe {
            match &pair.0 {
                Pair::Narrow(pair) => copy_out(values, capacity, pair.lanes().map(halves)),
                Pair::Wide(pair) => copy_out(values, capacity, pair.lanes().map(halves)),
            }
        };
        place.put(copied?);
        Ok(())
    })
}

fn halves<H: Into<u64>>((first, second): (H, H)) -> ThiscpuHalves {
    ThiscpuHalves { first: first.into(), second: second.into() }
}
