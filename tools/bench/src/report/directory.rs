//! The directory of a report: whether it may be written to, and how its files are replaced.

use std::{
    collections::BTreeSet,
    fs::{self, Permissions},
    io::{self, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};

use crate::report::data::FORMAT;

/// The page's file.
pub(crate) const PAGE: &str = "index.html";

/// What the names of files begin with that are not written yet.
const TEMPORARY: &str = ".report-";

/// The file that says which others belong to the report.
pub(crate) const RESULTS: &str = "results.json";

/// A directory that was found to be fit for a report.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    /// Pictures that are there.
    pictures: BTreeSet<String>,
}

/// What [`RESULTS`] says of itself.
#[derive(Deserialize)]
struct Earlier {
    format: String,
    #[serde(default)]
    plots: BTreeSet<String>,
}

/// The same while files are being replaced.
#[derive(Serialize)]
struct Begun<'a> {
    format: &'static str,
    is_complete: bool,
    plots: &'a BTreeSet<String>,
}

impl Directory {
    /// Makes the directory if it is not there, and tries whether a file can be written.
    pub(crate) fn prepare(path: &Path) -> Result<Self> {
        let shown = path.display();
        if path.exists() && !path.is_dir() {
            bail!("{shown} is a file; name a directory for the report, or one that is to be made");
        }
        fs::create_dir_all(path).with_context(|| {
            format!("cannot make the directory {shown}; name one that you may make or write to")
        })?;
        let pictures = pictures_of_earlier(path)?;
        temporary(path).with_context(|| {
            format!("cannot write to the directory {shown}; name one that you may write to")
        })?;
        Ok(Self { path: path.to_owned(), pictures })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes files, each of which appears whole, and removes pictures that are not among them.
    pub(crate) fn replace(&mut self, files: &[(String, Vec<u8>)]) -> Result<()> {
        let names = files.iter().map(|(name, _)| name).filter(|name| is_picture(name));
        self.pictures.extend(names.cloned());
        // First, for whoever finds this half done: all of these are files of a report.
        let begun = Begun { format: FORMAT, is_complete: false, plots: &self.pictures };
        let begun = serde_json::to_vec(&begun)?;
        self.put(RESULTS, &begun).with_context(|| format!("cannot write {RESULTS}"))?;
        for (name, content) in files {
            self.put(name, content).with_context(|| format!("cannot write {name}"))?;
        }
        let is_new = |name: &String| files.iter().any(|(new, _)| new == name);
        for stale in self.pictures.iter().filter(|name| !is_new(name)) {
            // It may be gone already, which is as well.
            let _ = fs::remove_file(self.path.join(stale));
        }
        let names = files.iter().map(|(name, _)| name);
        self.pictures = names.filter(|name| is_picture(name)).cloned().collect();
        Ok(())
    }

    fn put(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let mut file = temporary(&self.path)?;
        file.write_all(content)?;
        file.persist(self.path.join(name))?;
        Ok(())
    }
}

/// A file that is gone when it is dropped, and that others may read as they may read any new file.
fn temporary(directory: &Path) -> io::Result<tempfile::NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(TEMPORARY).permissions(Permissions::from_mode(0o666));
    builder.tempfile_in(directory)
}

/// The pictures that an earlier report has left, if there is one; an error if there are files and no report, because one of
/// them might be overwritten.
fn pictures_of_earlier(path: &Path) -> Result<BTreeSet<String>> {
    let shown = path.display();
    let cannot_read = || format!("cannot read the directory {shown}; name another one");
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(path).with_context(cannot_read)? {
        names.insert(entry.with_context(cannot_read)?.file_name().to_string_lossy().into_owned());
    }
    // What a report that was killed was about to write.
    names.retain(|name| !name.starts_with(TEMPORARY));
    if names.is_empty() {
        return Ok(BTreeSet::new());
    }
    let earlier: Option<Earlier> = fs::read(path.join(RESULTS))
        .ok()
        .and_then(|text| serde_json::from_slice(&text).ok())
        .filter(|earlier: &Earlier| earlier.format == FORMAT);
    let Some(earlier) = earlier else {
        bail!(
            "{shown} has files in it that are not of a report; name an empty directory, one that is to be \
             made, or one with an earlier report, which is then replaced"
        );
    };
    let strange = names.iter().find(|name| is_picture(name) && !earlier.plots.contains(*name));
    if let Some(name) = strange {
        bail!(
            "{shown} has a picture {name} in it that is not of the report there, and might be replaced; move it, \
             or name another directory"
        );
    }
    Ok(earlier.plots.into_iter().filter(|name| is_picture(name)).collect())
}

