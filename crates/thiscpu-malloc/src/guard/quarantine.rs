//! In which order slots are used again: the longer ago one was freed, the sooner, but not so that it can be foretold.

/// How many slots there are.
pub(super) const SLOTS: usize = 512;

/// The slots that hold no block, that which was freed first in front. All zeros is an empty one.
pub(super) struct Quarantine {
    order: [u16; SLOTS],
    count: usize,
}

impl Quarantine {
    /// How many are in it.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Takes out one of the older half.
    pub(super) fn take(&mut self, random: impl FnOnce(usize) -> usize) -> Option<usize> {
        if self.count == 0 {
            return None;
        }
        let index = random(self.count.div_ceil(2));
        let slot = self.order[index];
        self.order.copy_within(index + 1..self.count, index);
        self.count -= 1;
        Some(usize::from(slot))
    }

    /// Puts in one that was freed just now. It must not be in there, so there is room.
    pub(super) fn put(&mut self, slot: usize) {
        self.order[self.count] = slot as u16;
        self.count += 1;
    }

    /// Takes all out.
    pub(super) fn clear(&mut self) {
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quarantine_takes_from_the_older_half() {
        for pick in [|_| 0, |count: usize| count - 1, |count: usize| count / 2] {
            let mut quarantine = Quarantine { order: [0; SLOTS], count: 0 };
            (0..SLOTS).for_each(|slot| quarantine.put(slot));
            let mut freed_at: Vec<_> = (0..SLOTS).collect();
            for time in SLOTS..5 * SLOTS {
                let slot = quarantine.take(pick).unwrap();
                let older = freed_at.iter().filter(|&&freed| freed < freed_at[slot]).count();
                assert!(older < SLOTS / 2, "{older} were freed before");
                freed_at[slot] = time;
                quarantine.put(slot);
            }
            let mut taken: Vec<_> = std::iter::from_fn(|| quarantine.take(pick)).collect();
            taken.sort_unstable();
            assert!(taken.into_iter().eq(0..SLOTS));
        }
    }
}
