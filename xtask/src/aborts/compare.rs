//! Whether a copy of a section is what its template says, for some choice of registers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};

use super::code::{Code, Line, Numbers, Part};
use crate::arch::Arch;
use crate::header;
use crate::template::{self, Parts};

pub(super) struct Template {
    parts: Parts<String>,
    /// The register that is a constant in some copies of C compilers.
    maybe_constant: Option<String>,
}

impl Template {
    pub(super) fn read(root: &Path, arch: Arch, section: &str) -> Result<Template> {
        let parts = template::read(root, arch, section)?;
        Ok(Template { parts, maybe_constant: header::maybe_constant(arch, section) })
    }

    /// Checks that a copy is this template, for some choice of registers.
    pub(super) fn check(&self, code: &Code) -> Result<()> {
        let mut chosen = BTreeMap::new();
        let templates = self.parts.with_headings();
        for ((heading, expected), (_, found)) in templates.zip(code.with_headings()) {
            let mut expected = expected.iter();
            for line in found {
                let template = expected.next().map_or("", String::as_str);
                let out = outcome_at_end(template, line);
                let line = out.as_ref().unwrap_or(line);
                let without = self.without_constant(template, line);
                let (wanted, actual) = match &without {
                    Some((template, line)) => (*template, line),
                    None => (template, line),
                };
                unify(wanted, actual, &mut chosen).with_context(|| {
                    let line = line.disassembled();
                    format!("{heading} the template has `{template}`, the copy has `{line}`")
                })?;
            }
            if let Some(more) = expected.next() {
                bail!("{heading} the copy ends where the template has `{more}`");
            }
        }
        check_shared(&chosen, code)
    }

    /// Removes the last operand of both lines, if it is a constant in `line` and may be one.
    ///
    /// C compilers make a small constant part of the instruction.
    fn without_constant<'t>(&self, template: &'t str, line: &Line) -> Option<(&'t str, Line)> {
        let (head, register) = template.rsplit_once(", ")?;
        if self.maybe_constant.as_deref() != Some(register) {
            return None;
        }
        let mut line = line.clone();
        let Some(Part::Text(last)) = line.parts.last_mut() else { return None };
        let (before, constant) = last.rsplit_once(", ")?;
        constant.starts_with(|c: char| c.is_ascii_digit()).then_some(())?;
        *last = before.to_owned();
        Some((head, line))
    }
}

/// Returns the text of the template that a copy gives.
pub(super) fn bless(code: &Code) -> String {
    let mut numbers = Numbers::default();
    let mut text = String::new();
    for (heading, lines) in code.with_headings() {
        text += &format!("{heading}\n");
        lines.iter().for_each(|line| text += &numbers.text(line));
    }
    text
}

/// Returns a jump to the end as a jump out, if the template jumps out there.
///
/// A caller may handle an outcome and a commit alike. The compiler then puts the code of both right
/// behind the section.
fn outcome_at_end(template: &str, line: &Line) -> Option<Line> {
    let [.., Part::Text(text)] = &line.parts[..] else { return None };
    let before = text.strip_suffix(" end").filter(|_| template.ends_with(" out"))?;
    let mut line = line.clone();
    *line.parts.last_mut()? = Part::Text(format!("{before} out"));
    Some(line)
}

/// Matches one line, and records which registers its numbers stand for.
fn unify(template: &str, line: &Line, chosen: &mut BTreeMap<String, String>) -> Result<()> {
    let mut rest = template;
    for part in &line.parts {
        match part {
            Part::Text(piece) => {
                rest = rest.strip_prefix(&**piece).context("the text differs")?;
            }
            Part::Register { whole, width } => {
                let number = rest.strip_prefix('r').context("the template has no register here")?;
                let end = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
                let (number, after) = number.split_at(end);
                rest = after.strip_prefix(width).context("another part of the register")?;
                ensure!(!rest.starts_with('.') || !width.is_empty(), "a part of the register");
                let before = chosen.entry(number.to_owned()).or_insert_with(|| whole.clone());
                ensure!(before == whole, "r{number} was {before} before and is {whole} now");
            }
        }
    }
    ensure!(rest.is_empty(), "the template has more text: `{rest}`");
    Ok(())
}

