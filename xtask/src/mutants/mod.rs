//! `cargo xtask mutants`: break the library on purpose, and check that each break is caught.
//!
//! A mutant is a patch `xtask/mutants/AREA/NAME.patch`: a sentence, a line `Caught by: CHECK
//! FILTER`, and the diff. It is applied to a copy of the tree, where the check must build and then
//! fail. First each check must pass on the copy without a mutant, or its failures would prove
//! nothing.

mod check;
mod tree;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use xshell::Shell;

use crate::arguments::Part;
use check::{Check, Verdict};
use tree::Tree;

/// The directory of all areas' directories.
const DIRECTORY: &str = "xtask/mutants";

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Only mutants whose AREA/NAME or check contains this
    filter: Option<String>,
    /// Only part K of N of them, such as 2/3; but all patches must apply
    #[arg(long, value_name = "K/N", default_value_t)]
    part: Part,
    /// Print their names and what each breaks, and run nothing
    #[arg(long)]
    list: bool,
}

/// One deliberate break.
struct Mutant {
    /// `AREA/NAME`.
    name: String,
    /// A sentence that says what it breaks.
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
    mutants.iter().try_for_each(|mutant| tree.check(sh, &mutant.patch))?;
    let mutants: Vec<_> = arguments.part.select(mutants).collect();
    // Builds for the abort harness take long and use one thread, so they run beside the others, in
    // a tree of their own.
    let (aborts, others): (Vec<_>, Vec<_>) =
        mutants.iter().partition(|mutant| mutant.caught_by.is_aborts());
    let (done, all) = (AtomicUsize::new(0), mutants.len());
    println!("{all} mutants; first the checks without a mutant");
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

/// Runs the checks of `mutants` in a tree called `name`, and returns those not caught.
///
/// First the checks run without a mutant.
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
            Verdict::Fails(reason) => bail!("`{check}` fails without a mutant: {reason}"),
            Verdict::TestsNothing => bail!("`{check}` chooses no test"),
            Verdict::Hangs => bail!("`{check}` hangs without a mutant"),
            Verdict::DoesNotBuild(reason) => {
                bail!("`{check}` does not build without a mutant: {reason}")
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
        if !matches!(verdict, Verdict::Fails(_)) {
            missed.push(mutant.name.as_str());
        }
    }
    Ok(missed)
}

/// Returns the mutants, sorted by their checks, because those with one check share a build.
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
    ensure!(
        !mutants.is_empty(),
        "no mutant has such a name or check; see `cargo xtask mutants --list`"
    );
    mutants.sort_by(|a, b| (&a.caught_by, &a.name).cmp(&(&b.caught_by, &b.name)));
    Ok(mutants)
}
