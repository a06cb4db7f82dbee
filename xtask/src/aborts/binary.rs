//! Rules for every copy of a section in a finished binary.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use thiscpu_test_support::sections::{Copy, Image};

use super::code::Code;
use super::compare::{self, Template};
use super::decode::decode;
use crate::arch::Arch;
use crate::template;

pub(super) struct Checked {
    pub(super) arch: Arch,
    /// The number of copies of each section.
    pub(super) copies: BTreeMap<String, usize>,
    /// The number of instructions in the ranges of all copies.
    pub(super) boundaries: usize,
    pub(super) wrong: Vec<String>,
}

/// Checks the copies of one section, or of all whose names contain `filter`.
pub(super) fn check(root: &Path, binary: &Path, filter: &str) -> Result<Checked> {
    let image = parse(binary)?;
    let arch = Arch::of(&image);
    let mut checked = Checked { arch, copies: BTreeMap::new(), boundaries: 0, wrong: Vec::new() };
    let mut templates = BTreeMap::new();
    for copy in image.copies_of(filter) {
        *checked.copies.entry(copy.name.clone()).or_default() += 1;
        let template = templates.entry(&copy.name).or_insert_with(|| {
            let template = Template::read(root, arch, &copy.name);
            template.map_err(|error| checked.wrong.push(format!("{error:#}"))).ok()
        });
        let result = decode(&image, copy).and_then(|code| {
            checked.boundaries += code.range.len();
            check_rules(&image, copy, &code)?;
            // A template that cannot be read was reported above, once.
            template.as_ref().map_or(Ok(()), |template| template.check(&code))
        });
        if let Err(error) = result {
            checked.wrong.push(format!("{}, range {:#x}: {error:#}", copy.name, copy.start));
        }
    }
    Ok(checked)
}

/// Writes a template for each section of a binary that follows the rules.
pub(super) fn bless(root: &Path, binary: &Path, filter: &str) -> Result<usize> {
    let image = parse(binary)?;
    let mut best = BTreeMap::<&str, Code>::new();
    for copy in image.copies_of(filter) {
        let code = decode(&image, copy).and_then(|code| {
            check_rules(&image, copy, &code)?;
            Ok(code)
        });
        let code = code.with_context(|| copy.name.clone())?;
        let count = compare::register_count(&code);
        if best.get(&*copy.name).is_none_or(|other| compare::register_count(other) < count) {
            best.insert(&copy.name, code);
        }
    }
    let arch = Arch::of(&image);
    std::fs::create_dir_all(template::directory(root, arch))?;
    for (section, code) in &best {
        std::fs::write(template::path(root, arch, section), compare::bless(code))?;
    }
    Ok(best.len())
}

fn parse(binary: &Path) -> Result<Image> {
    let data = std::fs::read(binary).with_context(|| binary.display().to_string())?;
    Image::parse(&data).with_context(|| binary.display().to_string())
}

/// Checks the rules that hold for every section.
///
/// They hold whatever its template says: the people who bless a template may be wrong.
fn check_rules(image: &Image, copy: &Copy, code: &Code) -> Result<()> {
    image.check(copy)?;
    ensure!(copy.start < copy.end, "its range is empty");
    let (section, ..) = image.section(copy.start)?;
    ensure!(section == ".text", "its range is in `{section}`, not in `.text`");
    ensure!(
        code.abort.last().is_some_and(|line| line.ends),
        "its abort handler does not jump away"
    );
    ensure!(!code.abort.iter().any(|line| line.stores), "its abort handler stores");
    if let Some(line) = code.range.iter().find(|line| line.calls) {
        bail!("it calls, traps or returns: `{}`", line.disassembled());
    }
    ensure!(
        code.entry.last().is_some_and(|line| line.stores),
        "the last instruction before its range does not enter it"
    );
    ensure!(
        code.entry.iter().filter(|line| line.stores).count() == 1,
        "it stores before its range"
    );
    // It exists to be aborted and commits nothing.
    if copy.name == "spin" {
        return Ok(());
    }
    let stores: Vec<_> = (0..code.range.len()).filter(|&at| code.range[at].stores).collect();
    let allowed = if stores_before_commit(&copy.name) { 2 } else { 1 };
    let last = code.range.len() - 1;
    ensure!(stores.last() == Some(&last), "its last instruction is not its commit");
    ensure!(stores.len() == allowed, "it stores {} times, not {allowed}", stores.len());
    Ok(())
}

/// Returns whether a section stores once before its commit.
///
/// It may store to memory that no other thread reads: the link of the node that it pushes, or the
/// free slot above the top of its lane's sheaf. Or it counts down in its lane. An aborted section
/// may have counted, too, which does no harm.
fn stores_before_commit(section: &str) -> bool {
    const COUNTING: [&str; 3] = ["pop_object_ready", "pop_object_malloc", "pop_object_malloc_asm"];
    section == "push" || section.starts_with("push_object") || COUNTING.contains(&section)
}

/// Returns the templates of sections that none of these binaries contains.
pub(super) fn stale(root: &Path, checked: &[Checked]) -> Result<BTreeSet<String>> {
    let mut stale = BTreeSet::new();
    for arch in checked.iter().map(|checked| checked.arch) {
        for entry in std::fs::read_dir(template::directory(root, arch))? {
            stale.insert(entry?.path().display().to_string());
        }
        for section in checked.iter().flat_map(|checked| checked.copies.keys()) {
            let path = template::path(root, arch, section);
            stale.remove(&path.display().to_string());
        }
    }
    Ok(stale)
}
