//! The hot calls as wholes: what a call executes, from its first instruction to its return.
//!
//! Templates cover sections only; this covers what compilers put around them. A call's *fast path*
//! is the shortest way through its function that commits its section and calls nothing. Its
//! instructions are recorded in `xtask/calls`. Compilers choose instructions differently, so a
//! compiler that is not the recorded one may take at most as many instructions and loads.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpAccess,
};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _};
use thiscpu_test_support::sections::{Copy, Image};
use xshell::{Shell, cmd};

use super::decode;
use crate::cargo;

/// A call: the package of its program, its function, and the section that it commits.
struct Call {
    package: &'static str,
    function: &'static str,
    section: &'static str,
}

const PROBES: &str = "thiscpu-calls";
const MALLOC: &str = "thiscpu-malloc-preload";

const CALLS: [Call; 11] = [
    call(PROBES, "call_counter_inc", "add_up"),
    call(PROBES, "call_counter_add", "add_direct"),
    call(PROBES, "call_counters_add", "add_direct_at"),
    call(PROBES, "call_budget_try_acquire", "add_up"),
    call(PROBES, "call_budget_release", "add_direct"),
    call(PROBES, "call_account_charge", "charge"),
    call(PROBES, "call_per_cpu_add", "u64::add"),
    call(PROBES, "call_cache_alloc", "pop_object_direct"),
    call(PROBES, "call_cache_free", "push_object_direct"),
    call(MALLOC, "malloc", "pop_object_malloc_asm"),
    call(MALLOC, "free", "push_object_malloc_asm"),
];

const fn call(package: &'static str, function: &'static str, section: &'static str) -> Call {
    Call { package, function, section }
}

/// The fast path of a call, as a file records it.
#[derive(Debug, PartialEq, Eq)]
struct FastPath {
    compiler: String,
    instructions: usize,
    loads: usize,
    /// The instructions, one a line.
    text: String,
}

/// Checks the calls whose names contain `filter`, or records them.
pub(super) fn run(sh: &Shell, filter: &str, bless: bool) -> Result<()> {
    if cfg!(not(target_arch = "x86_64")) {
        println!("calls: skipped, they are recorded on x86-64 only");
        return Ok(());
    }
    let calls: Vec<_> = CALLS.iter().filter(|call| call.function.contains(filter)).collect();
    ensure!(!calls.is_empty(), "no call has a name that contains `{filter}`");
    let mut wrong = 0;
    for package in [PROBES, MALLOC] {
        let calls: Vec<_> = calls.iter().filter(|call| call.package == package).collect();
        if calls.is_empty() {
            continue;
        }
        let data = std::fs::read(build(sh, package)?)?;
        for call in calls {
            let found = find(&data, call).with_context(|| call.function)?;
            let path = sh.current_dir().join("xtask/calls").join(format!("{}.txt", call.function));
            if bless {
                std::fs::write(&path, found.record())?;
            }
            let result = FastPath::read(&path).and_then(|recorded| recorded.compare(&found));
            if let Err(error) = result {
                println!("FAILED {}: {error:#}", call.function);
                wrong += 1;
            }
        }
    }
    println!("calls: {} fast paths, {wrong} wrong", calls.len());
    ensure!(wrong == 0, "a call is not what was recorded; if it should not be, run with `--bless`");
    Ok(())
}

/// Builds a package's program or shared object, and returns its path.
fn build(sh: &Shell, package: &str) -> Result<PathBuf> {
    if package == PROBES {
        return super::build(sh, package, &["--release"], &[]);
    }
    cmd!(sh, "cargo build --quiet --release --package {package}").quiet().run()?;
    Ok(cargo::target_directory(sh).join("release/libthiscpu_malloc.so"))
}

/// Finds the fast path of a call in a binary.
fn find(data: &[u8], call: &Call) -> Result<FastPath> {
    let image = Image::parse(data)?;
    let elf = object::File::parse(data)?;
    let mut symbols = elf.symbols().chain(elf.dynamic_symbols());
    let symbol = symbols
        .find(|symbol| symbol.is_definition() && symbol.name() == Ok(call.function))
        .context("the binary has no such function")?;
    let range = symbol.address()..symbol.address() + symbol.size();
    let code = Decoder::with_ip(64, image.code(range.clone())?, range.start, DecoderOptions::NONE);
    let code: Vec<_> = code.into_iter().collect();
    let copies = image.copies.iter().filter(|copy| {
        copy.name == call.section && range.contains(&copy.start) && range.contains(&copy.end)
    });
    let paths = copies.filter_map(|copy| Some((fast_path(&code, range.start, copy)?, copy)));
    let shortest = paths.min_by_key(|(path, _)| path.len());
    let (path, copy) = shortest.with_context(|| {
        format!("no way through it commits `{}` and calls nothing", call.section)
    })?;
    let comment = elf.section_by_name(".comment").context("no ELF section `.comment`")?;
    let comment = String::from_utf8_lossy(comment.data()?).into_owned();
    let compiler = comment.split('\0').find(|text| text.starts_with("rustc version "));
    Ok(FastPath {
        compiler: compiler.context("no rustc has compiled it")?.to_owned(),
        instructions: path.len(),
        loads: path.iter().filter(|instruction| loads(instruction)).count(),
        text: decode::path(copy, &path),
    })
}

