//! The width of lines, the first lines of rustdoc, and phrases that hide a sentence's subject.

use std::path::Path;
use std::sync::LazyLock;

use anyhow::Result;
use regex::Regex;
use xshell::Shell;

use super::files;

/// The width of code and comments, and that of Markdown.
const WIDTH: usize = 100;
const MARKDOWN_WIDTH: usize = 120;
/// The width of the first line of rustdoc.
const SUMMARY_WIDTH: usize = 90;

/// Words and phrases that a plain sentence does not need.
const BANNED: &str = "amid|whom|whomever|whoever|nor|in vain|for ever|cannot be had|to be had|\
    can be had|here and there|goes? round|as ever|is told by|no word of|that which|nobody's|\
    nobody else's|everybody's|at hand|all the same|by and by|upon|whereupon|wherever|thereby|\
    whence|lest|hitherto|anew|to and fro|so does|so do|so is|the same goes|as a rule|for itself|\
    by themselves|by itself|in place of";
/// Verbs of relative clauses without a noun, such as "who waits is served".
const HEADLESS_VERBS: &str = "is|was|are|were|has|had|does|did|gets|wants|takes|frees|finds|meets|\
    comes|must|may|can|cannot|will|would|ends|holds|asks|calls|allocates|waits|needs|keeps|loses|\
    shrinks|changes|closes|reads|uses|looks|adds|makes";
/// Words before such a clause.
const HEADLESS_BEGINNINGS: &str = "and|or|but|of|to|from|for|by|with|in|that|if|so|than|until|\
    unless|because";
/// Beginnings of safety comments that name no invariant.
const DEFERRING: &str = "as above|as before|the same|the caller'?s? promise|the caller promises|\
    see above|ditto|so does|likewise|as there|as in";
/// Beginnings of rustdoc that does not stand alone.
const DEPENDENT: [&str; 7] = ["The same", "So ", "As above", "As `", "As for", "Likewise", "Also "];
/// Capitalized words that look like a verb in the third person and are none.
const NO_VERBS: [&str; 11] =
    ["This", "Its", "Less", "Always", "Is", "Has", "Was", "As", "Units", "Objects", "Bytes"];

struct Rules {
    banned: Regex,
    headless: Regex,
    deferring: Regex,
    function: Regex,
    verb: Regex,
}

static RULES: LazyLock<Rules> = LazyLock::new(|| {
    let regex = |text: &str| Regex::new(text).expect("a constant is a valid expression");
    let beginning = format!(r"(^|[.;:,(—-] *|\b({HEADLESS_BEGINNINGS}) )");
    Rules {
        banned: regex(&format!(r"\b({BANNED})\b")),
        headless: regex(&format!(r"{beginning}([Ww]ho|[Ww]hat) ({HEADLESS_VERBS})\b")),
        deferring: regex(&format!("(?i)SAFETY:? *({DEFERRING})")),
        function: regex(
            r#"^\s*(pub(\([^)]*\))? )?(default |const |async |unsafe |extern "[^"]*" )*fn \w"#,
        ),
        verb: regex("^[A-Z][a-z]+s$"),
    }
});

/// Checks all files that git tracks.
pub(super) fn check(sh: &Shell) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for file in files(sh)? {
        let found = check_text(&file, &sh.read_file(&file)?);
        let at = |(line, fault): (usize, String)| format!("{}:{line}: {fault}", file.display());
        findings.extend(found.into_iter().map(at));
    }
    Ok(findings)
}

/// Returns the numbers of lines, and their faults.
fn check_text(file: &Path, text: &str) -> Vec<(usize, String)> {
    let extension = file.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let mut faults = Vec::new();
    let mut is_code = false;
    for (at, line) in lines.iter().enumerate() {
        let mut add = |what: String| faults.push((at + 1, what));
        let prose = if extension == "md" {
            let is_fence = line.trim_start().starts_with("```");
            is_code ^= is_fence;
            let limit = if is_code { WIDTH } else { MARKDOWN_WIDTH };
            let is_exempt =
                ["](", "http://", "https://", "<img"].iter().any(|it| line.contains(it));
            let is_table = line.trim_start().starts_with('|');
            if width(line) > limit && (is_code || !is_exempt && !is_table) {
                add(format!("{} columns, at most {limit}", width(line)));
            }
            (!is_code && !is_fence).then_some(*line)
        } else {
            if width(line) > WIDTH && extension != "yml" && !line.contains("https://") {
                add(format!("{} columns, at most {WIDTH}", width(line)));
            }
            comment(line, extension)
        };
        if let Some(prose) = prose {
            check_prose(prose).into_iter().for_each(&mut add);
        }
        if extension == "rs" && is_doc(line) && (at == 0 || !is_doc(lines[at - 1])) {
            check_summary(&lines[at..]).into_iter().for_each(&mut add);
        }
    }
    faults
}

fn width(line: &str) -> usize {
    line.chars().count()
}

