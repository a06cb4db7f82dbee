//! What must be true of every copy in a finished binary.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};

use super::code::Code;
use super::image::{Architecture, Copy, Image};
use super::template::{self, Template};

/// What was found in a binary.
pub(super) struct Checked {
    pub(super) architecture: Architecture,
    /// How many copies each section has.
    pub(super) copies: BTreeMap<String, usize>,
    /// How many instructions are in the ranges of all of them.
    pub(super) boundaries: usize,
    pub(super) wrong: Vec<String>,
}

/// Checks the copies of the sections whose names contain `filter`.
pub(super) fn check(root: &Path, binary: &Path, filter: &str) -> Result<Checked> {
    let image = parse(binary)?;
    let architecture = image.architecture;
    let mut checked =
        Checked { architecture, copies: BTreeMap::new(), boundaries: 0, wrong: Vec::new() };
    let mut templates = BTreeMap::new();
    for copy in image.copies.iter().filter(|copy| copy.name.contains(filter)) {
        *checked.copies.entry(copy.name.clone()).or_default() += 1;
        let template = templates.entry(&copy.name).or_insert_with(|| {
            let template = Template::read(root, architecture, &copy.name);
            template.map_err(|error| checked.wrong.push(format!("{error:#}"))).ok()
        });
        let result = Code::of(&image, copy).and_then(|code| {
            checked.boundaries += code.range.len();
            is_a_section(&image, copy, &code)?;
            // One that cannot be read was said to be so, once.
            template.as_ref().map_or(Ok(()), |template| template.check(&code))
        });
        if let Err(error) = result {
            checked.wrong.push(format!("{}, range {:#x}: {error:#}", copy.name, copy.start));
        }
    }
    Ok(checked)
}

/// Writes a template for each section of a binary, after the same checks.
pub(super) fn bless(root: &Path, binary: &Path, filter: &str) -> Result<usize> {
    let image = parse(binary)?;
    let mut best = BTreeMap::<&str, Code>::new();
    for copy in image.copies.iter().filter(|copy| copy.name.contains(filter)) {
        let code = Code::of(&image, copy).and_then(|code| {
            is_a_section(&image, copy, &code)?;
            Ok(code)
        });
        let code = code.with_context(|| copy.name.clone())?;
        let registers = template::registers(&code);
        if best.get(&*copy.name).is_none_or(|other| template::registers(other) < registers) {
            best.insert(&copy.name, code);
        }
    }
    std::fs::create_dir_all(template::directory(root, image.architecture))?;
    for (section, code) in &best {
        std::fs::write(template::path(root, image.architecture, section), Template::of(code))?;
    }
    Ok(best.len())
}

fn parse(binary: &Path) -> Result<Image> {
    let data = std::fs::read(binary).with_context(|| binary.display().to_string())?;
    Image::parse(&data).with_context(|| binary.display().to_string())
}

/// What holds for every section, whatever its template says: a template is blessed by people, who may
/// be wrong.
fn is_a_section(image: &Image, copy: &Copy, code: &Code) -> Result<()> {
    ensure!(copy.flags == 0, "version and flags are {:#x} where only 0 is allowed", copy.flags);
    ensure!(copy.start < copy.end, "its range is empty");
    let section = image.section_name(copy.start)?;
    ensure!(section == ".text", "its range is in `{section}`, not in `.text`");
    ensure!(!copy.range().contains(&copy.abort), "its abort handler lies in its range");
    let before =
        image.code(copy.abort - 4..copy.abort)?.first_chunk().map(|b| u32::from_le_bytes(*b));
    let signature = image.architecture.signature();
    ensure!(before == Some(signature), "no signature {signature:#010x} before its abort handler");
    ensure!(
        code.abort.last().is_some_and(|line| line.ends),
        "its abort handler does not jump away"
    );
    ensure!(!code.abort.iter().any(|line| line.stores), "its abort handler stores");
    if let Some(line) = code.range.iter().find(|line| line.calls) {
        bail!("it calls, traps or returns: `{}`", line.as_it_is());
    }
    ensure!(code.before.last().is_some_and(|line| line.stores), "entering it is not its last step");
    ensure!(
        code.before.iter().filter(|line| line.stores).count() == 1,
        "it stores before its range"
    );
    let stores: Vec<_> = (0..code.range.len()).filter(|&at| code.range[at].stores).collect();
    let (last, others) = match &*copy.name {
        // It is there to be aborted, and commits nothing.
        "linger" => return Ok(()),
        // Its own node's link, which is nobody else's yet.
        "push" => (stores.last(), 1),
        // The slot above the top, which is its lane's.
        "give" | "give_first" | "give_near" | "give_ready" | "give_front" => (stores.last(), 1),
        _ => (stores.last(), 0),
    };
    ensure!(last == Some(&(code.range.len() - 1)), "its last instruction is not its commit");
    ensure!(stores.len() == 1 + others, "it stores {} times, not {}", stores.len(), 1 + others);
    Ok(())
}

/// Templates of sections that none of these binaries has any more.
pub(super) fn stale(root: &Path, checked: &[Checked]) -> Result<BTreeSet<String>> {
    let mut stale = BTreeSet::new();
    for architecture in checked.iter().map(|checked| checked.architecture) {
        for entry in std::fs::read_dir(template::directory(root, architecture))? {
            stale.insert(entry?.path().display().to_string());
        }
        for section in checked.iter().flat_map(|checked| checked.copies.keys()) {
            let path = template::path(root, architecture, section);
            stale.remove(&path.display().to_string());
        }
    }
    Ok(stale)
}
