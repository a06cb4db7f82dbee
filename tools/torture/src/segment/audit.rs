//! Comparing the values of the segment with what workers have said.

use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use super::objects::{LIMIT, Objects, WAIT_MAX};
use super::witness::{Statement, Witness};
use crate::violation::{Checked, equal, holds, within};

pub(super) struct Audit<'a> {
    objects: &'a Objects,
    witness: &'static Witness,
    /// What dead workers have added to the common counter: at least, and at most.
    by_dead: (i64, i64),
}

impl Audit<'_> {
    pub(super) fn new<'a>(objects: &'a Objects, witness: &'static Witness) -> Audit<'a> {
        Audit { objects, witness, by_dead: (0, 0) }
    }

    /// Checks what holds at each instant.
    pub(super) fn while_all_work(&self) -> Checked {
        let all = |word: fn(&Statement) -> &AtomicI64| -> i64 {
            self.witness.statements.iter().map(|it| word(it).load(SeqCst)).sum()
        };
        let low = self.by_dead.0 + all(|it| &it.ended);
        let sum = self.objects.common.sum();
        let high = self.by_dead.1 + all(|it| &it.begun);
        within("common counter", (low, high), sum)
    }

    /// Checks the counter of a stopped worker: its last addition has happened, or has not.
    pub(super) fn while_stopped(&self, number: usize) -> Checked {
        let statement = &self.witness.statements[number];
        let (before, after) = (statement.before.load(SeqCst), statement.after.load(SeqCst));
        let value = self.objects.own.sum()[number];
        let expected = if value == after { after } else { before };
        equal("own counter of a stopped worker", expected, value)
    }

    /// Takes over what a dead worker has said, so that another one can have its place.
    pub(super) fn bury(&mut self, number: usize) -> Checked {
        self.while_stopped(number)?;
        let statement = &self.witness.statements[number];
        let value = self.objects.own.sum()[number];
        statement.before.store(value, SeqCst);
        statement.after.store(value, SeqCst);
        self.by_dead.0 += statement.ended.swap(0, SeqCst);
        self.by_dead.1 += statement.begun.swap(0, SeqCst);
        Ok(())
    }

    /// Checks that nothing is missing, and returns the time until all units were back.
    pub(super) fn when_all_have_ended(&mut self) -> Checked<Duration> {
        let sum = self.objects.common.sum();
        within("common counter of dead workers", self.by_dead, sum)?;
        self.by_dead = (sum, sum);
        let [first, second] = self.objects.steps.sum();
        let started = self.witness.started.load(SeqCst) as i64;
        within("workers that died between two steps", (0, started), first - second)?;
        let (budget, began) = (&self.objects.budget, Instant::now());
        budget.set_limit(LIMIT);
        let is_back = budget.acquire_timeout(LIMIT, WAIT_MAX).is_ok();
        let returned = began.elapsed();
        holds("all units come back from dead workers", is_back)?;
        holds("there are no more units than the limit", budget.try_acquire(1).is_err())?;
        budget.release(LIMIT);
        equal("units that are available", LIMIT as i64, budget.available() as i64)?;
        // The budget takes units back that were doubled, as if a caller had released too many.
        equal("units that nobody held", 0, budget.over_released() as i64)?;
        Ok(returned)
    }
}

#[cfg(test)]
mod tests {
    use thiscpu::Segment;

    use super::*;

    /// Runs `body` with objects, what the auditor compares them with, and the audit.
    fn with_audit(body: impl FnOnce(&Objects, &'static Witness, Audit<'_>)) {
        let segment = Segment::anonymous().expect("a segment");
        let objects = Objects::of(&segment).expect("room");
        let witness = Witness::create().expect("memory").0;
        body(&objects, witness, Audit::new(&objects, witness));
    }

    #[test]
    fn stopped_worker_may_have_added_or_not() {
        with_audit(|objects, witness, audit| {
            witness.statements[2].after.store(7, SeqCst);
            assert_eq!(audit.while_stopped(2), Ok(()));
            objects.own.add(2, 7);
            assert_eq!(audit.while_stopped(2), Ok(()));
            objects.own.add(2, 7);
            assert!(audit.while_stopped(2).is_err(), "an addition was made twice");
        });
    }

    #[test]
    fn lost_and_doubled_additions_are_noticed() {
        with_audit(|objects, witness, mut audit| {
            witness.statements[0].begun.store(5, SeqCst);
            assert_eq!(audit.while_all_work(), Ok(()));
            witness.statements[0].ended.store(5, SeqCst);
            assert!(audit.while_all_work().is_err(), "a confirmed addition is lost");
            objects.common.add(5);
            assert_eq!((audit.bury(0), audit.while_all_work()), (Ok(()), Ok(())));
            objects.common.add(5);
            assert!(audit.while_all_work().is_err(), "an addition was made twice");
        });
    }

    #[test]
    fn lost_and_doubled_units_are_noticed() {
        with_audit(|objects, _, mut audit| {
            assert!(audit.when_all_have_ended().is_ok());
            objects.budget.release(1);
            assert!(audit.when_all_have_ended().is_err(), "there is a unit too many");
        });
    }

    #[test]
    fn exceeded_limit_is_noticed() {
        let witness = Witness::create().expect("memory").0;
        assert_eq!(witness.hold(0, LIMIT, LIMIT), Ok(()));
        assert!(witness.hold(7, 1, LIMIT).is_err());
        witness.forget(0);
        witness.give_back(7, 1);
        assert_eq!(witness.hold(1, LIMIT, LIMIT), Ok(()));
    }
}
