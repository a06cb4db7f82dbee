//! Lines of x86-64 templates, which are in Intel's syntax, in AT&T's, as C compilers expect it.

use anyhow::{Context as _, Result, bail};

use super::operands::Names;

pub(super) const ABORT_HANDLER: &str = "\
/* The kernel continues here if it aborts a section: after an undefined instruction with the
 * signature as its operand. */
#define THISCPU_ABORT_HANDLER \\
    \".pushsection __rseq_failure, \\\"ax?\\\"\\n\\t\" \\
    \".byte 0x0f, 0xb9, 0x3d\\n\\t\" \\
    \".long 0x53053053\\n\" \\
    \"34:\\n\\t\"
";

pub(super) fn translate(line: &str, names: &Names<'_>) -> Result<String> {
    let (mnemonic, operands) = line.split_once(' ').with_context(|| format!("`{line}`"))?;
    if mnemonic.starts_with('j') {
        return Ok(format!("{mnemonic} {}", names.label(operands)?));
    }
    let operands: Vec<_> = operands.split(", ").collect();
    let suffix =
        operands.iter().find_map(|operand| suffix(operand)).context("no operand has a width")?;
    let mut translated = Vec::new();
    for operand in operands.iter().rev() {
        translated.push(translate_operand(operand, names)?);
    }
    let mnemonic = match mnemonic {
        // The suffixes are the width that is read and the width that is written.
        "movzx" => {
            let from = operands
                .last()
                .and_then(|from| self::suffix(from))
                .context("no operand has a width")?;
            format!("movz{from}{suffix}")
        }
        _ => format!("{mnemonic}{suffix}"),
    };
    Ok(format!("{mnemonic} {}", translated.join(", ")))
}

/// Returns the suffix for an operand's width, if the operand names one.
fn suffix(operand: &str) -> Option<char> {
    for (prefix, suffix) in
        [("byte ptr", 'b'), ("word ptr", 'w'), ("dword ptr", 'l'), ("qword ptr", 'q')]
    {
        if operand.starts_with(prefix) {
            return Some(suffix);
        }
    }
    let register = operand.strip_prefix('r')?;
    Some(match register.split_once('.') {
        Some((_, "d")) => 'l',
        Some((_, "w")) => 'w',
        Some((_, "b")) => 'b',
        _ => 'q',
    })
}

fn translate_operand(operand: &str, names: &Names<'_>) -> Result<String> {
    if operand == "[descriptor]" {
        return Ok("30b(%%rip)".into());
    }
    if let Some((_, address)) = operand.split_once('[') {
        let segment = if operand.contains("fs:") { "%%fs:" } else { "" };
        let address = address.strip_suffix(']').context("an address without `]`")?;
        return Ok(format!("{segment}{}", translate_address(address, names)?));
    }
    match names.operand(operand)? {
        Some((name, part)) => Ok(register(name, part)),
        None => Ok(format!("${}", number(operand)?)),
    }
}

fn register(name: &str, part: &str) -> String {
    let part = match part {
        "d" => "k",
        part => part,
    };
    format!("%{part}[{name}]")
}

/// Translates `base + index*8 + displacement`. All parts but one may be missing.
fn translate_address(address: &str, names: &Names<'_>) -> Result<String> {
    let (mut base, mut index, mut displacement) = (None, None, String::new());
    for part in address.split(" + ") {
        let (term, scale) = part.split_once('*').unwrap_or((part, "1"));
        match names.operand(term)? {
            Some((name, "")) if base.is_none() && scale == "1" => base = Some(register(name, "")),
            Some((name, "")) if index.is_none() => index = Some((register(name, ""), scale)),
            Some(_) => bail!("`{address}` has too many registers"),
            None => displacement = number(term)?.to_string(),
        }
    }
    let base = base.unwrap_or_default();
    let index = index.map_or_else(String::new, |(index, scale)| format!(", {index}, {scale}"));
    Ok(format!("{displacement}({base}{index})"))
}

/// Parses a number such as `8` or `10h`.
fn number(text: &str) -> Result<i64> {
    let number = match text.strip_suffix('h') {
        Some(digits) => i64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.with_context(|| format!("`{text}` is not a number"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::operands::Role::Reads;

    #[test]
    fn lines_are_translated_to_att_syntax() {
        let operands = [("a", Reads), ("cpu_id", Reads), ("n", Reads)];
        let names = Names { operands: &operands, returns_value: false };
        for (template, wanted) in [
            ("lea r1, [descriptor]", "leaq 30b(%%rip), %[a]"),
            ("mov qword ptr fs:[r2 + 4], r1", "movq %[a], %%fs:4(%[cpu_id])"),
            ("movzx r1.d, word ptr fs:[r2]", "movzwl %%fs:(%[cpu_id]), %k[a]"),
            ("cmp dword ptr fs:[r2], 0", "cmpl $0, %%fs:(%[cpu_id])"),
            ("mov r1, qword ptr [r2 + r1*8]", "movq (%[cpu_id], %[a], 8), %[a]"),
            ("add byte ptr [r1 + r2 + 10h], r3.b", "addb %b[n], 16(%[a], %[cpu_id], 1)"),
            ("shr r1, r3.b", "shrq %b[n], %[a]"),
            ("shr r1, 0Bh", "shrq $11, %[a]"),
            ("test r1, r1", "testq %[a], %[a]"),
            ("jne out", "jne %l[out]"),
            ("jmp end", "jmp 33f"),
        ] {
            assert_eq!(translate(template, &names).unwrap(), wanted);
        }
        assert!(translate("mov r1, something", &names).is_err());
        assert!(translate("mov r1, qword ptr [r1 + r2 + r3]", &names).is_err());
    }
}