/// Returns the text of a comment.
fn comment<'l>(line: &'l str, extension: &str) -> Option<&'l str> {
    let trimmed = line.trim();
    if !["rs", "c", "h", "hpp", "cpp"].contains(&extension) {
        return trimmed.strip_prefix('#');
    }
    let is_start = |at: &usize| !line[..*at].ends_with([':', '"', '\'']);
    let start = line.match_indices("//").map(|(at, _)| at).find(is_start);
    let block = || trimmed.starts_with(['*']).then(|| trimmed.trim_start_matches(['*', ' ']));
    start.map(|at| line[at..].trim_start_matches(['/', '!']).trim_start()).or_else(block)
}

fn check_prose(prose: &str) -> Vec<String> {
    let rules = &*RULES;
    let mut faults = Vec::new();
    let mut find = |regex: &Regex, rule: &str| {
        faults.extend(regex.find(prose).map(|it| format!("{rule} `{}`", it.as_str().trim())));
    };
    find(&rules.banned, "banned phrase");
    if !prose.trim_end().ends_with('?') {
        find(&rules.headless, "relative clause without a noun");
    }
    find(&rules.deferring, "safety comment without an invariant");
    faults
}

fn is_doc(line: &str) -> bool {
    line.trim_start().starts_with("///")
}

/// Checks the first line of the rustdoc at the start of `lines`.
fn check_summary(lines: &[&str]) -> Vec<String> {
    let rules = &*RULES;
    let text = |line: &str| line.trim_start().trim_start_matches('/').trim().to_owned();
    let summary = text(lines[0]);
    let mut faults = Vec::new();
    if width(&summary) > SUMMARY_WIDTH {
        faults.push(format!("a summary of {} columns, at most {SUMMARY_WIDTH}", width(&summary)));
    }
    if DEPENDENT.iter().any(|beginning| summary.starts_with(beginning)) {
        faults.push("a summary that does not stand alone".to_owned());
    }
    let continues = lines.get(1).is_some_and(|next| is_doc(next) && !text(next).is_empty());
    if continues && !summary.ends_with(['.', ':', '?', '!', '`']) {
        faults.push("a summary of several lines".to_owned());
    }
    let is_outside = |line: &&&str| !is_doc(line) && !line.trim_start().starts_with("#[");
    let is_function = lines.iter().find(is_outside).is_some_and(|it| rules.function.is_match(it));
    let verb =
        summary.split(' ').next().unwrap_or_default().trim_matches(['`', '*', '_', ',', '.', ':']);
    let is_verb = rules.verb.is_match(verb) && !NO_VERBS.contains(&verb);
    if is_function && !is_verb && !summary.is_empty() && !summary.starts_with('#') {
        faults.push(format!("`{verb}` is not a verb in the third person"));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(file: &str, text: &str) -> Vec<(usize, String)> {
        check_text(Path::new(file), text)
    }

    fn assert_fault(file: &str, text: &str, fault: &str) {
        let found = faults(file, text);
        assert!(matches!(&found[..], [(_, it)] if it.contains(fault)), "{text}: {found:?}");
    }

    #[test]
    fn wide_line_is_found() {
        let wide = |columns| "x".repeat(columns);
        assert_fault("a.rs", &wide(101), "101 columns");
        assert_fault("a.md", &wide(121), "121 columns");
        assert_fault("a.md", &format!("```\n{}\n```", wide(101)), "101 columns");
        for (file, line) in [
            ("a.rs", wide(100)),
            ("a.md", wide(120)),
            ("a.md", format!("| {}", wide(200))),
            ("a.md", format!("[{}](b.md)", wide(200))),
        ] {
            assert!(faults(file, &line).is_empty(), "{line}");
        }
    }

    #[test]
    fn summary_of_a_function_needs_a_verb() {
        assert_fault("a.rs", "/// The value.\npub(crate) const fn value()", "`The` is not a verb");
        assert_fault("a.rs", "/// This is it.\n#[inline]\nunsafe fn value()", "`This` is not");
        assert!(faults("a.rs", "/// Returns the value.\nfn value()").is_empty());
        assert!(faults("a.rs", "/// The value.\nstruct Value").is_empty());
    }

    #[test]
    fn summary_is_one_short_line_that_stands_alone() {
        let long = format!("/// {}.\nstruct S", "x".repeat(90));
        assert_fault("a.rs", &long, "summary of 91 columns");
        assert_fault("a.rs", "/// The same for pairs.\nstruct S", "stand alone");
        assert_fault("a.rs", "/// The value\n/// of it.\nstruct S", "several lines");
        assert!(faults("a.rs", "/// The value.\n///\n/// More of it.\nstruct S").is_empty());
    }

    #[test]
    fn phrases_are_found_in_prose_only() {
        assert_fault("a.rs", "// It is freed in vain.", "banned phrase `in vain`");
        assert_fault("a.md", "Blocks are to be had.", "banned phrase `to be had`");
        assert_fault("a.md", "A lock is given to who waits first.", "`to who waits`");
        assert_fault("a.rs", "// SAFETY: as above.", "without an invariant");
        assert_fault("a.sh", "# The lock is for itself.", "`for itself`");
        for (file, text) in [
            ("a.rs", "let text = \"in vain\";"),
            ("a.md", "```\nin vain\n```"),
            ("a.md", "What is a lane?"),
            ("a.rs", "// SAFETY: the caller guarantees that it is aligned."),
        ] {
            assert!(faults(file, text).is_empty(), "{text}");
        }
    }
}
