//! The countdowns of malloc's group, which has several classes: see [`Countdown`].

use super::group::Group;
use crate::lanes::current;
use crate::slab::lane::CacheCell;
use crate::slab::lane::countdown::Countdown;

impl Group {
    /// Returns the countdown of the lane that the calling thread was last seen on.
    ///
    /// `None` if the group has no lanes yet, or the thread has none.
    #[inline]
    pub fn countdown(&self) -> Option<&'static Countdown> {
        let item = self.gate.load().item()?;
        let entry = current::entry();
        (entry != 0).then(|| CacheCell::from_entry(item, 0, entry).countdown())
    }

    /// Lets at most `most` allocations of each lane take the fast path.
    pub fn lower_countdowns(&self, most: u32) {
        if let Some(item) = self.gate.load().item() {
            let lanes = CacheCell::all(item, 0).skip(1);
            lanes.for_each(|lane| lane.countdown().lower(most));
        }
    }
}
