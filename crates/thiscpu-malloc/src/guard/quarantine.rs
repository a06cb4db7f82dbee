//! The order in which slots are used again: late after their free, and unpredictably.

/// The number of slots.
pub(super) const SLOTS: usize = 512;

/// The slots that hold no block, oldest free first. All zeros is an empty quarantine.
pub(super) struct Quarantine {
    order: [u16; SLOTS],
    count: usize,
}

impl Quarantine {
    /// Returns the number of slots in the quarantine.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Takes a slot from the older half. `random` returns a number below its argument.
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

    /// Adds a slot that was freed just now. It must not be in here yet, so there is room.
    pub(super) fn put(&mut self, slot: usize) {
        self.order[self.count] = slot as u16;
        self.count += 1;
    }

    /// Removes all slots.
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
                assert!(older < SLOTS / 2, "{older} slots were freed before");
                freed_at[slot] = time;
                quarantine.put(slot);
            }
            // Each slot is in there exactly once.
            let mut taken: Vec<_> = std::iter::from_fn(|| quarantine.take(pick)).collect();
            taken.sort_unstable();
            assert!(taken.into_iter().eq(0..SLOTS));
        }
    }
}
