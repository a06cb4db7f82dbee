//! Finding free units that follow each other: the first run that is long enough.
//!
//! For each chunk of 1,024 units there is a bound: no free run that begins in it is longer. Who searches passes by
//! chunks whose bound is too low, and lowers that of a chunk where it has looked in vain to what it has seen; who gives units back
//! raises that of the chunk where the run begins that they are now in, before they are free. So a bound
//! is never too low, but where a fork has cut the taking of a long run in two, until something beside that run is freed; and
//! one that is too high costs one look.

use super::space::{CHUNK, Space};
use crate::sys::atomic::{AtomicU32, Ordering::Relaxed};

impl Space {
    fn bound(&self, chunk: usize) -> &'static AtomicU32 {
        assert!(chunk * CHUNK < self.most.load(Relaxed));
        let bounds = self.start.load(Relaxed) as *const AtomicU32;
        // SAFETY: there is one for each chunk, accessible for ever; zero is one.
        unsafe { &*bounds.add(chunk) }
    }

    /// The first of `count` free units below `high`, at a multiple of `align`.
    pub(super) fn find(&self, count: usize, align: usize) -> Option<usize> {
        let high = self.high();
        for chunk in 0..high.div_ceil(CHUNK) {
            let bound = self.bound(chunk);
            if bound.load(Relaxed) as usize >= count {
                match self.find_in(chunk, high, count, align)? {
                    Ok(first) => return Some(first),
                    Err(longest) => bound.store(longest as u32, Relaxed),
                }
            }
        }
        None
    }

    /// The same in runs that begin in a chunk; else the length of the longest of them.
    fn find_in(
        &self,
        chunk: usize,
        high: usize,
        count: usize,
        align: usize,
    ) -> Option<Result<usize, usize>> {
        let used = self.used_bits();
        let end = high.min((chunk + 1) * CHUNK);
        let (mut at, mut longest) = (chunk * CHUNK, 0);
        if at > 0 && !used.has(at - 1) {
            // It begins before.
            at = used.find(true, at, end);
        }
        loop {
            at = used.find(false, at, end);
            if at == end {
                return Some(Err(longest));
            }
            let first = self.aligned(at, align)?;
            let wanted = first.checked_add(count)?;
            let stop = used.find(true, at, wanted.min(high));
            if stop == wanted {
                return Some(Ok(first));
            }
            longest = longest.max(stop - at);
            at = stop;
        }
    }

    /// A free run begins at a unit, or will, and is so long at most.
    pub(super) fn raise(&self, first: usize, count: usize) {
        if count > 0 {
            let bound = self.bound(first / CHUNK);
            bound.store(bound.load(Relaxed).max(count as u32), Relaxed);
        }
    }

    /// What begins behind units that are taken.
    pub(super) fn raise_behind(&self, end: usize) {
        self.raise(end, self.end_of_run(end) - end);
    }

    /// What the units will be in when they are free.
    pub(super) fn raise_around(&self, first: usize, count: usize) {
        let start = self.used_bits().after_last(first);
        self.raise(start, self.end_of_run(first + count) - start);
    }

    /// Where the free run that begins at a unit ends; no less, and far away if it is long.
    fn end_of_run(&self, from: usize) -> usize {
        let high = self.high();
        let near = high.min(from + CHUNK);
        match self.used_bits().find(true, from, near) {
            end if end < near => end,
            end => high.max(end),
        }
    }
}
