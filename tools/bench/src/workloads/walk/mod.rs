//! `walk`: blocks of 1 byte to 64 MiB, freed in five orders by 1 to 64 threads.
//!
//! The other cases of allocators show what was known to matter. These look for a size, an order or
//! a number of threads at which an allocator is slow, or keeps much memory. A cell is one of each;
//! `figures::walk` makes one table of all cells.
//!
//! As in `alloc`, each slice is a process of its own. It measures a cell's time and its peak of
//! resident memory for one contender.

mod cell;
mod orders;
mod ring;

use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

pub(crate) use self::cell::Cell;
use super::{Measured, Setting, child_spec::ChildSpec};
use crate::{
    children,
    contenders::allocators,
    cpus::Cpus,
    metric::{PEAK_BYTES, TIME_PER_OP},
};

/// The hidden subcommand that a child is started with.
pub(crate) const CHILD: &str = "walk-child";

/// The rounds of a cell unless others are requested: a whole walk takes a quarter of an hour.
pub(crate) const ROUNDS: u32 = 3;

/// Reads the argument of a child.
pub(crate) fn parse_child(text: &str) -> Result<ChildSpec, String> {
    ChildSpec::parse(text, |spec| {
        Cell::find(&spec.case).map(|cell| cell.info().contenders.contains(&spec.contender))
    })
}

/// The answer of a child.
#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    /// The time of allocating a block, touching it and freeing it.
    block_ns: f64,
    peak_bytes: u64,
}

/// Makes a child's measurement, and returns its answer as JSON.
pub(crate) fn child(spec: &ChildSpec) -> Result<String> {
    let cell = Cell::find(&spec.case).expect("`parse_child` has looked it up");
    let cpus = &Cpus::allowed()?;
    let answer = allocators::dispatch!(spec.contender, A => {
        orders::measure::<A>(cpus, cell, spec.threads, spec.length)
    })?;
    Ok(serde_json::to_string(&answer)?)
}

/// Measures one contender in a child.
pub(crate) fn measure(cell: Cell, setting: &Setting<'_>) -> Measured {
    let (contender, threads, length) = (setting.contender, setting.threads, setting.length);
    let spec = ChildSpec { case: cell.name().to_owned(), contender, threads, length };
    // A slow contender may need some of the extra two minutes to begin and to end.
    let patience = length * 2 + Duration::from_secs(120);
    let Answer { block_ns, peak_bytes } = children::ask(CHILD, &spec, patience)?;
    Ok(vec![TIME_PER_OP.reads(block_ns), PEAK_BYTES.reads(peak_bytes as f64)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contenders::Name;

    fn spec(cell: &str, contender: Name, threads: usize) -> ChildSpec {
        let (case, length) = (cell.to_owned(), Duration::from_millis(5));
        ChildSpec { case, contender, threads, length }
    }

    #[test]
    fn child_specs_parse_back_and_bad_ones_are_refused() {
        let text = |spec: &ChildSpec| serde_json::to_string(spec).unwrap();
        let good = spec("64-lifo", Name::Glibc, 8);
        assert_eq!(parse_child(&text(&good)), Ok(good));
        for bad in [
            spec("65-lifo", Name::Glibc, 8),
            spec("64-filo", Name::Glibc, 8),
            spec("64-lifo", Name::SlubTid, 8),
            spec("64-lifo", Name::Nothing, 8),
            spec("64-lifo", Name::Glibc, 0),
        ] {
            parse_child(&text(&bad)).unwrap_err();
        }
        parse_child("64-lifo").unwrap_err();
    }

    #[test]
    fn children_measure_every_contender_in_every_order() {
        for cell in Cell::ALL.into_iter().filter(|cell| [16, 4 << 20].contains(&cell.size())) {
            for &name in cell.info().contenders.iter().filter(|name| name.available().is_ok()) {
                // More threads than CPUs, and one that passes blocks to itself.
                for threads in [1, 2, 5] {
                    let answer = child(&spec(cell.name(), name, threads)).unwrap();
                    let answer: Answer = serde_json::from_str(&answer).unwrap();
                    assert!(answer.block_ns > 0.0, "{cell:?} {name} {threads}: {answer:?}");
                }
            }
        }
    }

    // A process of its own: other tests leave memory behind that blocks would use again.
    #[test]
    fn peak_has_all_blocks_that_are_live_at_once() {
        const ALONE: &str = "THISCPU_TEST_ALONE";
        let name = "workloads::walk::tests::peak_has_all_blocks_that_are_live_at_once";
        if std::env::var_os(ALONE).is_none() {
            let program = std::env::current_exe().unwrap();
            let mut alone = std::process::Command::new(program);
            let output = alone.args(["--exact", name]).env(ALONE, "1").output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
            return;
        }
        let answer = child(&spec("65536-peak", Name::Glibc, 2)).unwrap();
        let answer: Answer = serde_json::from_str(&answer).unwrap();
        // The counters lag.
        assert!((24 << 20..64 << 20).contains(&answer.peak_bytes), "{answer:?}");
    }
}
