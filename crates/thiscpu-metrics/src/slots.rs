//! Slots: places of sources, which series keep while other series come and go.

use std::collections::BTreeSet;

use crate::source::Source;

const IN_USE: &str = "series have slots in use";

/// The sources of all series, each in a slot.
#[derive(Default)]
pub(crate) struct Slots {
    /// The last one is in use.
    entries: Vec<Option<Source>>,
    free: BTreeSet<usize>,
}

impl Slots {
    /// Puts a source into the first free slot, which it returns.
    pub(crate) fn add(&mut self, source: Source) -> usize {
        match self.free.pop_first() {
            Some(slot) => {
                self.entries[slot] = Some(source);
                slot
            }
            None => {
                self.entries.push(Some(source));
                self.entries.len() - 1
            }
        }
    }

    /// Removes a source, and returns it.
    pub(crate) fn remove(&mut self, slot: usize) -> Source {
        let source = self.entries[slot].take().expect(IN_USE);
        self.free.insert(slot);
        // Each slot is forgotten once for the time it was added at the end.
        while let Some(None) = self.entries.last() {
            self.entries.pop();
            self.free.remove(&self.entries.len());
        }
        source
    }

    pub(crate) fn get(&self, slot: usize) -> &Source {
        self.entries[slot].as_ref().expect(IN_USE)
    }

    pub(crate) fn get_mut(&mut self, slot: usize) -> &mut Source {
        self.entries[slot].as_mut().expect(IN_USE)
    }

    /// Returns the memory of slots at the end if it is most of it.
    pub(crate) fn shrink(&mut self) {
        if self.entries.capacity() > 64 && self.entries.capacity() / 4 > self.entries.len() {
            self.entries.shrink_to(2 * self.entries.len());
        }
    }

    /// Returns the number of slots, free ones included.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &Source)> {
        self.entries.iter().enumerate().filter_map(|(slot, source)| Some((slot, source.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use thiscpu::Counters;

    use super::*;

    #[test]
    fn free_slots_are_used_first_and_forgotten_at_the_end() {
        let source = || Source::CounterRow { row: Arc::new(Counters::new()), used: 0 };
        let mut slots = Slots::default();
        assert_eq!([(); 4].map(|()| slots.add(source())), [0, 1, 2, 3]);
        for (removed, length) in [(2, 4), (1, 4), (3, 1)] {
            slots.remove(removed);
            assert_eq!(slots.len(), length);
        }
        assert_eq!([(); 3].map(|()| slots.add(source())), [1, 2, 3]);
        slots.remove(0);
        slots.remove(2);
        assert_eq!([(); 3].map(|()| slots.add(source())), [0, 2, 4]);
        assert_eq!(slots.iter().count(), 5);
    }
}
