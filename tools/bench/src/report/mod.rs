//! A report to look at: `thiscpu-bench bench --report DIR`.
//!
//! A [`Report`] is a directory with one page that needs nothing else (`index.html`: plots, tables, the machine, how to repeat it), the
//! plots also as pictures of their own (`*.svg`), and the figures as `results.json`, `results.csv`, `rounds.csv` and `deviations.csv`. It is made before
//! anything is measured, so that a directory that cannot be written to is known then, and written anew after each outcome, so that what
//! was measured is there if a later case fails.
//!
//! The layers, each of which uses only those above it: `directory` (files), `machine` and `run` (what is said once), `series` (figures
//! by case, contender and threads), `data` (JSON and CSV), `plot` (SVG), `page` (HTML).

mod data;
mod directory;
mod machine;
mod page;
mod plot;
mod run;
mod series;

use std::path::{Path, PathBuf};

use crate::{case::Outcome, plan::Plan};
use anyhow::{Context as _, Result};

use self::{directory::Directory, run::Run};

/// The report of one run, in a directory.
#[derive(Debug)]
pub(crate) struct Report {
    directory: Directory,
    run: Run,
}

impl Report {
    /// Prepares `directory`, which is made if it is not there, for what `plan` will come to. `arguments` are those of the program, as it was
    /// called: the page says by them how to repeat the run. Nothing is in the directory before the first [`Report::write`].
    ///
    /// # Errors
    ///
    /// When the directory cannot be made or written to, or has files in it that no report has left there. It says
    /// what to do.
    pub(crate) fn prepare(
        directory: &Path,
        plan: &Plan,
        arguments: impl IntoIterator<Item = String>,
    ) -> Result<Self> {
        let run = Run::new(plan, arguments)?;
        Ok(Self { directory: Directory::prepare(directory)?, run })
    }

    /// Writes all files anew, with what came of the cases so far. Each appears whole or not at all; others of an
    /// earlier report in the same directory go.
    ///
    /// # Errors
    ///
    /// When a file cannot be written.
    pub(crate) fn write(&mut self, outcomes: &[Outcome]) -> Result<()> {
        let cases = series::cases(outcomes);
        let pictures = plot::pictures(&cases)?;
        let mut files: Vec<(String, Vec<u8>)> = pictures
            .iter()
            .map(|picture| (picture.file_name(), picture.to_file().into_bytes()))
            .collect();
        let names: Vec<String> = files.iter().map(|(name, _)| name.clone()).collect();
        files.push(("results.csv".to_owned(), data::figures_as_csv(outcomes)?));
        files.push(("rounds.csv".to_owned(), data::rounds_as_csv(outcomes)?));
        files.push(("deviations.csv".to_owned(), data::deviations_as_csv(outcomes)?));
        let page = page::page(&self.run, outcomes, &cases, &pictures);
        files.push((directory::PAGE.to_owned(), page.into_bytes()));
        // Last, because it is what tells that all of these are files of a report.
        let json = data::as_json(&self.run, outcomes, &names)?;
        files.push((directory::RESULTS.to_owned(), json));
        let failed = format!("cannot write the report to {}", self.directory.path().display());
        self.directory.replace(&files).context(failed)
    }

    /// Where the page is.
    pub(crate) fn page(&self) -> PathBuf {
        self.directory.path().join(directory::PAGE)
    }
}
