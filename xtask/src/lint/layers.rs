//! No file imports from a layer above its own, and no files or folders import each other in a
//! circle.
//!
//! A method of another file's type is an import only if the type is named. Tests and `model/`,
//! which replaces parts of every layer, are left out.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Result;
use xshell::{Shell, cmd};

use super::modules::Crate;

/// The layers of a directory, from the lowest to the highest.
///
/// A layer is a file without `.rs`, or a folder. Entries that are not listed are above all others.
const LAYERS: [(&str, &[&str]); 4] = [
    (
        "crates/thiscpu/src",
        &[
            "tier",
            "error",
            "sys",
            "lanes",
            "section",
            "gate",
            "percpu",
            "counter",
            "budget",
            "rate",
            "ledger",
            "slab",
            "segment",
            "__internal",
            "__test_support",
        ],
    ),
    ("crates/thiscpu/src/slab", &["lane", "arena", "backend", "class"]),
    ("crates/thiscpu/src/segment", &["lanes", "budget", "file", "member"]),
    (
        "crates/thiscpu-top/src",
        &[
            "numbers", "sample", "cells", "health", "order", "source", "session", "report",
            "terminal", "ui", "screen", "watch",
        ],
    ),
];

/// Files of these directories may import each other: they are one data structure.
const CIRCLES_ALLOWED: [&str; 1] = ["crates/thiscpu/src/slab/arena"];

/// Returns one line for each import that breaks a rule.
pub(super) fn check(sh: &Shell) -> Result<Vec<String>> {
    let root = sh.current_dir();
    let sources = cmd!(sh, "git ls-files *src/*.rs").quiet().read()?;
    let mut findings = unreached(sh, &sources);
    for file in cmd!(sh, "git ls-files *src/lib.rs *src/main.rs").quiet().read()?.lines() {
        let imports = Crate::parse(&root.join(file))?.imports();
        let relative =
            |path: PathBuf| path.strip_prefix(&root).map_or(path.clone(), Path::to_owned);
        let imports =
            imports.into_iter().map(|(from, to)| (relative(from), relative(to))).collect();
        findings.extend(upward(&imports));
        findings.extend(circles(&imports));
    }
    Ok(findings)
}

/// Finds files below `src` that no `mod` of the file above names: nothing compiles them.
fn unreached(sh: &Shell, sources: &str) -> Vec<String> {
    let is_reached = |file: &Path| {
        let stem = |path: &Path| path.file_stem().and_then(|it| it.to_str()).map(str::to_owned);
        let module = if file.ends_with("mod.rs") { file.parent()? } else { file };
        let (name, above) = (stem(module)?, module.parent()?);
        let named = [format!("mod {name};"), format!("#[path = \"{name}.rs\"]")];
        let parents = ["mod.rs", "lib.rs", "main.rs"].map(|it| above.join(it));
        let mut parents = parents.into_iter().chain([above.with_extension("rs")]);
        Some(parents.any(|it| {
            sh.read_file(it).is_ok_and(|text| named.iter().any(|named| text.contains(named)))
        }))
    };
    let is_root = |file: &str| ["src/lib.rs", "src/main.rs"].iter().any(|it| file.ends_with(it));
    let files = sources.lines().filter(|file| !is_root(file) && sh.path_exists(file));
    let lost = files.filter(|file| is_reached(Path::new(file)) == Some(false));
    lost.map(|file| format!("{file}: no module, so nothing compiles it")).collect()
}

type Imports = BTreeSet<(PathBuf, PathBuf)>;

fn upward(imports: &Imports) -> Vec<String> {
    let mut findings = Vec::new();
    for (directory, layers) in LAYERS {
        let layer = |file: &Path| {
            let below = file.strip_prefix(directory).ok()?.components().next()?;
            let name = Path::new(below.as_os_str()).with_extension("");
            Some(layers.iter().position(|layer| Path::new(layer) == name).unwrap_or(layers.len()))
        };
        let is_upward = |(from, to): &&(PathBuf, PathBuf)| {
            layer(from).zip(layer(to)).is_some_and(|(from, to)| from < to)
        };
        findings.extend(imports.iter().filter(is_upward).map(|(from, to)| {
            format!("{}: imports from {}, which is in a higher layer", from.display(), to.display())
        }));
    }
    findings
}

