//! How all free units come to the pool, so that a refusal can rest on one load.

use super::memory::Parts;
use super::pool::{Kind, Mode, Operation, State};
use super::slot::{SlotState, World};

/// Where a recall looks next.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cursor(u64);

impl Parts<'_> {
    /// Makes one step from per-CPU mode to shared mode. `now` is settled.
    ///
    /// First no operation may open a pair any more. Then each pair that is open or has credit is
    /// pulled. When a look at all pairs finds none, the pool goes to shared mode, if no operation
    /// came between. Only operations open pairs, so all were closed at that exchange.
    pub(super) fn recall(&self, now: State, cursor: &mut Cursor, world: &impl World) {
        let next = match now.mode() {
            Mode::PerCpu => now.with_mode(Mode::Recall),
            Mode::Recall => match self.find_credit(cursor) {
                Some(pair) => {
                    now.next(now.units(), Mode::Recall, Operation::on_pair(Kind::Pull, 0, pair))
                }
                None => now.with_mode(Mode::Shared),
            },
            Mode::Shared | Mode::Queued | Mode::Closed => return,
        };
        if self.commit(now, next, world) && next.mode() == Mode::Shared {
            self.discard_excess(world);
        }
    }

    /// Makes the pool exact: shared mode, or one of those that follow it.
    pub(super) fn recall_all(&self, world: &impl World) -> State {
        let mut cursor = Cursor::default();
        loop {
            let now = self.settle(world);
            match now.mode() {
                Mode::PerCpu | Mode::Recall => self.recall(now, &mut cursor, world),
                Mode::Shared | Mode::Queued | Mode::Closed => return now,
            }
        }
    }

    /// Returns a slot and lane whose pair must be pulled, after one look at all of them.
    fn find_credit(&self, cursor: &mut Cursor) -> Option<(u32, u32)> {
        let (slots, lanes) = (u64::from(self.used_slots()), u64::from(self.pairs.lanes()));
        let mut looked_at = 0;
        while looked_at < slots * lanes {
            let (slot, lane) = ((cursor.0 / lanes % slots) as u32, (cursor.0 % lanes) as u32);
            // The pairs of a free slot are zeros, and a new participant needs an operation first.
            if lane == 0 && self.slots.get(slot).is_some_and(|it| it.load().0 == SlotState::Free) {
                cursor.0 += lanes;
                looked_at += lanes;
                continue;
            }
            if self.pairs.get(slot, lane).is_some_and(|pair| pair.first().has_credit()) {
                return Some((slot, lane));
            }
            cursor.0 += 1;
            looked_at += 1;
        }
        None
    }
}
