//! The protocol of the index: chains of nodes that anybody inserts and removes, without a lock.
//!
//! A bucket holds the *link* to the first node of its chain, and each node the link to the next. A
//! node is two words that change together, at the beginning of a record:
//!
//! ```text
//! link     offset of a node / 64 (34 bits) | its generation (28 bits); 0 for none
//! node     link to the next node | the node's own generation
//! ```
//!
//! A node is in a chain while its generation is odd. The next even one says that it was removed.
//! Zeroed memory has generation 0. Nodes keep their places when their memory serves another record, so a link that is out of date
//! leads to a node of another generation, and is noticed.
//!
//! | operation | commit point |
//! |---|---|
//! | insert | the exchange of the bucket, from the link with which the search began |
//! | removal | the exchange of the node, which keeps the link and makes the generation even |
//! | unlinking a removed node | the exchange of the link before it |
//!
//! Inserts of one chain exchange one word. So if two processes insert one name, one of them fails,
//! searches again, and finds the other's node.
//!
//! Who changes the link in a node exchanges its generation as well. So no link of a removed node
//! changes, and a node that is unlinked has no successor that was inserted meanwhile. Anybody who
//! meets a removed node unlinks it. Only its remover uses the memory again, when the node is
//! unlinked; if the remover dies first, nobody uses it.

use crate::sys::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire},
};
use crate::sys::double::Double;

/// The bits of an offset, in units of 64 bytes. A model has words of 32 bits.
const AT_BITS: u32 = if cfg!(thiscpu_model) { 8 } else { 34 };
const AT_UNIT: u64 = 64;
const GENERATION_BITS: u32 = if cfg!(thiscpu_model) { 16 } else { 28 };
const GENERATIONS: u64 = 1 << GENERATION_BITS;

/// How many nodes a search looks at, beyond those of a chain, before it calls the chain damaged.
///
/// A search starts again only if another process has completed a change.
const STEPS_MAX: usize = if cfg!(thiscpu_model) { 64 } else { 1 << 20 };

/// A link to a node of one generation, or to none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::segment) struct Link(u64);

impl Link {
    /// Returns the link to the node of an offset, which is a multiple of 64.
    pub(in crate::segment) fn new(at: u64, generation: u64) -> Link {
        Link(at / AT_UNIT | generation % GENERATIONS << AT_BITS)
    }

    /// Returns the offset of the node.
    pub(in crate::segment) fn at(self) -> u64 {
        self.0 % (1 << AT_BITS) * AT_UNIT
    }

    /// Returns the generation of the node.
    #[cfg(thiscpu_model)]
    pub(in crate::segment) fn generation(self) -> u64 {
        self.0 >> AT_BITS
    }

    /// Returns whether the link leads to a node that has this generation.
    fn is_of(self, generation: u64) -> bool {
        self.0 >> AT_BITS == generation % GENERATIONS
    }

    fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// Whoever knows where nodes are.
pub(in crate::segment) trait Nodes {
    type Error;

    /// Returns the node at an offset that a link has, which can be any.
    fn node(&self, at: u64) -> Result<&Double, Self::Error>;

    /// Returns the error for a chain that no process of this library has left.
    fn damaged(&self) -> Self::Error;
}

/// A chain: its bucket, and where its nodes are.
pub(in crate::segment) struct Chain<'a, N> {
    pub(in crate::segment) bucket: &'a AtomicU64,
    pub(in crate::segment) nodes: &'a N,
    /// The most nodes that a chain can have.
    pub(in crate::segment) nodes_max: usize,
}

/// What a search came to.
enum Search {
    /// The node that was looked for.
    Found(Link),
    /// The end of the chain, on a walk that began with this link.
    End(Link),
}

