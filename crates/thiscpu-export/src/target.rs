//! A segment that is exported, while its file may go or be replaced.

use std::ffi::OsStr;
use std::path::Path;

use anyhow::Result;
use thiscpu_program::find;
use thiscpu_program::source::Source;
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
    /// How many segments were opened here, one after the other.
    opened: u64,
}

impl Target {
    /// Finds what a user asks for. The file of a name may come later.
    pub(crate) fn find(target: Option<&OsStr>, is_exact: bool) -> Result<Target> {
        let source = Source::find(target)?;
        let label = match source.path.strip_prefix(find::DIRECTORY) {
            Ok(name) => text::of_path(name),
            Err(_) => source.name.clone(),
        };
        Ok(Target { source, label, is_exact, reader: None, opened: 0 })
    }

    /// Returns the path of the segment.
    pub(crate) fn path(&self) -> &Path {
        &self.source.path
    }

    /// Returns how many segments have taken the place of another one.
    pub(crate) fn replaced(&self) -> u64 {
        self.opened.saturating_sub(1)
    }

    /// Reads the segment that has the name now.
    ///
    /// # Errors
    ///
    /// The reason for which there is none.
    pub(crate) fn look(&mut self) -> Result<Look, String> {
        let look = self.renew().and_then(|reader| {
            let look = reader.look().map_err(|error| error.to_string())?;
            // Zeros replace the missing part of a file, so nothing of the look counts.
            match reader.is_lost() {
                true => Err("the segment's file was shortened".to_owned()),
                false => Ok(look),
            }
        });
        if look.is_err() {
            // Its memory is not kept for nobody, and the file is looked at again.
            self.reader = None;
            self.source.forget();
        }
        look
    }

    fn renew(&mut self) -> Result<&mut Reader, String> {
        let is_exact = self.is_exact;
        let open = |path: &Path| Reader::open(path, is_exact);
        let new = match &self.reader {
            None if self.opened == 0 => {
                Some(self.source.open(open).map_err(|error| format!("{error:#}"))?)
            }
            reader => self.source.renew(reader.as_ref().is_some_and(Reader::is_lost), open)?,
        };
        self.opened += u64::from(new.is_some());
        if new.is_some() {
            self.reader = new;
        }
        self.reader.as_mut().ok_or_else(|| "the segment was not opened".to_owned())
    }
}
