//! `cargo xtask mutants`: each deliberate break is caught, by the check that is said to catch it.
//!
//! A mutant is a patch `xtask/mutants/AREA/NAME.patch`: a sentence, a line `Caught by: CHECK FILTER`, and
//! the diff. It is applied to a copy of the tree; there the check must build, and then fail. First each check
//! must pass on the copy as it is, or its failures would mean nothing.

mod check;
mod tree;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use xshell::Shell;

use check::{Check, Verdict};
use tree::Tree;

/// Has a directory for each area.
const DIRECTORY: &str = "xtask/mutants";

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only the mutants whose AREA/NAME contains this, or the check that catches them
    filter: Option<String>,
    /// Only part K of N of them, such as 2/3: so that several runs together have had all. All have to fit
    #[arg(long, value_name = "K/N", value_parser = part)]
    part: Option<Part>,
    /// Prints their names and what each breaks, and runs nothing
    #[arg(long)]
    list: bool,
}

/// Which part of the mutants, of how many.
#[derive(Clone, Copy, Debug)]
struct Part {
    number: usize,
    of: usize,
}

fn part(text: &str) -> Result<Part> {
    let (number, of) = text.split_once('/').context("K/N is meant, such as 2/3")?;
    let part = Part { number: number.parse()?, of: of.parse()? };
    ensure!((1..=part.of).contains(&part.number), "there are parts 1 to {}", part.of);
    Ok(part)
}

impl Part {
    fn has(self, index: usize) -> bool {
        index % self.of == self.number - 1
    }
}

/// One deliberate break.
struct Mutant {
    /// `AREA/NAME`.
    name: String,
    /// What it breaks, in a sentence.
    breaks: String,
    caught_by: Check,
    patch: std::path::PathBuf,
}

impl Mutant {
    fn read(sh: &Shell, patch: std::path::PathBuf) -> Result<Mutant> {
        let text = sh.read_file(&patch)?;
        let mut lines = text.lines();
        let breaks = lines.next().unwrap_or_default().to_owned();
        let caught_by = lines
            .find_map(|line| line.strip_prefix("Caught by: "))
            .with_context(|| format!("{}: no line that begins `Caught by: `", patch.display()))?;
        let name = patch.strip_prefix(sh.current_dir().join(DIRECTORY)).unwrap_or(&patch);
        let name = name.with_extension("").to_string_lossy().into_owned();
        Ok(Mutant { name, breaks, caught_by: caught_by.parse()?, patch })
    }
}

pub(crate) fn run(sh: &Shell, arguments: &Arguments) -> Result<()> {
    let mutants = all(sh, arguments.filter.as_deref())?;
    if arguments.list {
        mutants.iter().for_each(|mutant| println!("{}: {}", mutant.name, mutant.breaks));
        return Ok(());
    }
    let tree = Tree::copy(sh, "others")?;
    mutants.iter().try_for_each(|mutant| tree.fits(sh, &mutant.patch))?;
    let is_meant = |index| arguments.part.is_none_or(|part| part.has(index));
    let mutants: Vec<_> = mutants
        .into_iter()
        .enumerate()
        .filter(|(index, _)| is_meant(*index))
        .map(|(_, m)| m)
        .collect();
    // What the abort harness wants is built for long, by one thread; so it goes on beside the others, in a tree of its
    // own.
    let (aborts, others): (Vec<_>, Vec<_>) =
        mutants.iter().partition(|mutant| mutant.caught_by.is_aborts());
    let (done, all) = (AtomicUsize::new(0), mutants.len());
    println!("{all} mutants; first the checks on the tree as it is");
    let missed = std::thread::scope(|scope| {
        let groups = [("aborts", aborts), ("others", others)].map(|(name, group)| {
            let (sh, done) = (sh.clone(), &done);
            scope.spawn(move || missed(&sh, name, &group, done, all))
        });
        groups.map(|group| group.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let missed = missed.into_iter().collect::<Result<Vec<_>>>()?.concat();
    println!("{} of {} mutants caught", mutants.len() - missed.len(), mutants.len());
    ensure!(missed.is_empty(), "not caught, so a check is missing: {}", missed.join(", "));
    Ok(())
}

/// Runs the checks of `mutants` in a tree called `name`: without any mutant, then with each. Those that were not caught.
fn missed<'m>(
    sh: &Shell,
    name: &str,
    mutants: &[&'m Mutant],
    done: &AtomicUsize,
    all: usize,
) -> Result<Vec<&'m str>> {
    if mutants.is_empty() {
        return Ok(Vec::new());
    }
    let tree = Tree::copy(sh, name)?;
    for check in mutants.iter().map(|mutant| &mutant.caught_by).collect::<BTreeSet<_>>() {
        match check.run(&tree)? {
            Verdict::Passes => {}
            Verdict::Fails(why) => bail!("`{check}` fails without any mutant: {why}"),
            Verdict::Hangs => bail!("`{check}` takes too long without any mutant"),
            Verdict::DoesNotBuild(why) => {
                bail!("`{check}` does not build without any mutant: {why}")
            }
        }
    }
    let mut missed = Vec::new();
    for mutant in mutants {
        let begun = Instant::now();
        let verdict = tree.with_patch(sh, &mutant.patch, || mutant.caught_by.run(&tree))?;
        let seconds = begun.elapsed().as_secs();
        let number = done.fetch_add(1, Relaxed) + 1;
        println!(
            "{number:3}/{all} {:60} {seconds:3} s  {}: {verdict}",
            mutant.name, mutant.caught_by
        );
        if !verdict.is_caught() {
            missed.push(mutant.name.as_str());
        }
    }
    Ok(missed)
}

/// The mutants, those with the same check together, because they share what is built.
fn all(sh: &Shell, filter: Option<&str>) -> Result<Vec<Mutant>> {
    let mut mutants = Vec::new();
    for area in sh.read_dir(DIRECTORY)? {
        for patch in sh.read_dir(area)? {
            mutants.push(Mutant::read(sh, patch)?);
        }
    }
    let is_meant = |mutant: &Mutant, filter: &str| {
        mutant.name.contains(filter) || mutant.caught_by.to_string().contains(filter)
    };
    mutants.retain(|mutant| filter.is_none_or(|filter| is_meant(mutant, filter)));
    ensure!(!mutants.is_empty(), "no mutant is called so; `cargo xtask mutants --list` has them");
    mutants.sort_by(|a, b| (&a.caught_by, &a.name).cmp(&(&b.caught_by, &b.name)));
    Ok(mutants)
}