impl<N: Nodes> Chain<'_, N> {
    /// Returns the link of the node that `is_it` names, if the chain has it.
    ///
    /// `is_it` gets links, and looks at the records. Their memory may come to serve other records
    /// meanwhile. Then the answer does not count.
    pub(in crate::segment) fn find(
        &self,
        mut is_it: impl FnMut(Link) -> Result<bool, N::Error>,
    ) -> Result<Option<Link>, N::Error> {
        Ok(match self.search(&mut is_it)? {
            Search::Found(link) => Some(link),
            Search::End(_) => None,
        })
    }

    /// Returns the node that `is_it` names, or inserts the one that `make` makes.
    ///
    /// `make` is called at most once, and returns the offset of a node that nobody else uses. If
    /// the result is another node, or an error, the caller has that node again.
    pub(in crate::segment) fn find_or_insert(
        &self,
        mut is_it: impl FnMut(Link) -> Result<bool, N::Error>,
        make: impl FnOnce() -> Result<u64, N::Error>,
    ) -> Result<Link, N::Error> {
        let mut first = match self.search(&mut is_it)? {
            Search::Found(link) => return Ok(link),
            Search::End(first) => first,
        };
        let at = make()?;
        let node = self.nodes.node(at)?;
        // Nobody else changes the node: it is in no chain, so links to it are out of date.
        let set = |link: Link, generation| node.exchange(node.load(), [link.0, generation]);
        let generation = node.second().wrapping_add(1);
        let new = Link::new(at, generation);
        loop {
            set(first, generation);
            // AcqRel: releases the record and its node to walks that load this link, and acquires
            // the nodes that another process has inserted.
            if self.bucket.compare_exchange(first.0, new.0, AcqRel, Acquire).is_ok() {
                return Ok(new);
            }
            let found = match self.search(&mut is_it) {
                Ok(Search::End(now)) => {
                    first = now;
                    continue;
                }
                Ok(Search::Found(link)) => Ok(link),
                Err(error) => Err(error),
            };
            set(Link(0), generation.wrapping_add(1));
            return found;
        }
    }

    /// Removes a node, and returns whether this call did it.
    ///
    /// Its memory can be used again after a call of [`unlink`](Self::unlink).
    pub(in crate::segment) fn remove(&self, it: Link) -> Result<bool, N::Error> {
        let node = self.nodes.node(it.at())?;
        loop {
            let [next, generation] = node.load();
            if !it.is_of(generation) {
                return Ok(false);
            }
            if node.exchange([next, generation], [next, generation.wrapping_add(1)]) {
                return Ok(true);
            }
        }
    }

    /// Unlinks the removed nodes of the chain.
    pub(in crate::segment) fn unlink(&self) -> Result<(), N::Error> {
        self.search(&mut |_| Ok(false)).map(drop)
    }

    /// Walks along the chain until a walk was not disturbed.
    fn search(
        &self,
        is_it: &mut impl FnMut(Link) -> Result<bool, N::Error>,
    ) -> Result<Search, N::Error> {
        let mut steps = self.nodes_max + STEPS_MAX;
        loop {
            if let Some(done) = self.walk(&mut steps, is_it)? {
                return Ok(done);
            }
        }
    }

    /// Walks along the chain once; returns `None` if another process changed it meanwhile.
    fn walk(
        &self,
        steps: &mut usize,
        is_it: &mut impl FnMut(Link) -> Result<bool, N::Error>,
    ) -> Result<Option<Search>, N::Error> {
        // Acquire: pairs with the exchanges of the bucket; a node whose link is seen is written.
        let mut first = Link(self.bucket.load(Acquire));
        let (mut before, mut link) = (None, first);
        while !link.is_none() {
            *steps = steps.checked_sub(1).ok_or_else(|| self.nodes.damaged())?;
            let node = self.nodes.node(link.at())?;
            // Acquire, both, so the generation is loaded second. If it is that of the link, the
            // first load was of this node's link to the next.
            let (next, generation) = (Link(node.first()), node.second());
            if link.is_of(generation) {
                let answer = is_it(link);
                // After the look at the record, which was another's if this has changed.
                if node.second() != generation {
                    return Ok(None);
                }
                if answer? {
                    return Ok(Some(Search::Found(link)));
                }
                (before, link) = (Some((node, generation)), next);
                continue;
            }
            // Once more, after the generation: the link of a removed node does not change.
            let next = Link(node.first());
            if !link.is_of(generation.wrapping_sub(1)) || !self.skip(before, link, next) {
                return Ok(None);
            }
            if before.is_none() {
                // An insert has to begin with the link that the bucket has now.
                first = next;
            }
            link = next;
        }
        Ok(Some(Search::End(first)))
    }

    /// Exchanges the link to a removed node for that to the next one.
    ///
    /// If this succeeds, the node was linked until now, so its link was not changed.
    fn skip(&self, before: Option<(&Double, u64)>, removed: Link, next: Link) -> bool {
        match before {
            Some((node, generation)) => {
                node.exchange([removed.0, generation], [next.0, generation])
            }
            // AcqRel: as in `find_or_insert`; the next node was acquired by the link to it.
            None => self.bucket.compare_exchange(removed.0, next.0, AcqRel, Acquire).is_ok(),
        }
    }
}
