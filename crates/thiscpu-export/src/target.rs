//! A segment that is exported, while its file may go or be replaced.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use thiscpu_program::find;
use thiscpu_program::source::{self, Source};
use thiscpu_program::text;

use crate::look::{Look, Reader};

/// A segment that is exported.
pub(crate) struct Target {
    source: Source,
    /// The value of the label `segment`.
    pub(crate) label: String,
    /// Whether lanes are sealed for exact values.
    pub(crate) is_exact: bool,
    reader: Option<Reader>,
}

impl Target {
    /// Finds what a user asks for. The file of a name may come later.
    pub(crate) fn find(target: Option<&OsStr>, is_exact: bool) -> Result<Target> {
        let source = Source::find(target)?;
        let label = match source.path.strip_prefix(find::DIRECTORY) {
            Ok(name) => text::of_path(name),
            Err(_) => source.name.clone(),
        };
        Ok(Target { source, label, is_exact, reader: None })
    }

    /// Returns the path of the segment.
    pub(crate) fn path(&self) -> &Path {
        &self.source.path
    }

    /// Returns how many files have taken the place of another one.
    pub(crate) fn replaced(&self) -> u64 {
        self.source.replacements()
    }

    /// Reads the segment that has the name now, as far as there is time.
    ///
    /// # Errors
    ///
    /// The reason for which there is none.
    pub(crate) fn look(&mut self, deadline: Instant) -> Result<Look, String> {
        if Instant::now() >= deadline {
            // It stays open.
            return Err(
                "the others have taken all the time of the answer; export it by a program \
                        of its own"
                    .to_owned(),
            );
        }
        let look = self.renew().and_then(|reader| {
            let look = reader.look(deadline);
            // Zeros replace the missing part of a file, so nothing of the look counts.
            match reader.is_lost() {
                true => Err(source::SHORTENED.to_owned()),
                false => look.map_err(|error| find::reason(&error)),
            }
        });
        if look.is_err() {
            // Its memory is not kept for nobody, and the file is looked at again.
            self.reader = None;
            self.source.close();
        }
        look
    }

    fn renew(&mut self) -> Result<&mut Reader, String> {
        let is_exact = self.is_exact;
        let open = |path: &Path| Reader::open(path, is_exact);
        let is_lost = self.reader.as_ref().is_some_and(Reader::is_lost);
        let new = self.source.renew(is_lost, open)?;
        if new.is_some() {
            self.reader = new;
        }
        self.reader.as_mut().ok_or_else(|| "the segment was not opened; scrape again".to_owned())
    }
}
