//! `memory`: what a million counters take, used from two CPUs.
//!
//! A process's resident size says what they take only if nothing else happened in it, so each
//! measurement is a child process: this program again, told so by [`CHILD_FLAG`].
//!
//! Only contenders whose layout is their own take part. The kernel's designs and the floor are
//! padded arrays here, which says nothing about the layout their authors chose.

use std::{
    fmt, fs, io,
    process::{Command, Stdio},
    str::FromStr,
    thread,
    time::Instant,
};

use anyhow::{Context as _, Result, anyhow, ensure};
use serde::{Deserialize, Serialize};

use super::{Measured, Setting};
use crate::{
    contenders::{
        Name,
        counters::{Contender, for_counter},
    },
    cpus::Cpus,
    metric::{COUNTERS, RESIDENT, RESIDENT_PER_COUNTER, TIME_PER_CREATE},
};

/// The option of `bench`, hidden from users, whose value is an [`Order`] to the child.
pub const CHILD_FLAG: &str = "memory-child";

/// One thread for each of two CPUs.
pub(crate) const THREADS: usize = 2;

/// Adds by each thread to each counter: enough for any design to have spread over both CPUs.
const ADDS: i64 = 600;

/// Who takes part.
pub(crate) const CONTENDERS: [Name; 3] = [Name::Atomic, Name::Striped, Name::ThisCpu];

/// What a child is to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    contender: Name,
    counters: usize,
}

impl Order {
    /// A trial makes a hundredth. A striped counter takes 16 KiB, of which a million would not fit
    /// into most machines; what one takes does not depend on how many there are.
    fn new(contender: Name, is_trial: bool) -> Self {
        let full = if contender == Name::Striped { 5_000 } else { 1_000_000 };
        let counters = if is_trial { full / 100 } else { full };
        Self { contender, counters }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.contender, self.counters)
    }
}

impl FromStr for Order {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (contender, counters) = text.split_once(':').ok_or("want NAME:COUNTERS")?;
        Ok(Self {
            contender: contender.parse()?,
            counters: counters.parse().map_err(|error| format!("{error}"))?,
        })
    }
}

/// What a child reports.
#[derive(Debug, Serialize, Deserialize)]
struct Footprint {
    counters: usize,
    resident_bytes: u64,
    create_ns: u64,
}

/// Does a child's work and returns what it is to print.
///
/// # Errors
///
/// When the contender is unavailable, or a counter's sum is not what was added.
pub fn child(order: Order) -> Result<String> {
    let footprint = for_counter!(order.contender, C => footprint::<C>(order.counters))?;
    Ok(serde_json::to_string(&footprint)?)
}

/// Has a child measure one contender.
pub(crate) fn measure(contender: Name, setting: &Setting<'_>) -> Measured {
    let order = Order::new(contender, setting.is_trial);
    let output = Command::new("/proc/self/exe")
        .args(["bench", &format!("--{CHILD_FLAG}"), &order.to_string()])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start a process to measure memory in")?;
    ensure!(output.status.success(), "the process that measures memory failed: {}", output.status);
    let footprint: Footprint = serde_json::from_slice(&output.stdout)
        .context("cannot read what the process that measures memory printed")?;
    let counters = footprint.counters as f64;
    let resident_bytes = footprint.resident_bytes as f64;
    Ok(vec![
        COUNTERS.reads(counters),
        RESIDENT_PER_COUNTER.reads(resident_bytes / counters),
        RESIDENT.reads(resident_bytes / 1e6),
        TIME_PER_CREATE.reads(footprint.create_ns as f64 / counters),
    ])
}

/// Makes counters, uses each from two CPUs, and sees what has become resident.
fn footprint<C: Contender>(count: usize) -> Result<Footprint> {
    ensure!(count > 0, "no counters to measure");
    let cpus = Cpus::allowed()?;
    let before_bytes = resident_bytes()?;
    let started = Instant::now();
    let mut counters = Vec::with_capacity(count);
    for _ in 0..count {
        counters.push(C::try_new()?);
    }
    let create_ns = started.elapsed().as_nanos() as u64;
    use_from_two_cpus(&counters, &cpus)?;
    let after_bytes = resident_bytes()?;
    for counter in counters.iter().step_by(count.div_ceil(1_000)) {
        let (sum, added) = (counter.sum(), ADDS * THREADS as i64);
        ensure!(sum == added, "{added} was added, but the sum is {sum}");
    }
    Ok(Footprint {
        counters: count,
        resident_bytes: after_bytes.saturating_sub(before_bytes),
        create_ns,
    })
}

/// Adds to every counter from both threads, which begin at opposite ends of the circle so that they
/// seldom meet at one counter.
fn use_from_two_cpus<C: Contender>(counters: &[C], cpus: &Cpus) -> io::Result<()> {
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|index| {
                scope.spawn(move || {
                    cpus.pin(index)?;
                    let (late, early) = counters.split_at(counters.len() * index / THREADS);
                    for counter in early.iter().chain(late) {
                        (0..ADDS).for_each(|_| counter.add(1));
                    }
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
        })
    })
}

/// The memory of this process that is in RAM.
fn resident_bytes() -> Result<u64> {
    let statm = fs::read_to_string("/proc/self/statm").context("cannot read /proc/self/statm")?;
    let pages: u64 = statm
        .split_whitespace()
        .nth(1)
        .ok_or_else(|| anyhow!("/proc/self/statm has no second field"))?
        .parse()?;
    // SAFETY: sysconf takes any name and has no preconditions.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Ok(pages * u64::try_from(page_bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_read_back() {
        for is_trial in [false, true] {
            for contender in CONTENDERS {
                let order = Order::new(contender, is_trial);
                assert_eq!(order.to_string().parse(), Ok(order));
            }
        }
        "thiscpu".parse::<Order>().unwrap_err();
        "nobody:5".parse::<Order>().unwrap_err();
        "thiscpu:many".parse::<Order>().unwrap_err();
    }

    #[test]
    fn a_child_reports_every_contender() {
        for contender in CONTENDERS {
            let order = Order { contender, counters: 20 };
            let report: Footprint = serde_json::from_str(&child(order).unwrap()).unwrap();
            assert_eq!(report.counters, 20);
        }
    }
}