/// Checks registers that stand for two of the template's.
///
/// A compiler puts two operands of one value into one register, but never into one that the section
/// changes.
fn check_shared(chosen: &BTreeMap<String, String>, code: &Code) -> Result<()> {
    let lines = code.with_headings().flat_map(|(_, lines)| lines);
    let changed: BTreeSet<_> = lines.flat_map(|line| &line.writes).collect();
    let mut seen = BTreeMap::new();
    for (number, register) in chosen {
        if let Some(other) = seen.insert(register, number) {
            ensure!(
                !changed.contains(register),
                "r{other} and r{number} of the template are both {register}, which it changes"
            );
        }
    }
    Ok(())
}

/// Returns how many registers a copy tells apart: the more, the better a template it makes.
pub(super) fn register_count(code: &Code) -> usize {
    let lines = code.with_headings().flat_map(|(_, lines)| lines);
    let registers = lines.flat_map(|line| &line.parts).filter_map(|part| match part {
        Part::Register { whole, .. } => Some(whole),
        Part::Text(_) => None,
    });
    registers.collect::<BTreeSet<_>>().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(parts: &[&str]) -> Line {
        let mut line = Line::default();
        for part in parts {
            match part.strip_prefix('%') {
                Some(register) => line.register(register.to_owned(), ""),
                None => line.text(part),
            }
        }
        line
    }

    fn check(template: &str, range: Line) -> Result<()> {
        let parts = Parts { range: vec![template.to_owned()], ..Parts::default() };
        let template = Template { parts, maybe_constant: Some("r2".to_owned()) };
        template.check(&Code { range: vec![range], ..Code::default() })
    }

    #[test]
    fn added_amount_may_be_a_constant() {
        let constant = || line(&["add qword ptr [", "%rax", "], 0FFh"]);
        let register = line(&["add qword ptr [", "%rax", "], ", "%rcx"]);
        assert!(check("add qword ptr [r1], r2", constant()).is_ok());
        assert!(check("add qword ptr [r1], r2", register).is_ok());
        // Another register, another operation, a part of the register.
        assert!(check("add qword ptr [r1], r3", constant()).is_err());
        assert!(check("add r1, r2", line(&["sub ", "%rax", ", 1"])).is_err());
        assert!(check("add qword ptr [r1], r2.b", constant()).is_err());
        assert_eq!(header::maybe_constant(Arch::X86_64, "u64::add").as_deref(), Some("r7"));
        assert_eq!(header::maybe_constant(Arch::Aarch64, "u64::add"), None);
        assert_eq!(header::maybe_constant(Arch::X86_64, "pop"), None);
    }

    #[test]
    fn outcome_may_lie_at_the_end() {
        assert!(check("jl out", line(&["jl end"])).is_ok());
        assert!(check("tbnz r1, 31, out", line(&["tbnz ", "%x1", ", 31, end"])).is_ok());
        // A commit elsewhere, and another jump.
        assert!(check("jl end", line(&["jl out"])).is_err());
        assert!(check("jl out", line(&["jge end"])).is_err());
        assert!(check("jl range:3", line(&["jl end"])).is_err());
    }

    #[test]
    fn longer_and_shorter_copies_are_refused() {
        let add = || line(&["add ", "%rax", ", ", "%rcx"]);
        assert!(check("add r1, r2", add()).is_ok());
        let parts = Parts { range: vec!["add r1, r2".to_owned()], ..Parts::default() };
        let template = Template { parts, maybe_constant: None };
        assert!(template.check(&Code { range: vec![add(), add()], ..Code::default() }).is_err());
        assert!(template.check(&Code::default()).is_err());
    }
}
