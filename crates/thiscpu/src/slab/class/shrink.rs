//! Shrinking: taking what lanes and barns hold.

use super::Handle;
use super::group::Group;
use crate::section::Access;
use crate::slab::backend::Backend;
use crate::slab::lane::CacheCell;
use crate::slab::lane::sheaf::SheafList;
use crate::sys::fence;
use crate::sys::startup;
use crate::tier::Tier;

/// The fence by which a thread takes sheaves out of lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// Any fence. Where membarrier is denied, the calling thread runs on every CPU.
    Any,
    /// Only membarrier, and only if it was never denied; else lanes keep what they hold.
    ///
    /// For shrinking that the program did not ask for. A sandbox may end the process for a system
    /// call that the program never makes.
    Membarrier,
}

impl Fence {
    /// Runs the fence; returns whether it succeeded.
    fn run(self) -> bool {
        match self {
            Fence::Any => fence::try_fence().is_ok(),
            Fence::Membarrier => fence::by_membarrier(),
        }
    }

    /// Returns whether the fence is worth a try.
    fn is_possible(self) -> bool {
        self == Fence::Any || !fence::is_membarrier_denied()
    }
}

impl Group {
    /// Flushes lanes and barns of several classes of the group to the slabs.
    ///
    /// `class` returns the class of each number below `N`, the same one each time. The gate is
    /// closed once for all of them, and there is one fence. If no lane holds anything, there is
    /// neither.
    pub fn shrink<'a, A: Access, const N: usize>(
        &'a self,
        class: impl Fn(usize) -> Option<Handle<'a, A>>,
        fence: Fence,
    ) {
        self.flush_lanes_to::<A, N>(class, fence, |backend, sheaves| {
            // Other threads may shrink, or begin to use another class, meanwhile.
            backend.flush_barns(core::iter::from_fn(|| sheaves.pop()));
        });
    }

    /// Flushes lanes of several classes to the barns, as if each sheaf had been traded.
    ///
    /// New sheaves are small again. `class` is as for [`shrink`](Group::shrink).
    pub fn flush_lanes_to_barns<'a, A: Access, const N: usize>(
        &'a self,
        class: impl Fn(usize) -> Option<Handle<'a, A>>,
        fence: Fence,
    ) {
        self.flush_lanes_to::<A, N>(class, fence, |backend, sheaves| {
            // To all barns in turn, so that the sheaves of many lanes do not overflow one of them.
            let rest = core::iter::from_fn(|| sheaves.pop()).enumerate();
            rest.for_each(|(lane, sheaf)| backend.put(sheaf, lane));
            backend.reset_capacity();
        });
    }

    /// Flushes lanes, and hands the sheaves of each class to `each`.
    fn flush_lanes_to<'a, A: Access, const N: usize>(
        &'a self,
        class: impl Fn(usize) -> Option<Handle<'a, A>>,
        fence: Fence,
        each: impl Fn(&'static Backend, &SheafList),
    ) {
        let sheaves = [const { SheafList::new() }; N];
        self.flush_lanes(&class, fence, &sheaves);
        for (number, sheaves) in sheaves.iter().enumerate() {
            if let Some((class, backend)) = class(number).and_then(Handle::with_backend) {
                each(backend, sheaves);
                class.destroy_all_retired();
            }
        }
    }

    /// Takes the sheaves, and the hot objects, out of all lanes.
    fn flush_lanes<'a, A: Access, const N: usize>(
        &'a self,
        class: &impl Fn(usize) -> Option<Handle<'a, A>>,
        fence: Fence,
        sheaves: &[SheafList; N],
    ) {
        let _guard = self.lock.lock();
        let seen = self.gate.load();
        let Some(item) = seen.item() else { return };
        // This list is computed again after the fence, because a group may have hundreds of
        // classes, too many for the stack. An object that a thread puts into a lane meanwhile was
        // freed after this call began.
        let held = || {
            let used = sheaves.iter().enumerate().filter_map(|(number, list)| {
                let (class, backend) = class(number)?.with_backend()?;
                Some((class, backend, list))
            });
            used.filter(|(class, ..)| class.has_cached(item))
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
    /// Flushes lanes and barns to the slabs.
    pub fn shrink(self) {
        self.group.shrink::<A, 1>(|_| Some(self), Fence::Any);
    }

    /// Returns the handle and the backend, if the class was ever used.
    fn with_backend(self) -> Option<(Self, &'static Backend)> {
        Some((self, self.class.backend_if_used()?))
    }

    fn has_cached(self, item: usize) -> bool {
        CacheCell::all(item, self.cell).any(|lane| !lane.is_empty())
    }

    /// Takes sheaves and hot objects out of all lanes, while the gate is closed.
    ///
    /// The caller holds the group's lock. `is_fenced` says that no section is in a lane.
    fn flush_lanes(
        self,
        item: usize,
        is_fenced: bool,
        backend: &'static Backend,
        sheaves: &SheafList,
    ) {
        let has_sections = startup::tier_or_panic() != Tier::Atomic;
        for lane in CacheCell::all(item, self.cell) {
            let is_locked = !has_sections || lane.number() == 0;
            // Blocks: a holder of a lane's lock never waits for the group's lock.
            let _guard = is_locked.then(|| lane.lock().lock());
            if is_locked || is_fenced {
                let both = [lane.main(), lane.spare()].map(|slot| self.swap(lane, slot, None));
                both.into_iter().flatten().for_each(|sheaf| sheaves.push(sheaf));
                if let Some(encoded) = lane.take_hot() {
                    add_to_list(backend, lane, encoded, sheaves);
                }
            }
        }
    }
}

/// Adds a pointer to a list of sheaves, or frees it into its slab without memory for a sheaf.
fn add_to_list(backend: &'static Backend, lane: CacheCell, encoded: usize, sheaves: &SheafList) {
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
