//! All runs of one call: each program in its directory, and each result compared with the expected
//! one.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use super::allocator::Allocator;
use super::measure::{self, Cost};
use super::program::Program;
use super::results;
use super::run::{self, Run, Scale};
use super::series::Series;

pub(super) struct Trial {
    /// The directory of all programs' directories.
    ///
    /// Each has the inputs, the expected run, and failed runs.
    directory: PathBuf,
    scale: Scale,
    /// The programs that failed, and the allocators or steps.
    failed: Vec<(Program, String)>,
}

impl Trial {
    pub(super) fn new(directory: PathBuf, scale: Scale) -> Trial {
        Trial { directory, scale, failed: Vec::new() }
    }

    /// Makes the inputs and expected results of each program.
    pub(super) fn prepare(&mut self, programs: &[Program]) {
        for &program in programs {
            eprintln!("{program}: preparing inputs and expected results");
            if let Err(error) = self.prepare_one(program) {
                self.fail(program, "expected results".to_owned(), &error);
            }
        }
    }

    fn prepare_one(&self, program: Program) -> Result<()> {
        let directory = self.of(program);
        if directory.exists() {
            fs::remove_dir_all(&directory)?;
        }
        let inputs = self.inputs(program);
        fs::create_dir_all(&inputs).with_context(|| inputs.display().to_string())?;
        (program.parts().prepare)(&inputs, self.scale)?;
        let run = Run::new(directory.join(EXPECTED), inputs, self.scale, &Allocator::SYSTEM)?;
        (program.parts().run)(&run)?;
        Ok(())
    }

    /// Runs each program on each allocator, and returns the number of rounds too.
    ///
    /// There are at most `rounds` rounds. No round starts that would end after `limit`, except the
    /// first one. A program that fails on an allocator has no further rounds on it.
    pub(super) fn rounds(
        &mut self,
        programs: &[Program],
        allocators: &[Allocator],
        rounds: u32,
        limit: Duration,
    ) -> (Vec<Series>, u32) {
        let ready: Vec<_> = programs.iter().filter(|program| !self.has_failed(**program)).collect();
        let mut order: Vec<_> = allocators.iter().collect();
        let pairs =
            ready.iter().flat_map(|&&program| allocators.iter().map(move |on| (program, on)));
        let mut series: Vec<_> = pairs
            .map(|(program, on)| Series { program, allocator: on.choice, costs: Vec::new() })
            .collect();
        let began = Instant::now();
        for round in 0..rounds as usize {
            let each = began.elapsed().checked_div(round as u32).unwrap_or_default();
            if round > 0 && began.elapsed() + each > limit {
                eprintln!("no further rounds: the next one would end after {limit:?}");
                return (series, round as u32);
            }
            for &&program in &ready {
                eprintln!("round {} of {rounds}: {program}", round + 1);
                for allocator in &order {
                    let is_this = |one: &&mut Series| {
                        (one.program, one.allocator) == (program, allocator.choice)
                    };
                    // A series that failed has fewer runs than there were rounds.
                    let due = series.iter_mut().find(is_this);
                    let Some(one) = due.filter(|one| one.costs.len() == round) else { continue };
                    match self.run(program, allocator) {
                        Ok(cost) => one.costs.push(cost),
                        Err(error) => self.fail(program, allocator.choice.to_string(), &error),
                    }
                }
            }
            // It is empty if all requested allocators are missing.
            if !order.is_empty() {
                order.rotate_left(1);
            }
        }
        (series, rounds)
    }

    /// Runs a program once, and checks that the results are as expected.
    fn run(&self, program: Program, allocator: &Allocator) -> Result<Cost> {
        let directory = self.of(program).join(allocator.choice.to_string());
        let run = Run::new(directory, self.inputs(program), self.scale, allocator)?;
        let cost = (program.parts().run)(&run)?;
        let expected = self.of(program).join(EXPECTED).join(run::RESULTS);
        if let Some(difference) = results::difference(&expected, &run.results())? {
            bail!("its results are not the expected ones: {difference}");
        }
        fs::remove_dir_all(&run.directory)?;
        self.check_peak(cost)?;
        Ok(cost)
    }

    /// Checks that the peak is the program's own.
    ///
    /// The kernel reports at least the peak of this process.
    fn check_peak(&self, cost: Cost) -> Result<()> {
        let (peak, own) = (cost.peak_bytes, measure::peak_bytes(std::process::id())?);
        ensure!(
            self.scale == Scale::Quick || peak > own,
            "its peak of {} KiB is not above that of this task, {} KiB; give it more work",
            peak >> 10,
            own >> 10
        );
        Ok(())
    }

    fn fail(&mut self, program: Program, on: String, error: &anyhow::Error) {
        eprintln!("{program}, {on}: {error:#}");
        self.failed.push((program, on));
    }

    fn has_failed(&self, program: Program) -> bool {
        self.failed.iter().any(|failed| failed.0 == program)
    }

    /// Checks that no run failed. Keeps the directories of programs that failed.
    pub(super) fn verdict(&self, programs: &[Program]) -> Result<()> {
        for &program in programs.iter().filter(|program| !self.has_failed(**program)) {
            fs::remove_dir_all(self.of(program))?;
        }
        let failed: Vec<_> =
            self.failed.iter().map(|(program, on)| format!("{program}, {on}")).collect();
        ensure!(failed.is_empty(), "failed: {}", failed.join("; "));
        Ok(())
    }

    fn of(&self, program: Program) -> PathBuf {
        self.directory.join(program.to_string())
    }

    fn inputs(&self, program: Program) -> PathBuf {
        self.of(program).join("inputs")
    }
}

/// The directory of the expected run.
const EXPECTED: &str = "expected";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app_bench::allocator::Choice;
    use crate::tools;

    #[test]
    fn different_results_are_a_failure_and_are_kept() {
        let sh = xshell::Shell::new().unwrap();
        if !tools::are_here(&sh, "a test of app-bench", Program::Perl.parts().tools).unwrap() {
            return;
        }
        let directory = sh.create_temp_dir().unwrap();
        let mut trial = Trial::new(directory.path().to_owned(), Scale::Quick);
        let perl = &[Program::Perl];
        trial.prepare(perl);
        // The loader prints an error to standard error, which is a result.
        let library = Some("/nowhere/malloc.so".into());
        let bad = Allocator { choice: Choice::Jemalloc, library, version: None };
        let why = trial.run(Program::Perl, &bad).unwrap_err().to_string();
        for kept in ["perl/jemalloc/results", "perl/expected/results"] {
            let kept = directory.path().join(kept);
            assert!(kept.join("stdout").exists());
            assert!(why.contains(&kept.join("stderr").display().to_string()), "{why}");
        }
        let (series, rounds) = trial.rounds(perl, &[Allocator::SYSTEM, bad], 2, Duration::MAX);
        assert_eq!(rounds, 2);
        // The allocator that failed is not run again; the other one is.
        assert_eq!(series.iter().map(|one| one.costs.len()).collect::<Vec<_>>(), [2, 0]);
        let (series, rounds) = trial.rounds(&[], &[], 2, Duration::ZERO);
        assert_eq!((series.len(), rounds), (0, 1), "there is always one round");
        let verdict = trial.verdict(perl).unwrap_err().to_string();
        assert_eq!(verdict, "failed: perl, jemalloc");
        assert!(!directory.path().join("perl/system").exists());
    }
}
