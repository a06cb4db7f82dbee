//! The workloads, each in a file or folder of its own.

use std::time::Duration;

use anyhow::ensure;

use crate::{
    contenders::{Name, Padded, counters::Contender},
    cpus::Cpus,
    metric::{Reading, TIME_PER_OP},
    named::named_enum,
    progress::Progress,
    slice::{self, Slice},
};

pub(crate) mod add;
pub(crate) mod alloc;
pub(crate) mod budget;
pub(crate) mod child_spec;
pub(crate) mod commit;
pub(crate) mod fault;
pub(crate) mod ledger;
pub(crate) mod lifetime;
pub(crate) mod memory;
pub(crate) mod metrics;
pub(crate) mod rate;
pub(crate) mod shared;
pub(crate) mod shared_limit;
pub(crate) mod slowdown;
pub(crate) mod threshold;
pub(crate) mod token;
pub(crate) mod tower;
pub(crate) mod walk;

named_enum! {
    /// A workload: one or several cases.
    enum Workload, "workload" {
        Add "add" "Every thread adds 1 to one counter",
        Commit "commit" "Memory is mapped and unmapped, and its pages are counted",
        Sum "sum" "One thread sums a counter while others add",
        Threshold "threshold" "Every thread compares a counter with a limit near its value",
        Memory "memory" "Memory of many counters, or accounts",
        Lifetime "lifetime" "Counters are made, used and dropped",
        Budget "budget" "Blocks are allocated up to a shared limit, and freed",
        Fault "fault" "Page faults are charged to an account",
        Ledger "ledger" "Accounts of many owners are charged",
        Metrics "metrics" "Metrics are incremented and scraped",
        Shared "shared" "Processes add to one counter, or share a limit",
        Tower "tower" "Tasks send requests to a service below a layer that limits them",
        Rate "rate" "Calls are admitted or refused by a limit on calls a second",
        Alloc "alloc" "Objects are allocated and freed; each slice is a process of its own",
        Walk "walk" "Blocks of many sizes are freed in many orders by many threads, in one table",
    }
}

pub(crate) struct Info {
    pub(crate) workload: Workload,
    /// The case's name within its workload; empty if that has only one.
    pub(crate) name: &'static str,
    pub(crate) threads: Threads,
    pub(crate) contenders: &'static [Name],
    /// The description: a phrase without a full stop.
    pub(crate) what: &'static str,
}

/// The numbers of threads that a case runs with.
#[derive(Clone, Copy)]
pub(crate) enum Threads {
    /// These, unless others are requested.
    Default(&'static [usize]),
    /// This one, whatever is requested.
    Fixed(usize),
}

/// The conditions under which one contender is measured once.
pub(crate) struct Setting<'a> {
    pub(crate) contender: Name,
    pub(crate) cpus: &'a Cpus,
    pub(crate) threads: usize,
    pub(crate) round: u32,
    pub(crate) length: Duration,
    /// The number of sums that `sum token` takes at least, within 50 times its length.
    pub(crate) sums_min: u64,
    /// The number of calls that an audit checks at least.
    pub(crate) audited_min: u64,
    /// Whether the run is too short for figures; then there are fewer counters and accounts.
    pub(crate) is_trial: bool,
    pub(crate) progress: &'a Progress,
}

impl Setting<'_> {
    /// Runs a slice in which nothing but the operations happens.
    pub(crate) fn slice<Op: FnMut() -> anyhow::Result<()>>(
        &self,
        step: u32,
        prepare: impl Fn(usize) -> Op + Sync,
    ) -> anyhow::Result<Slice<()>> {
        slice::run(self.cpus, self.threads, step, prepare, || slice::sleep(self.length))
    }
}

/// The result of measuring one contender once: a value for each of the case's metrics.
pub(crate) type Measured = anyhow::Result<Vec<Reading>>;

/// Makes the counter of a slice, on cache lines that it shares with nothing of the workload.
pub(crate) fn shared_counter<C: Contender>() -> anyhow::Result<Padded<C>> {
    C::try_new().map(Padded::new)
}

/// Measures an add of `n` and its subtraction, with `work` in between.
///
/// It checks the stop flag after `step` of them.
#[inline(always)]
fn plus_and_minus<C: Contender>(
    setting: &Setting<'_>,
    step: u32,
    n: i64,
    work: impl Fn(&C) -> anyhow::Result<()> + Sync,
) -> Measured {
    let counter = shared_counter::<C>()?;
    let prepare = |_| {
        || {
            counter.add(n);
            work(&counter)?;
            counter.add(-n);
            Ok(())
        }
    };
    let slice = setting.slice(step, prepare)?;
    let sum = counter.sum();
    ensure!(sum == 0, "all was subtracted again, but the sum is {sum}");
    Ok(vec![TIME_PER_OP.reads(slice.op_ns()?)])
}
