//! Templates: what every copy of a section must be, instruction for instruction, registers aside.
//!
//! A template is text that was looked at when it was blessed. Its registers are numbered in the order
//! in which they appear; `r3.d` is the lower half of the register that `r3` is all of.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

use super::code::{Code, Line, Part};
use super::image::Architecture;
use crate::header;

pub(super) struct Template {
    text: String,
    /// The register that is a constant in some of C's copies.
    maybe_constant: Option<String>,
}

const DIRECTORY: &str = "xtask/templates";

/// Where the templates of an architecture are.
pub(super) fn directory(root: &Path, architecture: Architecture) -> PathBuf {
    root.join(DIRECTORY).join(architecture.name())
}

/// Where the template of a section is.
pub(crate) fn path(root: &Path, architecture: Architecture, section: &str) -> PathBuf {
    directory(root, architecture).join(format!("{}.txt", section.replace("::", ".")))
}

impl Template {
    pub(super) fn read(root: &Path, architecture: Architecture, section: &str) -> Result<Template> {
        let path = path(root, architecture, section);
        let text = std::fs::read_to_string(&path).with_context(|| {
            format!(
                "{}: `{section}` has no template; look at it, and bless it with \
                 `cargo xtask aborts --bless`",
                path.display()
            )
        })?;
        Ok(Template { text, maybe_constant: header::may_be_constant(architecture, section) })
    }

    /// The template that a copy gives.
    pub(super) fn of(code: &Code) -> String {
        let mut numbers = BTreeMap::new();
        let mut text = String::new();
        for (name, lines) in code.parts() {
            text += &format!("{name}:\n");
            for line in lines {
                text += "    ";
                for part in &line.parts {
                    match part {
                        Part::Text(piece) => text += piece,
                        Part::Register { whole, width } => {
                            let next = numbers.len() + 1;
                            let number = numbers.entry(whole.clone()).or_insert(next);
                            text += &format!("r{number}{width}");
                        }
                    }
                }
                text.push('\n');
            }
        }
        text
    }

    /// Whether a copy is this, for some choice of registers.
    pub(super) fn check(&self, code: &Code) -> Result<()> {
        let mut chosen = BTreeMap::new();
        let mut expected = self.text.lines();
        for (name, lines) in code.parts() {
            let head = expected.next().unwrap_or_default();
            ensure!(head == format!("{name}:"), "the template has `{head}` where `{name}` begins");
            for line in lines {
                let template = expected.next().unwrap_or_default().trim();
                let without = self.without_constant(template, line);
                let (wanted, line_there) = match &without {
                    Some((template, line)) => (*template, line),
                    None => (template, line),
                };
                unify(wanted, line_there, &mut chosen).with_context(|| {
                    format!("{name}: the template has `{template}`, here is `{}`", line.as_it_is())
                })?;
            }
        }
        if let Some(more) = expected.next() {
            bail!("it ends where the template has `{}`", more.trim());
        }
        shared(&chosen, code)
    }

    /// Both without the last operand, if that is a constant here and may be one: C compilers make one that is small part of the instruction.
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

/// Matches one line, and enters which registers its numbers stand for.
fn unify(template: &str, line: &Line, chosen: &mut BTreeMap<String, String>) -> Result<()> {
    let mut rest = template;
    for part in &line.parts {
        match part {
            Part::Text(piece) => rest = rest.strip_prefix(&**piece).context("other text")?,
            Part::Register { whole, width } => {
                let number = rest.strip_prefix('r').context("no register")?;
                let end = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
                let (number, after) = number.split_at(end);
                rest = after.strip_prefix(width).context("another part of the register")?;
                ensure!(!rest.starts_with('.') || !width.is_empty(), "a part of the register");
                let before = chosen.entry(number.to_owned()).or_insert_with(|| whole.clone());
                ensure!(before == whole, "r{number} was {before} before and is {whole} now");
            }
        }
    }
    ensure!(rest.is_empty(), "more text");
    Ok(())
}

/// A compiler puts two operands into one register if they have the same value, but never one that the
/// section changes.
fn shared(chosen: &BTreeMap<String, String>, code: &Code) -> Result<()> {
    let lines = code.parts().map(|(_, lines)| lines).concat();
    let changed: BTreeSet<_> = lines.iter().flat_map(|line| &line.writes).collect();
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

/// How many registers a copy tells apart: the more, the better a template it makes.
pub(super) fn registers(code: &Code) -> usize {
    let lines = code.parts().map(|(_, lines)| lines).concat();
    let parts = lines.iter().flat_map(|line| &line.parts);
    let all: BTreeSet<_> = parts
        .filter_map(|part| match part {
            Part::Register { whole, .. } => Some(whole),
            Part::Text(_) => None,
        })
        .collect();
    all.len()
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
        let text = format!("before:\nrange:\n    {template}\nabort:\n");
        let template = Template { text, maybe_constant: Some("r2".to_owned()) };
        template.check(&Code { range: vec![range], ..Code::default() })
    }

    #[test]
    fn what_is_added_may_be_a_constant() {
        let constant = || line(&["add qword ptr [", "%rax", "], 0FFh"]);
        let register = line(&["add qword ptr [", "%rax", "], ", "%rcx"]);
        assert!(check("add qword ptr [r1], r2", constant()).is_ok());
        assert!(check("add qword ptr [r1], r2", register).is_ok());
        // Of another register, in another operation, of a part of it.
        assert!(check("add qword ptr [r1], r3", constant()).is_err());
        assert!(check("add r1, r2", line(&["sub ", "%rax", ", 1"])).is_err());
        assert!(check("add qword ptr [r1], r2.b", constant()).is_err());
        assert_eq!(
            header::may_be_constant(Architecture::X86_64, "u64::add").as_deref(),
            Some("r6")
        );
        assert_eq!(header::may_be_constant(Architecture::Aarch64, "u64::add"), None);
        assert_eq!(header::may_be_constant(Architecture::X86_64, "pop"), None);
    }
}