/// Whether a name is one that a picture has: of this directory, whatever a file says that somebody may have changed.
fn is_picture(name: &str) -> bool {
    name.ends_with(".svg") && !name.contains('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, content: &str) -> (String, Vec<u8>) {
        (name.to_owned(), content.into())
    }

    fn names(directory: &Path) -> BTreeSet<String> {
        let entries = fs::read_dir(directory).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    fn results(plots: &str) -> (String, Vec<u8>) {
        file(RESULTS, &format!(r#"{{"format": "{FORMAT}", "plots": [{plots}]}}"#))
    }

    #[test]
    fn a_directory_is_made_and_stays_empty_until_something_is_written() {
        let above = tempfile::tempdir().unwrap();
        let path = above.path().join("one/two");
        let mut directory = Directory::prepare(&path).unwrap();
        assert_eq!(names(&path), BTreeSet::new());
        directory.replace(&[file(PAGE, "page")]).unwrap();
        assert_eq!(fs::read_to_string(path.join(PAGE)).unwrap(), "page");
        let mode = fs::metadata(path.join(PAGE)).unwrap().permissions().mode();
        let of_any_file = fs::metadata(file_beside(&path)).unwrap().permissions().mode();
        assert_eq!(mode, of_any_file);
    }

    fn file_beside(path: &Path) -> PathBuf {
        let beside = path.join("beside");
        fs::write(&beside, "").unwrap();
        beside
    }

    #[test]
    fn what_is_no_directory_is_refused() {
        let above = tempfile::tempdir().unwrap();
        let path = file_beside(above.path());
        let why = Directory::prepare(&path).unwrap_err().to_string();
        assert!(why.contains("is a file; name a directory"), "{why}");
        let why = Directory::prepare(&path.join("below")).unwrap_err().to_string();
        assert!(why.contains("cannot make the directory"), "{why}");
    }

    #[test]
    fn files_that_are_no_report_are_not_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(PAGE), "somebody's").unwrap();
        for results in [None, Some("no JSON"), Some(r#"{"format": "another"}"#)] {
            if let Some(text) = results {
                fs::write(directory.path().join(RESULTS), text).unwrap();
            }
            let why = Directory::prepare(directory.path()).unwrap_err().to_string();
            assert!(why.contains("not of a report"), "{why}");
        }
    }

    #[test]
    fn an_earlier_report_is_replaced_and_only_its_pictures_go() {
        let above = tempfile::tempdir().unwrap();
        let path = above.path().join("report");
        let mut first = Directory::prepare(&path).unwrap();
        let listed = r#""old.svg", "kept.svg", "../outside.svg", "notes.txt""#;
        let pictures = [file("old.svg", "1"), file("kept.svg", "1"), results(listed)];
        first.replace(&pictures).unwrap();
        fs::write(path.join("notes.txt"), "").unwrap();
        fs::write(above.path().join("outside.svg"), "").unwrap();
        fs::write(path.join("mine.svg"), "").unwrap();
        let why = Directory::prepare(&path).unwrap_err().to_string();
        assert!(why.contains("a picture mine.svg in it that is not of the report"), "{why}");
        fs::remove_file(path.join("mine.svg")).unwrap();

        let mut second = Directory::prepare(&path).unwrap();
        second.replace(&[file("kept.svg", "2"), file("new.svg", "2"), results("")]).unwrap();
        let left = ["kept.svg", "new.svg", "notes.txt", RESULTS];
        assert_eq!(names(&path), BTreeSet::from(left.map(str::to_owned)));
        assert!(above.path().join("outside.svg").exists());
        assert_eq!(fs::read_to_string(path.join("kept.svg")).unwrap(), "2");

        // A report that ends amid this leaves a directory that is a report's.
        fs::create_dir(path.join(PAGE)).unwrap();
        second.replace(&[file("late.svg", ""), file(PAGE, "")]).unwrap_err();
        fs::remove_dir(path.join(PAGE)).unwrap();
        fs::write(path.join(".report-left"), "").unwrap();
        let mut second = Directory::prepare(&path).unwrap();

        // What this report has written goes as well.
        second.replace(&[results("")]).unwrap();
        assert!(!path.join("new.svg").exists());
    }
}
