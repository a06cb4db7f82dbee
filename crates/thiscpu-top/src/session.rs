//! A segment that is watched, while its file may go or be replaced.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use thiscpu::SegmentView;
use thiscpu_program::find;
use thiscpu_program::source::Source;

use crate::order::{Choice, Matching, SortKey};
use crate::sample::{Sample, Times};

/// How often a message about a new segment is shown.
const NOTICE_TICKS: u32 = 10;

/// A segment that is watched.
pub(crate) struct Session {
    source: Source,
    times: Times,
    pub(crate) sample: Sample,
    pub(crate) matching: Matching,
    pub(crate) choice: Choice,
    /// Why the values are not those of now.
    pub(crate) stale: Option<String>,
    /// Whether values stay as they are.
    pub(crate) is_paused: bool,
    notice_ticks: u32,
}

impl Session {
    /// Opens what a user asks for.
    pub(crate) fn open(
        target: Option<&OsStr>,
        interval: Duration,
        choice: Choice,
    ) -> Result<Session> {
        let mut source = Source::find(target)?;
        // A look may come late on a busy machine.
        let age_max = 3 * interval + Duration::from_secs(2);
        let times = Times { age_max, patience: Duration::MAX };
        let sample = Sample::new(source.open(find::open)?, times);
        let (matching, stale) = (Matching::default(), None);
        Ok(Session {
            source,
            times,
            sample,
            matching,
            choice,
            stale,
            notice_ticks: 0,
            is_paused: false,
        })
    }

    /// Makes looks short for somebody who waits: the next ones go on where one has stopped.
    pub(crate) fn set_patience(&mut self, patience: Duration) {
        self.times.patience = patience;
        self.sample.set_times(self.times);
    }

    /// Returns the name of the segment.
    pub(crate) fn name(&self) -> &str {
        &self.source.name
    }

    /// Returns the path of the segment, which may lead to a file of a process.
    pub(crate) fn path(&self) -> &Path {
        &self.source.path
    }

    /// Returns whether another segment has taken the name a short time ago.
    pub(crate) fn is_replaced(&self) -> bool {
        self.notice_ticks > 0
    }

    /// Begins a new look, at another segment if that has the name now.
    pub(crate) fn begin_tick(&mut self) {
        self.notice_ticks = self.notice_ticks.saturating_sub(1);
        match self.source.renew(self.sample.is_lost(), find::open) {
            Ok(None) => self.stale = None,
            Ok(Some(view)) => self.replace(view),
            Err(why) => self.stale = Some(why),
        }
        if self.stale.is_none() {
            self.sample.begin_tick();
        }
        self.match_names();
    }

    /// Watches another segment from now on.
    fn replace(&mut self, view: SegmentView) {
        self.sample = Sample::new(view, self.times);
        self.matching.clear();
        self.stale = None;
        self.notice_ticks = NOTICE_TICKS;
    }

    /// Applies the filter.
    pub(crate) fn match_names(&mut self) {
        self.matching.update(&self.sample, &self.choice.filter);
    }

    /// Returns whether values are read.
    fn is_live(&self) -> bool {
        self.stale.is_none() && !self.is_paused
    }

    /// Reads who holds units of some budgets.
    pub(crate) fn participants(&mut self, budgets: &[u32]) {
        if self.is_live() {
            self.sample.read_participants(budgets.iter().copied());
        }
    }

    /// Returns rows of counters from `first` on, after it has read them.
    pub(crate) fn rows(&mut self, first: usize, count: usize) -> Vec<u32> {
        let range = first..first.saturating_add(count);
        let all = self.matching.rows.clone();
        if self.choice.sort != SortKey::Name && self.is_live() {
            self.sample.read_rows_in_turn(&all);
        }
        let rows = self.choice.rows(&self.sample, all, range);
        if self.is_live() {
            self.sample.read_rows(rows.iter().copied());
        }
        rows
    }

    /// Returns budgets from `first` on, after it has read them.
    pub(crate) fn budgets(&mut self, first: usize, count: usize) -> Vec<u32> {
        let range = first..first.saturating_add(count);
        let all = self.matching.budgets.clone();
        if self.choice.sort != SortKey::Name && self.is_live() {
            self.sample.read_budgets_in_turn(&all);
        }
        let budgets = self.choice.budgets(&self.sample, all, range);
        if self.is_live() {
            self.sample.read_budgets(budgets.iter().copied());
        }
        budgets
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use thiscpu::Segment;

    fn create(path: &Path, requests: i64) -> Segment {
        let segment = Segment::options().max_bytes(1 << 20).create(path).unwrap();
        segment.counter("requests").unwrap().add(requests);
        segment
    }

    fn look(session: &mut Session) -> i64 {
        session.begin_tick();
        let rows = session.rows(0, 10);
        session.sample.row(rows[0]).unwrap().2.unwrap().bounds.low
    }

    #[test]
    fn removed_segment_is_stale_until_another_has_its_name() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = directory.path().join("shop");
        let old = create(&path, 3);
        let choice = Choice::default();
        let mut session =
            Session::open(Some(path.as_os_str()), Duration::from_secs(1), choice).unwrap();
        assert_eq!(look(&mut session), 3);
        fs::remove_file(&path).unwrap();
        old.counter("requests").unwrap().add(10);
        assert_eq!(look(&mut session), 3);
        assert_eq!(session.stale.as_deref(), Some("the segment was removed; restart its service"));
        // A file that is no segment, and is not looked at only once.
        fs::write(&path, "").unwrap();
        for _ in 0..2 {
            assert_eq!(look(&mut session), 3);
            assert!(session.stale.as_ref().unwrap().contains("it is not a segment"));
        }
        fs::remove_file(&path).unwrap();
        let new = create(&path, 5);
        assert_eq!(look(&mut session), 5);
        assert!(session.stale.is_none() && session.is_replaced());
        drop((old, new));
    }

    #[test]
    fn shortened_segment_is_stale() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = directory.path().join("shop");
        drop(create(&path, 3));
        let choice = Choice::default();
        let mut session =
            Session::open(Some(path.as_os_str()), Duration::from_secs(1), choice).unwrap();
        assert_eq!(look(&mut session), 3);
        File::options().write(true).open(&path).unwrap().set_len(4096).unwrap();
        assert_eq!(look(&mut session), 3);
        assert!(session.stale.as_ref().unwrap().contains("was shortened"));
        // Another segment is copied into the file, as `cp` does.
        let new = directory.path().join("new");
        drop(create(&new, 5));
        fs::copy(&new, &path).unwrap();
        assert_eq!(look(&mut session), 5);
        assert!(session.stale.is_none() && session.is_replaced());
    }
}
