//! The units that one participant holds, read without write access.
//!
//! An operation that the pool names is committed, but perhaps not applied to its pair. A process
//! that can write applies it first. A reader counts the pair as it will be.
//!
//! A release that meets a closed pair leaves its units there as credit, and pulls them. They count
//! as held until the commit of that pull, or until an operation opens the pair.

use super::limit::LOOKS_MAX;
use super::memory::Parts;
use super::pair::{Pair, Words};
use super::pool::{Kind, Mode, State};

impl Parts<'_> {
    /// Returns the units that callers of a slot's participant hold; 0 if they released too much.
    ///
    /// Makes only loads. If the participant is gone, its pairs change only with the pool. So the
    /// number is exact if the pool is unchanged after the loads; otherwise this looks again. If
    /// operations always come between, the number is of the last look. A participant that lives
    /// changes its pairs at any time, so one look is enough.
    pub(crate) fn held_by(&self, slot: u32, is_gone: bool) -> u64 {
        let mut looks = 0;
        loop {
            let now = self.record.pool.load();
            let held = self.held_at(now, slot);
            looks += 1;
            let is_last = !is_gone || looks == LOOKS_MAX;
            if is_last || self.record.pool.is_still(now) {
                return held.max(0) as u64;
            }
        }
    }

    /// Returns the units that a slot holds, once the operation of a state is applied.
    fn held_at(&self, now: State, slot: u32) -> i32 {
        let (kind, named) = (now.kind(), self.named_pair(now));
        if kind == Kind::Reclaim && now.pair().0 == slot {
            return 0;
        }
        let held = self.pairs.of(slot).zip(0..).map(|(pair, lane)| {
            let words = load_of_one_version(pair);
            // Another stamp is that of an earlier operation only if the pool is unchanged after the
            // load. Otherwise a later one may have been applied to the pair, after this one.
            let is_unapplied = named == Some((slot, lane))
                && !words.is_stamped(now)
                && self.record.pool.is_still(now);
            let words = if is_unapplied { words.after(now) } else { words };
            let first = words.first();
            let stray = if first.is_open() { 0 } else { first.credit() };
            let is_pulled = self.is_pulled_stray(now, (slot, lane), words);
            let pulled = if is_pulled { words.out() } else { 0 };
            (first.held() as i32).wrapping_add((stray + pulled) as i32)
        });
        // One CPU acquires and another releases, so held of one pair may wrap around.
        held.fold(0, i32::wrapping_add)
    }

    /// Returns whether a pull has taken units of a release from a pair, and the pool lacks them.
    ///
    /// If the mode lets pairs be open, they may be credit of an open pair, and do not count.
    fn is_pulled_stray(&self, now: State, pair: (u32, u32), words: Words) -> bool {
        now.kind() == Kind::Pull
            && now.pair() == pair
            && words.is_stamped(now)
            && !matches!(now.mode(), Mode::PerCpu | Mode::Recall)
            && self.record.pool.is_still(now)
    }

    /// Returns the slot and the lane whose held units the operation of a state changes.
    fn named_pair(&self, now: State) -> Option<(u32, u32)> {
        match now.kind() {
            Kind::Take | Kind::Give => Some(now.pair()),
            Kind::Grant => {
                let (_, status, request) = self.named_waiter(now)?;
                Some((status.slot(), request.lane))
            }
            _ => None,
        }
    }
}

