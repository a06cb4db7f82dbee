//! Series in a static, for the model, which has no files.

use super::chain::{Chain, Link, Nodes};
use crate::segment::lanes::removable::{RemovableBank, Removed};
use crate::segment::lanes::sums::{self, Lanes, Removable};
use crate::sys::Host;
use crate::sys::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use crate::sys::double::Double;
use crate::sys::machine::Machine as _;
use crate::tier::Tier;

/// Series that are found by a number, with records for `RECORDS` of them.
///
/// Names below 100 have one chain, the others another.
#[derive(Debug)]
pub struct SharedNames<const RECORDS: usize, const LANES: usize> {
    epoch: AtomicU64,
    buckets: [AtomicU64; 2],
    /// The offsets of records that may be used, or 0.
    free: [AtomicU64; RECORDS],
    nodes: [Double; RECORDS],
    names: [AtomicU64; RECORDS],
    banks: [[[RemovableBank; 2]; RECORDS]; LANES],
}

/// No record is left, or a chain is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

impl<const RECORDS: usize, const LANES: usize> Nodes for SharedNames<RECORDS, LANES> {
    type Error = NoRoom;

    fn node(&self, at: u64) -> Result<&Double, NoRoom> {
        Ok(&self.nodes[number(at)])
    }

    fn damaged(&self) -> NoRoom {
        panic!("a chain is damaged");
    }
}

fn number(at: u64) -> usize {
    (at / 64 - 1) as usize
}

impl<const RECORDS: usize, const LANES: usize> SharedNames<RECORDS, LANES> {
    const ZERO: AtomicU64 = AtomicU64::new(0);
    const BANKS: [RemovableBank; 2] = [const { RemovableBank::new() }; 2];

    /// Creates series without names.
    pub const fn new() -> Self {
        let mut free = [Self::ZERO; RECORDS];
        let mut record = 0;
        while record < RECORDS {
            free[record] = AtomicU64::new(64 * (record as u64 + 1));
            record += 1;
        }
        SharedNames {
            epoch: Self::ZERO,
            buckets: [Self::ZERO, Self::ZERO],
            free,
            nodes: [const { Double::new([0, 0]) }; RECORDS],
            names: [const { Self::ZERO }; RECORDS],
            banks: [const { [const { Self::BANKS }; RECORDS] }; LANES],
        }
    }

    fn chain(&self, name: u64) -> Chain<'_, Self> {
        Chain { bucket: &self.buckets[usize::from(name >= 100)], nodes: self, nodes_max: RECORDS }
    }

    fn lanes(&self) -> Lanes<RemovableBank> {
        let stride = size_of::<[[RemovableBank; 2]; RECORDS]>();
        // SAFETY: the banks of all records lie side by side in each lane, as long as `self` lives.
        unsafe { Lanes::new((&raw const self.banks).cast(), stride, LANES as u32) }
    }

    fn is_name(&self, link: Link, name: u64) -> Result<bool, NoRoom> {
        // Relaxed: the link acquired the record.
        Ok(self.names[number(link.at())].load(Relaxed) == name)
    }

    fn counter(link: Link) -> Removable {
        Removable { number: number(link.at()), generation: link.generation() }
    }

    fn take(&self, name: u64) -> Result<u64, NoRoom> {
        let take = |word: &AtomicU64| {
            let at = word.load(Relaxed);
            // Acquire: pairs with the Release in `give_back`.
            (at != 0 && word.compare_exchange(at, 0, Acquire, Relaxed).is_ok()).then_some(at)
        };
        let at = self.free.iter().find_map(take).ok_or(NoRoom)?;
        // Relaxed: the exchange of the bucket releases it.
        self.names[number(at)].store(name, Relaxed);
        Ok(at)
    }

    fn give_back(&self, at: u64) {
        // Release: pairs with the Acquire in `take`.
        self.free[number(at)].store(at, Release);
    }

    /// Adds to the series of a name, which it inserts if there is none.
    ///
    /// # Errors
    ///
    /// If there is no record.
    pub fn add(&self, name: u64, n: i64) -> Result<(), NoRoom> {
        loop {
            let mut own = None;
            let make = || self.take(name).inspect(|&at| own = Some(at));
            let link = self.chain(name).find_or_insert(|link| self.is_name(link, name), make)?;
            if let Some(own) = own.filter(|&own| own != link.at()) {
                self.give_back(own);
            }
            let lane = Host::index(Tier::Atomic).unwrap_or(0) as u32 % LANES as u32;
            match self.lanes().add_to(Self::counter(link), &self.epoch, lane, n) {
                Ok(()) => return Ok(()),
                Err(Removed) => {}
            }
        }
    }

    /// Removes the series of a name, and returns its last value.
    pub fn remove(&self, name: u64) -> Option<i64> {
        let chain = self.chain(name);
        let link = chain.find(|link| self.is_name(link, name)).ok()??;
        if !chain.remove(link).ok()? {
            return None;
        }
        let last = self.lanes().remove(Self::counter(link));
        chain.unlink().ok()?;
        self.give_back(link.at());
        Some(last.expect("nobody else has the record yet"))
    }

    /// Returns the values of some names at one instant; `None` for names without a series.
    pub fn sum<const N: usize>(&self, names: [u64; N]) -> [Option<i64>; N] {
        loop {
            let find = |name| self.chain(name).find(|link| self.is_name(link, name)).ok().flatten();
            let links = names.map(find);
            let counters: Vec<_> = links.iter().flatten().copied().map(Self::counter).collect();
            let mut values = vec![None; counters.len()];
            let lanes = self.lanes();
            if sums::sum_removable(1, &self.epoch, lanes, &counters, &mut values) {
                let mut values = values.into_iter();
                return links.map(|link| link.and_then(|_| values.next().flatten()));
            }
        }
    }
}
