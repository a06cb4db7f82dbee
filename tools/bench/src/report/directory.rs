//! The directory of a report: whether it may be written to, and how its files are replaced.

use std::{
    fs::{self, Permissions},
    io::{self, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};

use super::series;
use crate::{figures::is_csv, kind::Kind};

pub(super) const PAGE: &str = "index.html";

/// The file by which an earlier report is recognized.
const FIGURES: &str = "results.csv";

/// The prefix of files that are not written completely yet.
const TEMPORARY: &str = ".report-";

/// A directory that a report may be written to.
#[derive(Debug)]
pub(crate) struct Directory(PathBuf);

impl Directory {
    /// Creates the directory if needed, and checks that a file can be written.
    ///
    /// A directory with files but no report is refused, because one of them might be overwritten.
    pub(crate) fn prepare(path: &Path) -> Result<Self> {
        let shown = path.display();
        if path.exists() && !path.is_dir() {
            bail!("{shown} is a file; name a directory, which need not exist");
        }
        fs::create_dir_all(path)
            .with_context(|| format!("cannot create the directory {shown}; name another one"))?;
        let has_files = has_files(path)
            .with_context(|| format!("cannot read the directory {shown}; name another one"))?;
        let is_report = || fs::File::open(path.join(FIGURES)).is_ok_and(is_csv);
        if has_files && !is_report() {
            bail!(
                "{shown} has files that are not of a report; name an empty directory, a new one, \
                 or one with a report to replace"
            );
        }
        temporary(path)
            .with_context(|| format!("cannot write to the directory {shown}; name another one"))?;
        Ok(Self(path.to_owned()))
    }

    pub(crate) fn page(&self) -> PathBuf {
        self.0.join(PAGE)
    }

    /// Writes files, each of which appears whole, and removes plots that are not among them.
    pub(super) fn replace(&self, files: &[(String, Vec<u8>)]) -> Result<()> {
        // The figures come first: by them the directory is a report's, even if this fails halfway.
        let (figures, others): (Vec<_>, Vec<_>) =
            files.iter().partition(|(name, _)| name == FIGURES);
        for (name, content) in figures.into_iter().chain(others) {
            self.put(name, content)
                .with_context(|| format!("cannot write {}", self.0.join(name).display()))?;
        }
        let is_new = |name: &String| files.iter().any(|(new, _)| new == name);
        for stale in plots().filter(|name| !is_new(name)) {
            // Most do not exist.
            let _ = fs::remove_file(self.0.join(stale));
        }
        Ok(())
    }

    fn put(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let mut file = temporary(&self.0)?;
        file.write_all(content)?;
        file.persist(self.0.join(name))?;
        Ok(())
    }
}

/// Returns the names of all plots that any report has.
fn plots() -> impl Iterator<Item = String> {
    Kind::all()
        .map(series::slug)
        .flat_map(|slug| [format!("{slug}.svg"), format!("{slug}-deviations.svg")])
}

/// Makes a file that is deleted when dropped, with the usual permissions of a new file.
fn temporary(directory: &Path) -> io::Result<tempfile::NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(TEMPORARY).permissions(Permissions::from_mode(0o666));
    builder.tempfile_in(directory)
}

/// Returns whether a directory has files other than those that a killed run left behind.
fn has_files(path: &Path) -> io::Result<bool> {
    let names: io::Result<Vec<_>> =
        fs::read_dir(path)?.map(|entry| Ok(entry?.file_name())).collect();
    Ok(names?.iter().any(|name| !name.to_string_lossy().starts_with(TEMPORARY)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::figures::to_csv;

    fn file(name: &str, content: &str) -> (String, Vec<u8>) {
        (name.to_owned(), content.into())
    }

    /// Returns the figures of a report without rows, by which it is recognized too.
    fn figures() -> (String, Vec<u8>) {
        (FIGURES.to_owned(), to_csv(&[]).unwrap())
    }

    fn names(directory: &Path) -> BTreeSet<String> {
        let entries = fs::read_dir(directory).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn directory_is_created_and_stays_empty_until_written() {
        let above = tempfile::tempdir().unwrap();
        let path = above.path().join("one/two");
        let directory = Directory::prepare(&path).unwrap();
        assert_eq!(names(&path), BTreeSet::new());
        directory.replace(&[file(PAGE, "page")]).unwrap();
        assert_eq!(fs::read_to_string(path.join(PAGE)).unwrap(), "page");
        let beside = path.join("beside");
        fs::write(&beside, "").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&path.join(PAGE)), mode(&beside));
    }

    #[test]
    fn foreign_files_are_not_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(PAGE), "a page of another program").unwrap();
        for figures in [None, Some("no figures"), Some("")] {
            if let Some(text) = figures {
                fs::write(directory.path().join(FIGURES), text).unwrap();
            }
            let why = Directory::prepare(directory.path()).unwrap_err().to_string();
            assert!(why.contains("not of a report"), "{why}");
        }
    }

    #[test]
    fn earlier_report_is_replaced_and_only_its_plots_are_removed() {
        let above = tempfile::tempdir().unwrap();
        let path = above.path().join("report");
        let first = Directory::prepare(&path).unwrap();
        first.replace(&[file("add.svg", "1"), file("sum-token.svg", "1"), figures()]).unwrap();
        fs::write(path.join("mine.svg"), "").unwrap();
        // A report that ended in the middle of this leaves a directory that is a report's.
        fs::create_dir(path.join(PAGE)).unwrap();
        first.replace(&[file(PAGE, ""), figures()]).unwrap_err();
        fs::remove_dir(path.join(PAGE)).unwrap();
        fs::write(path.join(".report-left"), "").unwrap();

        let second = Directory::prepare(&path).unwrap();
        second.replace(&[file("sum-token.svg", "2"), figures()]).unwrap();
        let left = [".report-left", "mine.svg", "sum-token.svg", FIGURES];
        assert_eq!(names(&path), BTreeSet::from(left.map(str::to_owned)));
        assert_eq!(fs::read_to_string(path.join("sum-token.svg")).unwrap(), "2");
    }
}
