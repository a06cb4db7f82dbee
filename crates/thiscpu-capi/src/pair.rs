//! Per-CPU pairs.

use thiscpu::PerCpuPair;

use crate::ffi::{OutParam, catch, copy_out, create, deref, destroy};
use crate::status::Status;

/// A pair of adjacent halves per CPU, compared and exchanged as one. Rust: `PerCpuPair`.
///
/// A half has 4 or 8 bytes; functions take and return halves as 64 bits. The exchange is one store
/// in one restartable sequence. It is not atomic with respect to other CPUs, which have pairs of
/// their own.
///
/// - Threads: any number may call all functions at once, except `thiscpu_pair_destroy`.
/// - Lifetime: from `thiscpu_pair_create` to `thiscpu_pair_destroy`.
/// - Signal handlers: all functions, except `thiscpu_pair_create` and `thiscpu_pair_destroy`.
/// - After `fork`: the child has pairs of its own, with the parent's values.
/// - Memory order: what a thread did before it exchanged a pair happens before the return of each
///   later exchange of that pair. `_values` orders nothing.
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

/// Creates a pair of two halves of `half_bytes` bytes each, and stores its handle in `*pair`.
///
/// Both halves are 0 on every CPU.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `NO_ADDRESS_SPACE`, `NO_MEMORY`, `UNKNOWN_TIER`,
///   `TIER_UNAVAILABLE`; `INVALID_SIZE` if `half_bytes` is not 4 or 8.
/// - Blocks: while another thread allocates or frees per-CPU memory.
/// - Signal handlers: not allowed.
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
    // SAFETY: the header requires that `pair` is null or valid for writes.
    unsafe { create(pair, new) }
}

/// Destroys a pair. No thread may use the handle during or after this call.
///
/// - NULL: allowed; does nothing.
/// - Returns: `OK`.
/// - Blocks: while another thread allocates or frees per-CPU memory.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_pair_destroy(pair: *mut ThiscpuPair) -> Status {
    // SAFETY: the header requires that the handle is null or live, and that no thread uses it any
    // more.
    unsafe { destroy(pair) }
}

/// Replaces this CPU's pair with `*desired` if it equals `*old`.
///
/// If it does not, stores the pair's halves in `*found`, which may be the same as `old`, and
/// returns `MISMATCH`.
///
/// - NULL: allowed for `found`; not for the other arguments.
/// - Returns: `OK`, `NULL_POINTER`, `MISMATCH`; `MISALIGNED` if a pointer to halves is not a
///   multiple of 16; `OUT_OF_RANGE` if a half does not fit into its 4 bytes.
/// - Blocks: never.
/// - Signal handlers: allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_pair_cmpxchg(
    pair: *mut ThiscpuPair,
    old: *const ThiscpuHalves,
    desired: *const ThiscpuHalves,
    found: *mut ThiscpuHalves,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that the handle is null or live, and the other pointers null
        // or valid.
        let (pair, old, new) = unsafe { (deref(pair)?, *deref(old)?, *deref(desired)?) };
        // SAFETY: the header requires that `found` is null or valid for writes. It may equal `old`,
        // which has been copied.
        let out = unsafe { OutParam::optional(found) }?;
        let result = match &pair.0 {
            Pair::Narrow(pair) => pair
                .cmpxchg_double(old.narrow()?, new.narrow()?)
                .map_err(|(first, second)| (first.into(), second.into())),
            Pair::Wide(pair) => {
                pair.cmpxchg_double((old.first, old.second), (new.first, new.second))
            }
        };
        let Err((first, second)) = result else { return Ok(()) };
        if let Some(out) = out {
            out.write(ThiscpuHalves { first, second });
        }
        Err(Status::Mismatch)
    })
}

/// Stores the pairs of all CPUs in `values`, and how many there are in `*count`.
///
/// `values` is an array of `capacity` elements; if there are more pairs, the first `capacity` are
/// stored. There is one pair for each CPU that was used, and one more; their number may grow. Each
/// half is read at a different instant.
///
/// - NULL: allowed for `values` if `capacity` is 0; not for `pair` and `count`.
/// - Returns: `OK`, `NULL_POINTER`; `MISALIGNED` if `values` is not a multiple of 16.
/// - Blocks: never.
/// - Signal handlers: allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_pair_values(
    pair: *mut ThiscpuPair,
    values: *mut ThiscpuHalves,
    capacity: usize,
    count: *mut usize,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that the handle is null or live, and `count` null or valid
        // for writes.
        let (pair, out) = unsafe { (deref(pair)?, OutParam::new(count)?) };
        // SAFETY: the header requires that `values` has room for `capacity` elements.
        let copied = unsafe {
            match &pair.0 {
                Pair::Narrow(pair) => copy_out(values, capacity, pair.lanes().map(halves)),
                Pair::Wide(pair) => copy_out(values, capacity, pair.lanes().map(halves)),
            }
        };
        out.write(copied?);
        Ok(())
    })
}

fn halves<H: Into<u64>>((first, second): (H, H)) -> ThiscpuHalves {
    ThiscpuHalves { first: first.into(), second: second.into() }
}
