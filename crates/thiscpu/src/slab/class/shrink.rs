//! Shrinking: taking what lanes and stocks hold.

use super::Handle;
use super::group::Group;
use crate::section::Access;
use crate::slab::backend::Depot;
use crate::slab::lane::Lane;
use crate::slab::lane::sheaf::SheafList;
use crate::sys::fence;
use crate::sys::startup;
use crate::tier::Tier;

/// Which fence is had for taking sheaves out of lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// Any: where membarrier is denied the calling thread runs on every CPU instead.
    Any,
    /// membarrier, unless it was denied before; lanes keep what they have without it. For whom nobody has asked to shrink anything: a
    /// sandbox may end the process for a system call that the program does not expect.
    Membarrier,
}

impl Fence {
    /// Whether it was had.
    fn is_had(self) -> bool {
        match self {
            Fence::Any => fence::try_fence().is_ok(),
            Fence::Membarrier => fence::by_membarrier(),
        }
    }

    /// Whether it is to be tried.
    fn may_be_had(self) -> bool {
        self == Fence::Any || !fence::is_membarrier_denied()
    }
}

impl Group {
    /// Empties lanes and stocks of several of its classes: `class` says which, by numbers below `N`, and the same whenever it is asked. The
    /// gate is closed once for all of them, and there is one fence; none of either where nothing is in any lane.
    pub fn shrink<'a, A: Access, const N: usize>(
        &'a self,
        class: impl Fn(usize) -> Option<Handle<'a, A>>,
        fence: Fence,
    ) {
        self.empty_lanes_to::<A, N>(class, fence, |depot, sheaves| {
            // Others may shrink, or begin to use another class, meanwhile.
            depot.empty_stocks(core::iter::from_fn(|| sheaves.pop()));
        });
    }

    /// The same for lanes only, whose sheaves go to the stocks as if they had been traded. Sheaves begin small again.
    pub fn empty_lanes_to_stocks<'a, A: Access, const N: usize>(
        &'a self,
        class: impl Fn(usize) -> Option<Handle<'a, A>>,
        fence: Fence,
    ) {
        self.empty_lanes_to::<A, N>(class, fence, |depot, sheaves| {
            // In turn, so that what came from many lanes does not overflow one stock.
            let rest = core::iter::from_fn(|| sheaves.pop()).enumerate();
            rest.for_each(|(turn, sheaf)| depot.put(sheaf, turn));
            depot.begin_small();
        });
    }

    /// Empties lanes, and has `each` put away what was in those of a class.
    fn empty_lanes_to<'a, A: Access, const N: usize>(
        &'a self,
        class: impl Fn(usize) -> Option<Handle<'a, A>>,
        fence: Fence,
        each: impl Fn(&'static Depot, &SheafList),
    ) {
        let sheaves = [const { SheafList::new() }; N];
        self.empty_lanes(&class, fence, &sheaves);
        for (number, sheaves) in sheaves.iter().enumerate() {
            if let Some((class, depot)) = class(number).and_then(Handle::used) {
                each(depot, sheaves);
                class.retire_all();
            }
        }
    }

    /// Takes the sheaves out of all lanes, and what is hot.
    fn empty_lanes<'a, A: Access, const N: usize>(
        &'a self,
        class: &impl Fn(usize) -> Option<Handle<'a, A>>,
        fence: Fence,
        sheaves: &[SheafList; N],
    ) {
        let _guard = self.lock.lock();
        let seen = self.gate.load();
        let Some(item) = seen.item() else { return };
        // What comes into a lane from here on comes after this.
        let held: [Option<(Handle<'a, A>, &'static Depot)>; N] = core::array::from_fn(|number| {
            class(number).and_then(Handle::used).filter(|(class, _)| class.has_in_lanes(item))
        });
        let held = || {
            let with_lists = held.iter().zip(sheaves);
            with_lists.filter_map(|(held, list)| held.map(|(class, depot)| (class, depot, list)))
        };
        let has_sections = startup::tier_or_panic() != Tier::Atomic;
        if held().next().is_none() || (has_sections && !fence.may_be_had()) {
            return;
        }
        self.gate.set(seen.closed());
        self.hide();
        let is_fenced = has_sections && fence.is_had();
        held().for_each(|(class, depot, sheaves)| {
            class.empty_lanes(item, is_fenced, depot, sheaves);
        });
        if has_sections {
            self.gate.set(seen.opened(item));
        }
    }
}

impl<A: Access> Handle<'_, A> {
    /// Empties lanes and stocks.
    pub fn shrink(self) {
        self.group.shrink::<A, 1>(|_| Some(self), Fence::Any);
    }

    /// It and its depot, if it was ever used.
    fn used(self) -> Option<(Self, &'static Depot)> {
        Some((self, self.class.depot_if_used()?))
    }

    /// Whether any lane holds a sheaf, or has something hot.
    fn has_in_lanes(self, item: usize) -> bool {
        Lane::all(item, self.cell).any(|lane| !lane.is_empty())
    }

    /// Takes the sheaves out of all lanes, and what is hot, while the gate is closed. Under the group's lock.
    fn empty_lanes(self, item: usize, is_fenced: bool, depot: &'static Depot, sheaves: &SheafList) {
        let has_sections = startup::tier_or_panic() != Tier::Atomic;
        for lane in Lane::all(item, self.cell) {
            let is_locked = !has_sections || lane.number() == 0;
            // What is under a lock may be waited for: nobody who has it waits for this.
            let _guard = is_locked.then(|| lane.lock().lock());
            if is_locked || is_fenced {
                let both = [lane.main().swap(None), lane.spare().swap(None)];
                both.into_iter().flatten().for_each(|sheaf| sheaves.push(sheaf));
                if let Some(encoded) = lane.take_hot() {
                    add(depot, lane, encoded, sheaves);
                }
            }
        }
    }
}

/// Adds an entry to a list of sheaves; to its slab if there is no memory for another sheaf.
fn add(depot: &'static Depot, lane: Lane, encoded: usize, sheaves: &SheafList) {
    let sheaf = match sheaves.pop() {
        Some(first) if !first.is_full() => Some(first),
        full => {
            full.into_iter().for_each(|sheaf| sheaves.push(sheaf));
            depot.empty(lane.number())
        }
    };
    match sheaf {
        Some(mut sheaf) => {
            sheaf.push(encoded);
            sheaves.push(sheaf);
        }
        None => depot.put_entry(encoded),
    }
}
