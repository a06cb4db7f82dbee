//! Links between Markdown documents, and to their headings.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Result;
use pulldown_cmark::{BrokenLink, Event, LinkType, Options, Parser, Tag, TagEnd};
use xshell::Shell;

use super::files;

/// A document's links, and the anchors that links may name.
#[derive(Debug, Default)]
struct Document {
    /// Each with its line.
    links: Vec<(usize, String)>,
    anchors: BTreeSet<String>,
}

/// Checks the links of all documents that git tracks.
pub(super) fn check(sh: &Shell) -> Result<Vec<String>> {
    let mut documents = BTreeMap::new();
    for file in files(sh)?.into_iter().filter(|file| file.extension().is_some_and(|it| it == "md"))
    {
        let document = parse(&sh.read_file(&file)?);
        documents.insert(file, document);
    }
    let mut findings = Vec::new();
    for (file, document) in &documents {
        for (line, link) in &document.links {
            if let Some(reason) = broken(sh, &documents, file, link) {
                findings.push(format!("{}:{line}: broken link `{link}`: {reason}", file.display()));
            }
        }
    }
    Ok(findings)
}

fn broken(
    sh: &Shell,
    documents: &BTreeMap<PathBuf, Document>,
    file: &Path,
    link: &str,
) -> Option<&'static str> {
    // rustdoc checks links to items.
    if ["://", "mailto:", "crate::"].iter().any(|it| link.contains(it)) {
        return None;
    }
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = match path {
        "" => file.to_owned(),
        path => file.with_file_name(path),
    };
    let root = sh.current_dir().canonicalize().ok()?;
    let Ok(target) = root.join(target).canonicalize() else { return Some("no such file") };
    let target = target.strip_prefix(root).ok()?;
    let document = documents.get(target).filter(|_| !anchor.is_empty())?;
    (!document.anchors.contains(anchor)).then_some("no such heading")
}

fn parse(text: &str) -> Document {
    let mut document = Document::default();
    let mut undefined = Vec::new();
    // `[text]` alone may be text.
    let mut callback = |link: BrokenLink<'_>| {
        if link.link_type != LinkType::Shortcut {
            undefined.push((link.span.start, link.reference.to_string()));
        }
        None
    };
    let options = Options::ENABLE_TABLES | Options::ENABLE_FOOTNOTES;
    let parser = Parser::new_with_broken_link_callback(text, options, Some(&mut callback));
    let line = |at: usize| text[..at].lines().count().max(1);
    let mut heading = None;
    let mut counts = BTreeMap::<String, usize>::new();
    for (event, range) in parser.into_offset_iter() {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => {
                let slug = slug(&heading.take().unwrap_or_default());
                let count = counts.entry(slug.clone()).or_default();
                let suffix = if *count == 0 { String::new() } else { format!("-{count}") };
                document.anchors.insert(slug + &suffix);
                *count += 1;
            }
            Event::Text(text) | Event::Code(text) => {
                heading.iter_mut().for_each(|heading| heading.push_str(&text));
            }
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                document.links.push((line(range.start + 1), dest_url.to_string()));
            }
            _ => {}
        }
    }
    document.links.extend(undefined.into_iter().map(|(at, name)| (line(at + 1), name)));
    document
}

/// Returns the anchor that GitHub gives a heading.
fn slug(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || ['-', '_', ' '].contains(c));
    kept.collect::<String>().trim().to_lowercase().replace(' ', "-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_links_are_found() {
        let sh = Shell::new().unwrap();
        let directory = sh.create_temp_dir().unwrap();
        sh.change_dir(directory.path());
        let (file, other) = (PathBuf::from("docs/a.md"), PathBuf::from("README.md"));
        sh.write_file(&file, "").unwrap();
        sh.write_file(&other, "").unwrap();
        let documents = BTreeMap::from([
            (file.clone(), parse("# A `b` heading!\n## Twice\n## Twice\n")),
            (other, parse("# Title\n")),
        ]);
        for (link, is_broken) in [
            ("#a-b-heading", false),
            ("#twice-1", false),
            ("#twice-2", true),
            ("../README.md", false),
            ("../README.md#title", false),
            ("../README.md#subtitle", true),
            ("README.md", true),
            ("https://example.org/missing", false),
        ] {
            assert_eq!(broken(&sh, &documents, &file, link).is_some(), is_broken, "{link}");
        }
    }

    #[test]
    fn all_kinds_of_links_are_collected() {
        let text = "[a](b.md) ![c](d.svg)\n\n[e][f] [g][missing] [text]\n\n[f]: h.md\n";
        let links: Vec<_> = parse(text).links.into_iter().collect();
        let expected = [(1, "b.md"), (1, "d.svg"), (3, "h.md"), (3, "missing")];
        assert_eq!(links, expected.map(|(line, link)| (line, link.to_owned())));
    }
}