/// Returns the shortest way from `entry` over the section's range to a return.
fn fast_path(code: &[Instruction], entry: u64, copy: &Copy) -> Option<Vec<Instruction>> {
    let at = |address: u64| code.binary_search_by_key(&address, Instruction::ip).ok();
    let (begin, end) = (at(copy.start)?, at(copy.end)?);
    let before = shortest(code, at(entry)?, |index| index == begin)?;
    let section = shortest(code, begin, |index| index == end)?;
    let after = shortest(code, end, |index| code[index].flow_control() == FlowControl::Return)?;
    let last = *after.last()?;
    // Each part ends where the next one begins.
    let parts = [before, section, after].map(|mut part| {
        part.pop();
        part
    });
    let indexes = parts.into_iter().flatten().chain([last]);
    Some(indexes.map(|index| code[index]).collect())
}

/// Returns the indexes on the shortest way from `from` to an instruction that is an end.
fn shortest(
    code: &[Instruction],
    from: usize,
    is_end: impl Fn(usize) -> bool,
) -> Option<Vec<usize>> {
    let mut came_from = vec![None; code.len()];
    let mut queue = std::collections::VecDeque::from([from]);
    came_from[from] = Some(from);
    while let Some(index) = queue.pop_front() {
        if is_end(index) {
            let mut way = vec![index];
            while *way.last()? != from {
                way.push(came_from[*way.last()?]?);
            }
            way.reverse();
            return Some(way);
        }
        for next in successors(code, index) {
            if came_from[next].is_none() {
                came_from[next] = Some(index);
                queue.push_back(next);
            }
        }
    }
    None
}

/// Returns the indexes of the instructions that may follow one, except behind a call.
fn successors(code: &[Instruction], index: usize) -> Vec<usize> {
    let instruction = &code[index];
    let (follows, jumps) = match instruction.flow_control() {
        FlowControl::Next => (true, false),
        FlowControl::ConditionalBranch => (true, true),
        FlowControl::UnconditionalBranch => (false, true),
        _ => (false, false),
    };
    let target = code.binary_search_by_key(&instruction.near_branch_target(), Instruction::ip);
    let next = Some(index + 1).filter(|next| follows && *next < code.len());
    next.into_iter().chain(target.ok().filter(|_| jumps)).collect()
}

/// Returns whether an instruction loads from memory; the load of a return is none.
fn loads(instruction: &Instruction) -> bool {
    let mut factory = InstructionInfoFactory::new();
    let memory = factory.info(instruction).used_memory();
    instruction.flow_control() != FlowControl::Return
        && memory
            .iter()
            .any(|used| !matches!(used.access(), OpAccess::Write | OpAccess::NoMemAccess))
}

impl FastPath {
    fn record(&self) -> String {
        let FastPath { compiler, instructions, loads, text } = self;
        format!("compiler: {compiler}\ninstructions: {instructions}\nloads: {loads}\n{text}")
    }

    fn read(path: &Path) -> Result<FastPath> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("{} is missing; run with `--bless`", path.display()))?;
        let mut rest = &*text;
        let mut value = |key: &str| {
            let (line, after) = rest.split_once('\n').context("too short")?;
            rest = after;
            line.strip_prefix(key).with_context(|| format!("`{line}` is not `{key}`"))
        };
        let compiler = value("compiler: ")?.to_owned();
        let instructions = value("instructions: ")?.parse()?;
        let loads = value("loads: ")?.parse()?;
        Ok(FastPath { compiler, instructions, loads, text: rest.to_owned() })
    }

    /// Checks a fast path against this recorded one.
    fn compare(&self, found: &FastPath) -> Result<()> {
        let counts = |path: &FastPath| (path.instructions, path.loads);
        let (recorded, actual) = (counts(self), counts(found));
        if self.compiler != found.compiler {
            println!(
                "calls: recorded for `{}`, compiled by `{}`: only counts are compared",
                self.compiler, found.compiler
            );
            ensure!(
                actual.0 <= recorded.0 && actual.1 <= recorded.1,
                "instructions and loads are {actual:?}, were {recorded:?}"
            );
            return Ok(());
        }
        let mut lines = self.text.lines();
        for line in found.text.lines() {
            let expected = lines.next().unwrap_or("").trim();
            let line = line.trim();
            ensure!(
                line == expected,
                "recorded is `{expected}`, compiled `{line}`; instructions and loads are \
                 {actual:?}, were {recorded:?}"
            );
        }
        match lines.next() {
            Some(more) => bail!("the compiled call ends where `{}` is recorded", more.trim()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(compiler: &str, loads: usize, lines: &[&str]) -> FastPath {
        let text = lines.iter().map(|line| format!("    {line}\n")).collect();
        FastPath { compiler: compiler.to_owned(), instructions: lines.len(), loads, text }
    }

    #[test]
    fn same_compiler_must_choose_recorded_instructions() {
        let recorded = path("a", 1, &["mov r1, [r2]", "ret"]);
        assert!(recorded.compare(&path("a", 1, &["mov r1, [r2]", "ret"])).is_ok());
        assert!(recorded.compare(&path("a", 1, &["mov r1, [r1]", "ret"])).is_err());
        assert!(recorded.compare(&path("a", 1, &["ret"])).is_err());
        assert!(recorded.compare(&path("a", 1, &["mov r1, [r2]", "ret", "nop"])).is_err());
    }

    #[test]
    fn other_compiler_must_not_exceed_recorded_counts() {
        let recorded = path("a", 1, &["mov r1, [r2]", "ret"]);
        assert!(recorded.compare(&path("b", 1, &["mov r2, [r1]", "ret"])).is_ok());
        assert!(recorded.compare(&path("b", 0, &["ret"])).is_ok());
        assert!(recorded.compare(&path("b", 2, &["mov r1, [r2]", "ret"])).is_err());
        assert!(recorded.compare(&path("b", 1, &["nop", "mov r1, [r2]", "ret"])).is_err());
    }
}
