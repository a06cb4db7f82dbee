//! The hot calls as wholes: the instructions of a call, from its first one to its return.
//!
//! Templates cover sections only; this covers what compilers put around them. A call's *fast path*
//! is the shortest way through its function that commits its section and calls nothing. Its
//! instructions are recorded in `xtask/calls`. Compilers choose instructions differently, so a
//! compiler that is not the recorded one may take at most as many instructions and loads.

mod build;
mod way;

use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _};
use thiscpu_test_support::sections::Image;
use xshell::Shell;

use self::build::Binary;
use super::decode;
use crate::arch::Arch;

/// A call: its binary and function, and the section that it commits on each architecture.
struct Call {
    binary: Binary,
    function: &'static str,
    on_x86_64: &'static str,
    /// `None` if the call has no section there.
    on_aarch64: Option<&'static str>,
}

const CALLS: [Call; 19] = [
    in_rust("call_counter_inc", "add_up", "add_windowed"),
    in_rust("call_counter_add", "add_direct", "add_windowed"),
    in_rust("call_counters_add", "add_direct_at", "add_windowed_at"),
    in_rust("call_budget_try_acquire", "add_up", "add_windowed"),
    in_rust("call_budget_release", "add_direct", "add_windowed"),
    in_rust("call_account_charge", "charge", "charge"),
    in_rust("call_per_cpu_add", "u64::add", "u64::add"),
    in_rust("call_cache_alloc", "pop_object_direct", "pop_object_single"),
    in_rust("call_cache_free", "push_object_direct", "push_object_single"),
    in_c("c_counter_add", "add_windowed"),
    in_c("c_counters_add", "add_windowed_at"),
    in_c("c_budget_try_acquire", "add_windowed"),
    in_c("c_budget_release", "add_windowed"),
    in_c("c_account_charge", "charge"),
    in_c("c_word_add", "u64::add"),
    in_c("c_cache_alloc", "pop_object_single"),
    in_c("c_cache_free", "push_object_single"),
    // Functions in assembly, on x86-64.
    in_malloc("malloc", "pop_object_malloc_asm"),
    in_malloc("free", "push_object_malloc_asm"),
];

const fn in_rust(
    function: &'static str,
    on_x86_64: &'static str,
    on_aarch64: &'static str,
) -> Call {
    Call { binary: Binary::Rust, function, on_x86_64, on_aarch64: Some(on_aarch64) }
}

const fn in_c(function: &'static str, section: &'static str) -> Call {
    Call { binary: Binary::C, function, on_x86_64: section, on_aarch64: Some(section) }
}

const fn in_malloc(function: &'static str, on_x86_64: &'static str) -> Call {
    Call { binary: Binary::Malloc, function, on_x86_64, on_aarch64: None }
}

impl Call {
    fn section(&self, arch: Arch) -> Option<&'static str> {
        match arch {
            Arch::X86_64 => Some(self.on_x86_64),
            Arch::Aarch64 => self.on_aarch64,
        }
    }
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
    let is_wanted = |call: &&Call| call.function.contains(filter);
    ensure!(
        CALLS.iter().any(|call| is_wanted(&call)),
        "no call has a name that contains `{filter}`"
    );
    let mut wrong_calls = 0;
    for arch in Arch::ALL {
        let (mut count, mut wrong) = (0, 0);
        for binary in Binary::ALL {
            let calls = CALLS.iter().filter(|call| call.binary == binary).filter(is_wanted);
            let calls: Vec<_> =
                calls.filter_map(|call| Some((call.function, call.section(arch)?))).collect();
            if calls.is_empty() {
                continue;
            }
            let Some(path) = binary.build(sh, arch)? else { continue };
            let data = std::fs::read(path)?;
            for (function, section) in calls {
                count += 1;
                let found = find(&data, binary, function, section).context(function)?;
                if let Err(error) = check(sh, arch, function, &found, bless) {
                    println!("FAILED {function} on {arch}: {error:#}");
                    wrong += 1;
                }
            }
        }
        println!("calls: {arch}, {count} fast paths, {wrong} wrong");
        wrong_calls += wrong;
    }
    ensure!(
        wrong_calls == 0,
        "a call is not what was recorded; if it should not be, run with `--bless`"
    );
    Ok(())
}

/// Compares a fast path with its file, which is written first if `bless`.
fn check(sh: &Shell, arch: Arch, function: &str, found: &FastPath, bless: bool) -> Result<()> {
    let path = format!("xtask/calls/{arch}/{function}.txt");
    let path = sh.current_dir().join(path);
    if bless {
        std::fs::write(&path, found.record())?;
    }
    FastPath::read(&path)?.compare(found)
}

/// Finds the fast path of a call in a binary.
fn find(data: &[u8], binary: Binary, function: &str, section: &str) -> Result<FastPath> {
    let image = Image::parse(data)?;
    let elf = object::File::parse(data)?;
    let mut symbols = elf.symbols().chain(elf.dynamic_symbols());
    let symbol = symbols
        .find(|symbol| symbol.is_definition() && symbol.name() == Ok(function))
        .context("the binary has no such function")?;
    let range = symbol.address()..symbol.address() + symbol.size();
    let steps = decode::steps(&image, range.clone())?;
    let copies = image.copies.iter().filter(|copy| {
        copy.name == section && range.contains(&copy.start) && range.contains(&copy.end)
    });
    let ways = copies.filter_map(|copy| Some((way::through(&steps, copy)?, copy)));
    let shortest = ways.min_by_key(|(way, _)| way.len());
    let (way, copy) = shortest
        .with_context(|| format!("no way through it commits `{section}` and calls nothing"))?;
    let comment = elf.section_by_name(".comment").context("no ELF section `.comment`")?;
    let comment = String::from_utf8_lossy(comment.data()?).into_owned();
    let compiler = comment.split('\0').find(|text| text.starts_with(binary.compiler()));
    Ok(FastPath {
        compiler: compiler.context("another compiler has compiled it")?.to_owned(),
        instructions: way.len(),
        loads: way.iter().filter(|step| step.loads).count(),
        text: decode::path(&image, copy, &way)?,
    })
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
