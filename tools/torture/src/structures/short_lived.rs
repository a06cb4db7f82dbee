//! Objects that are created, shared, used and dropped during the run. The last user of an object
//! checks it; the next object reuses its memory.

use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use thiscpu::{Counter, Counters, PerCpu};

use super::{Actor, Structure, quiescent};
use crate::violation::{Checked, equal, holds};

/// Objects that are created and dropped together, and the amount added to each.
#[derive(Default)]
struct Objects {
    counter: Counter,
    counters: Counters<5>,
    words: PerCpu<u32>,
    /// SeqCst, for simplicity: the reference count orders it for the last user anyway.
    added: AtomicI64,
}

pub(super) struct ShortLived {
    current: Mutex<Arc<Objects>>,
}

impl Objects {
    /// Checks that nothing is left of earlier objects in this memory.
    ///
    /// Call it before anything is added.
    fn check_fresh(&self) -> Checked {
        holds("new words are 0", self.words.lanes().all(|word| word == 0))
    }

    fn add(&self, actor: &mut Actor, adds: i64) {
        for _ in 0..adds {
            self.counter.inc();
            self.counters.add(actor.random.usize(..5), 1);
            self.words.add(1);
        }
        self.added.fetch_add(adds, SeqCst);
        actor.ops += 3 * adds as u64;
    }

    fn verify(&self) -> Checked {
        let added = self.added.load(SeqCst);
        quiescent::check_value(&self.counter, added)?;
        equal("the total of short-lived counters", added, self.counters.snapshot().iter().sum())?;
        let words = self.words.lanes().fold(0, u32::wrapping_add);
        equal("the total of short-lived words", i64::from(added as u32), i64::from(words))
    }
}

/// Ends one use. The last user checks the objects.
fn release(objects: Arc<Objects>) -> Checked {
    Arc::into_inner(objects).map_or(Ok(()), |objects| objects.verify())
}

impl ShortLived {
    pub(super) fn new() -> Self {
        ShortLived { current: Mutex::new(Arc::new(Objects::default())) }
    }

    fn replace(&self) -> Checked {
        let new = Arc::new(Objects::default());
        new.check_fresh()?;
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *current, new);
        drop(current);
        release(old)
    }
}

impl Structure for ShortLived {
    fn step(&self, actor: &mut Actor) -> Checked {
        if actor.random.u8(..6) == 0 {
            actor.ops += 1;
            return self.replace();
        }
        let objects = {
            let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(&current)
        };
        let adds = 1 << actor.random.u8(..8);
        objects.add(actor, adds);
        release(objects)
    }

    /// Uses objects of its own: a thread that does not exist in the child may hold the lock.
    fn check_in_child(&self, actor: &mut Actor) -> Checked {
        let objects = Objects::default();
        objects.check_fresh()?;
        objects.add(actor, 800);
        objects.verify()
    }

    fn verify(&mut self) -> Checked {
        let current = self.current.get_mut().unwrap_or_else(PoisonError::into_inner);
        equal("users of the last objects", 1, Arc::strong_count(current) as i64)?;
        current.verify()
    }
}
