//! Lists of columns and of regions, linked through the headers of regions.
//!
//! Holders of the regions' lock access them, so all accesses are relaxed. A fork may find a list in
//! the middle of a change; then the child builds all lists again (see `recover`).

use crate::sys::atomic::{AtomicUsize, Ordering::Relaxed};

/// The links of one member, in the header of a region; zeros while it is in no list.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Links {
    next: AtomicUsize,
    previous: AtomicUsize,
}

/// A circular list. Each member is in at most one list.
pub(super) struct List {
    first: AtomicUsize,
}

impl Links {
    pub(super) fn address(&self) -> usize {
        core::ptr::from_ref(self) as usize
    }

    fn at(address: usize) -> Option<&'static Links> {
        // SAFETY: the address is 0 or that of links in the header of a region, because nothing else
        // is pushed. Headers are never unmapped.
        unsafe { (address as *const Links).as_ref() }
    }

    pub(super) fn is_linked(&self) -> bool {
        self.next.load(Relaxed) != 0
    }

    /// Forgets which list this is in. The caller forgets the list too.
    pub(super) fn reset(&self) {
        self.set(0, 0);
    }

    fn set(&self, next: usize, previous: usize) {
        self.next.store(next, Relaxed);
        self.previous.store(previous, Relaxed);
    }
}

impl List {
    pub(super) const fn new() -> List {
        List { first: AtomicUsize::new(0) }
    }

    pub(super) fn first(&self) -> Option<&'static Links> {
        Links::at(self.first.load(Relaxed))
    }

    pub(super) fn last(&self) -> Option<&'static Links> {
        Links::at(self.first()?.previous.load(Relaxed))
    }

    /// Returns all members, the first one first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &'static Links> {
        let first = self.first.load(Relaxed);
        core::iter::successors(Links::at(first), move |links| {
            Links::at(links.next.load(Relaxed)).filter(|next| next.address() != first)
        })
    }

    /// Adds a member that is in no list, as the first one.
    pub(super) fn push(&self, links: &'static Links) {
        let me = links.address();
        match (self.first(), self.last()) {
            (Some(first), Some(last)) => {
                links.set(first.address(), last.address());
                last.next.store(me, Relaxed);
                first.previous.store(me, Relaxed);
            }
            _ => links.set(me, me),
        }
        self.first.store(me, Relaxed);
    }

    /// Removes a member.
    pub(super) fn remove(&self, links: &'static Links) {
        let (me, next) = (links.address(), links.next.load(Relaxed));
        let rest = if next == me { 0 } else { next };
        if let (Some(next), Some(previous)) =
            (Links::at(rest), Links::at(links.previous.load(Relaxed)))
        {
            previous.next.store(rest, Relaxed);
            next.previous.store(previous.address(), Relaxed);
        }
        if self.first.load(Relaxed) == me {
            self.first.store(rest, Relaxed);
        }
        links.reset();
    }

    /// Forgets all members. The caller resets their links.
    pub(super) fn clear(&self) {
        self.first.store(0, Relaxed);
    }
}
