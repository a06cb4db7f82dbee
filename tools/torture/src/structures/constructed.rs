//! A cache of values that stay constructed. Each is as its last user left it, and is constructed
//! and dropped once.
//!
//! Handlers use none: an allocation may wait for a lock that the interrupted thread holds.

use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

use thiscpu::{Constructed, ConstructedCache};

use super::{Actor, Structure};
use crate::violation::{Checked, equal, holds};

/// The number of values that were constructed and not dropped.
static ALIVE: AtomicI64 = AtomicI64::new(0);
/// The number of values that were corrupt when they were dropped.
static CORRUPT: AtomicI64 = AtomicI64::new(0);

const WORDS: usize = 60;
const HELD_MAX: usize = 48;
/// A number of values, one after the other, with which slabs come and go.
const MANY: usize = 400;

struct Value {
    uses: u64,
    words: [u64; WORDS],
}

impl Value {
    fn new() -> Value {
        ALIVE.fetch_add(1, SeqCst);
        Value { uses: 0, words: [0; WORDS] }
    }

    fn is_whole(&self) -> bool {
        let pattern = |place: u64| self.uses.wrapping_mul(place + 1);
        (0..).zip(&self.words).all(|(place, &word)| word == pattern(place))
    }

    /// Checks the value, and leaves the pattern that the next user must find.
    fn check_and_use(&mut self) -> Checked {
        holds("a value is unchanged", self.is_whole())?;
        self.uses += 1;
        for (place, word) in (1..).zip(&mut self.words) {
            *word = self.uses.wrapping_mul(place);
        }
        Ok(())
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        CORRUPT.fetch_add(i64::from(!self.is_whole()), SeqCst);
        ALIVE.fetch_sub(1, SeqCst);
    }
}

pub(super) struct Values {
    cache: ConstructedCache<Value>,
}

impl Values {
    pub(super) fn new() -> Self {
        Values { cache: ConstructedCache::new(Value::new) }
    }

    fn alloc(&self, actor: &mut Actor) -> Checked<Constructed<Value>> {
        let mut value = self.cache.alloc();
        actor.ops += 2;
        value.check_and_use()?;
        Ok(value)
    }

    /// Allocates `count` values, of which it holds some at a time.
    fn use_some(&self, actor: &mut Actor, count: usize) -> Checked {
        let mut held = [const { None }; HELD_MAX];
        for _ in 0..count {
            let value = self.alloc(actor)?;
            let place = &mut held[actor.random.usize(..HELD_MAX)];
            if let Some(mut old) = place.replace(value) {
                old.check_and_use()?;
            }
        }
        Ok(())
    }
}

impl Structure for Values {
    fn step(&self, actor: &mut Actor) -> Checked {
        match actor.random.u8(..) {
            0..4 => {
                actor.counted(self.cache.shrink());
                Ok(())
            }
            4..16 => self.use_some(actor, MANY),
            _ => (0..8).try_for_each(|_| {
                let count = actor.random.usize(..HELD_MAX);
                self.use_some(actor, count)
            }),
        }
    }

    fn check_in_child(&self, actor: &mut Actor) -> Checked {
        self.use_some(actor, MANY)?;
        self.cache.shrink();
        self.use_some(actor, MANY)?;
        equal("values that were corrupt when they were dropped", 0, CORRUPT.load(SeqCst))
    }

    fn verify(&mut self) -> Checked {
        let cache = std::mem::replace(&mut self.cache, ConstructedCache::new(Value::new));
        let out = cache.close().map_err(|error| error.objects);
        equal("values still allocated in the end", 0, out.err().unwrap_or(0) as i64)?;
        equal("values that were corrupt when they were dropped", 0, CORRUPT.load(SeqCst))?;
        equal("values alive in the end", 0, ALIVE.load(SeqCst))
    }
}
