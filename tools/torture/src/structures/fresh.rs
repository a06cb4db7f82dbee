//! Objects that are made, shared, used and dropped while others run. Whoever is the last to use one
//! accounts for it; what it leaves is used again by the next.

use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use thiscpu::{Counter, Counters, PerCpu};

use super::{Actor, Structure, alone};
use crate::wrong::{Checked, equal, holds};

/// Objects that share their lives, and what was added to each.
struct Objects {
    counter: Counter,
    counters: Counters<5>,
    words: PerCpu<u32>,
    /// SeqCst, though the last user would see it all anyway through the count of users.
    added: AtomicI64,
}

pub(super) struct Fresh {
    current: Mutex<Arc<Objects>>,
}

impl Objects {
    fn new() -> Self {
        Objects {
            counter: Counter::new(),
            counters: Counters::new(),
            words: PerCpu::new(),
            added: AtomicI64::new(0),
        }
    }

    /// Nothing is left of whoever had the memory before. For the one who made these.
    fn check_fresh(&self) -> Checked {
        holds("fresh words are 0", self.words.lanes().all(|word| word == 0))
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

    fn account(&self) -> Checked {
        let added = self.added.load(SeqCst);
        alone::settled(&self.counter, added)?;
        equal("the total of fresh counters", added, self.counters.snapshot().iter().sum())?;
        let words = self.words.lanes().fold(0, u32::wrapping_add);
        equal("the total of fresh words", i64::from(added as u32), i64::from(words))
    }
}

/// Ends one use. The last of them accounts.
fn release(objects: Arc<Objects>) -> Checked {
    Arc::into_inner(objects).map_or(Ok(()), |objects| objects.account())
}

impl Fresh {
    pub(super) fn new() -> Self {
        Fresh { current: Mutex::new(Arc::new(Objects::new())) }
    }

    fn replace(&self) -> Checked {
        let new = Arc::new(Objects::new());
        new.check_fresh()?;
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *current, new);
        drop(current);
        release(old)
    }
}

impl Structure for Fresh {
    fn name(&self) -> &'static str {
        "fresh_objects"
    }

    fn turn(&self, actor: &mut Actor) -> Checked {
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

    /// Only with objects of its own: the lock may be held by a thread that is not here.
    fn child(&self, actor: &mut Actor) -> Checked {
        let objects = Objects::new();
        objects.check_fresh()?;
        objects.add(actor, 800);
        objects.account()
    }

    fn account(&mut self) -> Checked {
        let current = self.current.get_mut().unwrap_or_else(PoisonError::into_inner);
        equal("users of the last objects", 1, Arc::strong_count(current) as i64)?;
        current.account()
    }
}