/// Finds circles among the entries of each directory, files and folders.
///
/// A directory's own `mod.rs`, `lib.rs` or `main.rs` may use its entries, and they may use it.
fn circles(imports: &Imports) -> Vec<String> {
    let files = imports.iter().flat_map(|(from, to)| [from, to]);
    let directories: BTreeSet<_> = files.flat_map(|file| file.ancestors().skip(1)).collect();
    let mut findings = Vec::new();
    for directory in directories.iter().filter(|it| !CIRCLES_ALLOWED.map(Path::new).contains(*it)) {
        let entries = imports.iter().filter_map(|(from, to)| {
            entry(directory, from).zip(entry(directory, to)).filter(|(from, to)| from != to)
        });
        findings.extend(circles_of(entries.collect()).into_iter().map(|circle| {
            format!("{}: imports in a circle: {}", directory.display(), circle.join(", "))
        }));
    }
    findings
}

/// Returns the entry of `directory` that `file` is or lies in.
fn entry(directory: &Path, file: &Path) -> Option<PathBuf> {
    let first = file.strip_prefix(directory).ok()?.components().next()?;
    // `a.rs` and `a/` are one module.
    let name = Path::new(first.as_os_str()).with_extension("");
    (!["mod", "lib", "main"].map(Path::new).contains(&&*name)).then_some(name)
}

/// Returns the names of files that import each other, directly or through others.
fn circles_of(imports: Imports) -> BTreeSet<Vec<String>> {
    let mut all = imports;
    loop {
        let next = |(from, to): &(PathBuf, PathBuf)| {
            let behind = all.iter().filter(|other| other.0 == *to);
            behind.map(|(_, to)| (from.clone(), to.clone())).collect::<Vec<_>>()
        };
        let indirect: Vec<_> = all.iter().flat_map(next).collect();
        let before = all.len();
        all.extend(indirect);
        if all.len() == before {
            break;
        }
    }
    let circle = |(from, _): &(PathBuf, PathBuf)| {
        let back =
            all.iter().filter(|(one, to)| one == from && all.contains(&(to.clone(), one.clone())));
        back.map(|(_, to)| to.display().to_string()).collect()
    };
    all.iter().map(circle).filter(|circle: &Vec<_>| !circle.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_without_a_module_is_found() {
        let sh = Shell::new().unwrap();
        let directory = sh.create_temp_dir().unwrap();
        sh.change_dir(directory.path());
        sh.write_file("src/lib.rs", "mod a;").unwrap();
        sh.write_file("src/a/mod.rs", "#[path = \"b.rs\"]\nmod other;").unwrap();
        _ = ["src/a/b.rs", "src/lost.rs"].map(|file| sh.write_file(file, "").unwrap());
        let found = unreached(&sh, "src/lib.rs\nsrc/a/mod.rs\nsrc/a/b.rs\nsrc/lost.rs");
        assert_eq!(found, ["src/lost.rs: no module, so nothing compiles it"]);
    }

    fn imports(pairs: &[(&str, &str)]) -> Imports {
        pairs.iter().map(|(from, to)| (from.into(), to.into())).collect()
    }

    #[test]
    fn upward_import_is_found() {
        let [low, high] = ["crates/thiscpu/src/sys/fork.rs", "crates/thiscpu/src/counter/mod.rs"];
        assert_eq!(upward(&imports(&[(low, high)])).len(), 1);
        assert!(upward(&imports(&[(high, low)])).is_empty());
        let [lane, cache] =
            ["crates/thiscpu/src/slab/lane/mod.rs", "crates/thiscpu/src/slab/cache.rs"];
        assert_eq!(upward(&imports(&[(lane, cache)])).len(), 1);
        assert!(upward(&imports(&[(cache, lane)])).is_empty());
    }

    #[test]
    fn circle_of_files_is_found() {
        let found = circles(&imports(&[("a/x.rs", "a/y.rs"), ("a/y.rs", "a/z.rs")]));
        assert!(found.is_empty(), "{found:?}");
        let found = circles(&imports(&[("a/x.rs", "a/y.rs"), ("a/y.rs", "a/x.rs")]));
        assert_eq!(found, ["a: imports in a circle: x, y"]);
    }

    #[test]
    fn circle_of_folders_is_found() {
        let found = circles(&imports(&[("a/x/1.rs", "a/y.rs"), ("a/y/2.rs", "a/x/3.rs")]));
        assert_eq!(found, ["a: imports in a circle: x, y"]);
    }

    #[test]
    fn module_and_its_own_entries_may_use_each_other() {
        let found = circles(&imports(&[("a/mod.rs", "a/x.rs"), ("a/x.rs", "a/mod.rs")]));
        assert!(found.is_empty(), "{found:?}");
    }
}
