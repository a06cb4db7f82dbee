//! A cache of values that stay constructed: each is as its last user left it, and is made and dropped once. Handlers use none: an
//! allocation may wait for a lock that the interrupted thread has.

use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

use thiscpu::{Constructed, ConstructedCache};

use super::{Actor, Structure};
use crate::wrong::{Checked, equal, holds};

/// Values that were made and not dropped, and those that were not whole then.
static THERE: AtomicI64 = AtomicI64::new(0);
static BROKEN: AtomicI64 = AtomicI64::new(0);

const WORDS: usize = 60;
const HELD_MAX: usize = 48;
/// So many, one after the other, that slabs come and go.
const MANY: usize = 400;

struct Value {
    uses: u64,
    words: [u64; WORDS],
}

impl Value {
    fn new() -> Value {
        THERE.fetch_add(1, SeqCst);
        Value { uses: 0, words: [0; WORDS] }
    }

    fn is_whole(&self) -> bool {
        let pattern = |place: u64| self.uses.wrapping_mul(place + 1);
        (0..).zip(&self.words).all(|(place, &word)| word == pattern(place))
    }

    /// Leaves it as the next user has to find it.
    fn use_it(&mut self) -> Checked {
        holds("a value is as it was left", self.is_whole())?;
        self.uses += 1;
        for (place, word) in (1..).zip(&mut self.words) {
            *word = self.uses.wrapping_mul(place);
        }
        Ok(())
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        BROKEN.fetch_add(i64::from(!self.is_whole()), SeqCst);
        THERE.fetch_sub(1, SeqCst);
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
        value.use_it()?;
        Ok(value)
    }

    /// So many, of which some are there at a time.
    fn use_some(&self, actor: &mut Actor, count: usize) -> Checked {
        let mut held = [const { None }; HELD_MAX];
        for _ in 0..count {
            let value = self.alloc(actor)?;
            let place = &mut held[actor.random.usize(..HELD_MAX)];
            if let Some(mut old) = place.replace(value) {
                old.use_it()?;
            }
        }
        Ok(())
    }
}

impl Structure for Values {
    fn name(&self) -> &'static str {
        "constructed"
    }

    fn turn(&self, actor: &mut Actor) -> Checked {
        match actor.random.u8(..) {
            0..4 => {
                self.cache.shrink();
                actor.ops += 1;
                Ok(())
            }
            4..16 => self.use_some(actor, MANY),
            _ => (0..8).try_for_each(|_| {
                let count = actor.random.usize(..HELD_MAX);
                self.use_some(actor, count)
            }),
        }
    }

    fn child(&self, actor: &mut Actor) -> Checked {
        self.use_some(actor, MANY)?;
        self.cache.shrink();
        self.use_some(actor, MANY)?;
        equal("values that were not whole when they were dropped", 0, BROKEN.load(SeqCst))
    }

    fn account(&mut self) -> Checked {
        let cache = std::mem::replace(&mut self.cache, ConstructedCache::new(Value::new));
        let out = cache.close().map_err(|error| error.objects);
        equal("values that are out in the end", 0, out.err().unwrap_or(0) as i64)?;
        equal("values that were not whole when they were dropped", 0, BROKEN.load(SeqCst))?;
        equal("values in the end", 0, THERE.load(SeqCst))
    }
}
