//! `cargo xtask litmus`: check what the design assumes of arm64's memory model.

use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use xshell::{Shell, cmd};

const TESTS: &str = "docs/design/litmus";

/// Check the litmus tests of docs/design/litmus with herd7
///
/// Each test says whether its outcome may happen: never, or, for a control, sometimes. herd7 is in
/// no Debian package; <https://github.com/herd/herdtools7> says how to build it.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The simulator
    #[arg(long, default_value = "herd7")]
    herd: String,
    /// Only tests whose names contain this
    filter: Option<String>,
}

pub(crate) fn run(sh: &Shell, arguments: &Arguments) -> Result<()> {
    let filter = arguments.filter.as_deref().unwrap_or_default();
    let mut count = 0;
    for test in sh.read_dir(TESTS)? {
        let name = test.file_stem().context("a file")?.to_string_lossy().into_owned();
        if !name.contains(filter) {
            continue;
        }
        check(sh, &arguments.herd, &test, &name)?;
        count += 1;
    }
    ensure!(count > 0, "no litmus test has {filter:?} in its name; see {TESTS}");
    println!("{count} litmus tests behave as they say");
    Ok(())
}

fn check(sh: &Shell, herd: &str, test: &Path, name: &str) -> Result<()> {
    let text = sh.read_file(test)?;
    let expected = expected(&text).with_context(|| format!("{name}: no expected outcome"))?;
    let output = cmd!(sh, "{herd} {test}")
        .quiet()
        .read()
        .with_context(|| format!("{name}: {herd} does not run; pass --herd PATH"))?;
    let observed = format!("Observation {name} {expected} ");
    if !output.contains(&observed) {
        bail!("{name}: herd7 does not find {expected:?}:\n{output}");
    }
    Ok(())
}

/// Returns how often the outcome of a test may happen, as herd7 says it.
fn expected(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("(* Expected: ")?;
    rest.split_once(" *)").map(|(expected, _)| expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    // A test that cannot fail shows nothing, so each has a control.
    #[test]
    fn half_of_litmus_tests_are_controls() {
        let sh = Shell::new().unwrap();
        sh.change_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let texts = sh.read_dir(TESTS).unwrap().into_iter().map(|test| sh.read_file(test).unwrap());
        let texts: Vec<_> = texts.collect();
        let all: Vec<_> = texts.iter().map(|text| expected(text).expect("an outcome")).collect();
        let count = |outcome| all.iter().filter(|&&expected| expected == outcome).count();
        assert!(count("Never") > 0 && count("Never") == count("Sometimes"), "{all:?}");
        assert_eq!(count("Never") + count("Sometimes"), all.len(), "{all:?}");
    }
}