/// Loads a pair, so that no operation was applied between the loads of its two words.
///
/// Otherwise an operation could be counted twice, or not at all. Gives up after many operations:
/// then the pool has changed, too.
fn load_of_one_version(pair: &Pair) -> Words {
    let mut words = pair.load();
    for _ in 0..LOOKS_MAX {
        let again = pair.load();
        if again.has_stamp_of(words) {
            break;
        }
        words = again;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::super::pool::{Mode, Operation};
    use super::super::slot::Alone;
    use super::super::{Pairs, Participant, Record, Released, Slot, SlotState, Slots};
    use super::*;

    /// Commits an operation, which changes the pool's units, and leaves it unapplied.
    fn commit_only(budget: &Parts<'_>, units: i64, operation: Operation) {
        let now = budget.settle(&Alone);
        let next = now.next(now.units() + units, Mode::Shared, operation);
        assert!(budget.record.pool.exchange(now, next));
    }

    /// Runs a test with a budget of 100 units and two participants, in two lanes.
    fn with_budget(test: impl FnOnce(&Parts<'_>, &[Slot; 2])) {
        let record = Record::new(100);
        let (pairs, slots) = ([const { Pair::new() }; 4], [const { Slot::new() }; 2]);
        assert!(slots.iter().all(|slot| slot.occupy(0)));
        // SAFETY: the pairs of two slots in two lanes, which live until the end.
        let pairs = unsafe { Pairs::new(pairs.as_ptr(), 2 * size_of::<Pair>(), 2, 2) };
        // SAFETY: two slots, which live until the end.
        let all = unsafe { Slots::new(slots.as_ptr(), size_of::<Slot>(), 2) };
        test(&Parts { record: &record, pairs, slots: all, waiters: &[], id: 0 }, &slots);
    }

    #[test]
    fn committed_operation_counts_once_before_and_after_it_is_applied() {
        with_budget(assert_counts_once);
    }

    fn assert_counts_once(budget: &Parts<'_>, slots: &[Slot; 2]) {
        let held = || [budget.held_by(0, true), budget.held_by(1, true)];
        let assert_held = |wanted: [u64; 2]| {
            assert_eq!(held(), wanted, "committed");
            budget.settle(&Alone);
            assert_eq!(held(), wanted, "applied");
        };
        // One lane of slot 1 has acquired what the other one releases.
        let [one, other] = [0, 1].map(|slot| Participant { slot, generation: 0 });
        assert!(budget.try_acquire(other, 1, 5, &Alone).is_ok());
        budget.release(other, 0, 3, &Alone);
        assert_held([0, 2]);
        commit_only(budget, -30, Operation::on_pair(Kind::Take, 30, (0, 1)));
        assert_held([30, 2]);
        commit_only(budget, 10, Operation::on_pair(Kind::Give, 10, (0, 0)));
        assert_held([20, 2]);
        commit_only(budget, 0, Operation::on_pair(Kind::Pull, 0, (0, 1)));
        assert_held([20, 2]);
        assert!(slots[0].declare_dead(one.generation) && slots[0].is(SlotState::Dead, 0));
        commit_only(budget, 20, Operation::on_pair(Kind::Reclaim, 0, (0, 0)));
        assert_held([0, 2]);
        // More than the participant holds.
        budget.release(other, 0, 7, &Alone);
        assert_held([0, 0]);
    }

    #[test]
    fn release_to_closed_pair_counts_as_held_until_pool_has_its_units() {
        with_budget(|budget, _| {
            let one = Participant { slot: 0, generation: 0 };
            commit_only(budget, -30, Operation::on_pair(Kind::Take, 30, (0, 1)));
            budget.settle(&Alone);
            assert_eq!(budget.pairs.release(one, 1, 10, false), Released::Stray);
            assert_eq!(budget.held_by(0, true), 30, "added");
            commit_only(budget, 0, Operation::on_pair(Kind::Pull, 0, (0, 1)));
            assert_eq!(budget.held_by(0, true), 30, "named by the pool");
            let pair = budget.pairs.get(0, 1).expect("a pair");
            assert_eq!(budget.apply(pair, budget.record.pool.load(), 0), Some(10));
            assert_eq!(budget.held_by(0, true), 30, "pulled");
            assert_eq!(budget.settle(&Alone).units(), 80);
            assert_eq!(budget.held_by(0, true), 20, "in the pool");
        });
    }

    // Between the load of the pool and that of the pair, others commit and apply more.
    #[test]
    fn operation_does_not_count_again_when_pair_has_a_later_stamp() {
        with_budget(|budget, _| {
            let take = |units| Operation::on_pair(Kind::Take, units, (0, 1));
            commit_only(budget, -30, take(30));
            let earlier = budget.record.pool.load();
            assert_eq!(budget.held_at(earlier, 0), 30);
            commit_only(budget, -5, take(5));
            budget.settle(&Alone);
            assert_eq!(budget.held_at(earlier, 0), 35);
            assert_eq!(budget.held_by(0, false), 35);
        });
    }
}
