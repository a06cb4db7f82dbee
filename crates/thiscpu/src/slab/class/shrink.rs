//! Shrinking: taking what lanes and barns hold.

use super::Handle;
use super::group::Group;
use crate::section::Access;
use crate::slab::backend::Backend;
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
    fn run(self) -> bool {
        match self {
            Fence::Any => fence::try_fence().is_ok(),
            Fence::Membarrier => fence::by_membarrier(),
        }
    }

    /// Whether it is to be tried.
    fn is_possible(self) -> bool {
        self == Fence::Any || !fence::is_membarrier_denied()
    }
}

impl Group {
    /// Empties lanes and barns of several of its classes: `class` says which, by numbers below `N`, and the same whenever it is asked. The
    /// gate is closed once for all of them, and there is one fence; none of either where nothing is in any lane.
    pub fn shrink<'a, A: Access, const N: usize>(
        &'a self,
        class: impl Fn(usize) -> Option<Handle<'a, A>>,
        fence: Fence,
    ) {
        self.flush_lanes_to::<A, N>(class, fence, |backend, sheaves| {
            // Others may shrink, or begin to use another class, meanwhile.
            backend.flush_barns(core::iter::from_fn(|| sheaves.pop()));
        });
    }

    /// The same for lanes only, whose sheaves go to the barns as if they had been traded. Sheaves begin small again.
    pub fn flush_lanes_to_barns<'a, A: Access, const N: usize>(
        &'a self,
        class: impl Fn(usize) -> Option<Handle<'a, A>>,
        fence: Fence,
    ) {
        self.flush_lanes_to::<A, N>(class, fence, |backend, sheaves| {
            // In turn, so that what came from many lanes does not overflow one barn.
            let rest = core::iter::from_fn(|| sheaves.pop()).enumerate();
            rest.for_each(|(turn, sheaf)| backend.put(sheaf, turn));
            backend.reset_capacity();
        });
    }

    /// Empties lanes, and has `each` put away what was in those of a class.
    fn flush_lanes_to<'a, A: Access, const N: usize>(
        &'a self,
        class: impl Fn(usize) -> Option<Handle<'a, A>>,
        fence: Fence,
        each: impl Fn(&'static Backend, &SheafList),
    ) {
        let sheaves = [const { SheafList::new() }; N];
        self.flush_lanes(&class, fence, &sheaves);
        for (number, sheaves) in sheaves.iter().enumerate() {
            if let Some((class, backend)) = class(number).and_then(Handle::used) {
                each(backend, sheaves);
                class.destroy_all_retired();
            }
        }
    }

    /// Takes the sheaves out of all lanes, and what is hot.
    fn flush_lanes<'a, A: Access, const N: usize>(
        &'a self,
        class: &impl Fn(usize) -> Option<Handle<'a, A>>,
        fence: Fence,
        sheaves: &[SheafList; N],
    ) {
        let _guard = self.lock.lock();
        let seen = self.gate.load();
        let Some(item) = seen.item() else { return };
        // What comes into a lane from here on comes after this.
        let held: [Option<(Handle<'a, A>, &'static Backend)>; N] = core::array::from_fn(|number| {
            class(number).and_then(Handle::used).filter(|(class, _)| class.has_cached(item))
        });
        let held = || {
            let with_lists = held.iter().zip(sheaves);
            with_lists
                .filter_map(|(held, list)| held.map(|(class, backend)| (class, backend, list)))
        };
        let has_sections = startup::tier_or_panic() != Tier::Atomic;
        if held().next().is_none() || (has_sections && !fence.is_possible()) {
            return;
        }
        self.gate.set(seen.closed());
        self.unpublish();
        let is_fenced = has_sections && fence.run();
        held().for_each(|(class, backend, sheaves)| {
            class.flush_lanes(item, is_fenced, backend, sheaves);
        });
        if has_sections {
            self.gate.set(seen.opened(item));
        }
    }
}

impl<A: Access> Handle<'_, A> {
    /// Empties lanes and barns.
    pub fn shrink(self) {
        self.group.shrink::<A, 1>(|_| Some(self), Fence::Any);
    }

    /// It and its backend, if it was ever used.
    fn used(self) -> Option<(Self, &'static Backend)> {
        Some((self, self.class.backend_if_used()?))
    }

    /// Whether any lane holds a sheaf, or has something hot.
    fn has_cached(self, item: usize) -> bool {
        Lane::all(item, self.cell).any(|lane| !lane.is_empty())
    }

    /// Takes the sheaves out of all lanes, and what is hot, while the gate is closed. Under the group's lock.
    fn flush_lanes(
        self,
        item: usize,
        is_fenced: bool,
        backend: &'static Backend,
        sheaves: &SheafList,
    ) {
        let has_sections = startup::tier_or_panic() != Tier::Atomic;
        for lane in Lane::all(item, self.cell) {
            let is_locked = !has_sections || lane.number() == 0;
            // What is under a lock may be waited for: nobody who has it waits for this.
            let _guard = is_locked.then(|| lane.lock().lock());
            if is_locked || is_fenced {
                let both = [lane.main().swap(None), lane.spare().swap(None)];
                both.into_iter().flatten().for_each(|sheaf| sheaves.push(sheaf));
                if let Some(encoded) = lane.take_hot() {
                    add(backend, lane, encoded, sheaves);
                }
            }
        }
    }
}

/// Adds an entry to a list of sheaves; to its slab if there is no memory for another sheaf.
fn add(backend: &'static Backend, lane: Lane, encoded: usize, sheaves: &SheafList) {
    let sheaf = match sheaves.pop() {
        Some(first) if !first.is_full() => Some(first),
        full => {
            full.into_iter().for_each(|sheaf| sheaves.push(sheaf));
            backend.empty_sheaf(lane.number())
        }
    };
    match sheaf {
        Some(mut sheaf) => {
            sheaf.push(encoded);
            sheaves.push(sheaf);
        }
        None => backend.free_object(encoded),
    }
}
