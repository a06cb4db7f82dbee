//! The panes, on a terminal in memory.

use std::fs;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use tempfile::TempDir;
use thiscpu::Segment;

use super::*;
use crate::order::{Choice, SortKey};
use crate::terminal::Key;

/// A segment, and somebody who looks at it.
struct Viewer {
    directory: TempDir,
    segment: Segment,
    session: Session,
    ui: Ui,
}

impl Viewer {
    fn new(fill: impl FnOnce(&Segment)) -> Viewer {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = directory.path().join("shop");
        let segment = Segment::options().max_bytes(1 << 20).create(&path).unwrap();
        fill(&segment);
        let choice = Choice { sort: SortKey::Name, ..Choice::default() };
        let interval = Duration::from_secs(1);
        let session = Session::open(Some(path.as_os_str()), interval, choice).unwrap();
        Viewer { directory, segment, session, ui: Ui::default() }
    }

    /// Looks again, and returns the lines of a screen of some size.
    fn look(&mut self, width: u16, height: u16) -> Vec<String> {
        if !self.session.is_paused {
            self.session.begin_tick();
        }
        self.draw(width, height)
    }

    fn draw(&mut self, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let style = Style::default();
        terminal.draw(|frame| draw(frame, &mut self.session, &mut self.ui, style)).unwrap();
        let cells = terminal.backend().buffer().content();
        let lines = cells.chunks(usize::from(width));
        lines
            .map(|line| line.iter().map(|cell| cell.symbol()).collect::<String>())
            .map(|line| line.trim_end().to_owned())
            .collect()
    }

    fn keys(&mut self, keys: &[Key]) {
        for &key in keys {
            self.ui.on_key(key, &mut self.session);
        }
    }
}

#[test]
fn panes_show_all_kinds_of_objects() {
    let mut held = None;
    let mut viewer = Viewer::new(|segment| {
        segment.counter("requests").unwrap().add(1_234_567);
        segment.counters::<2>("pair").unwrap().add(1, -5);
        let budget = segment.budget("connections", 100).unwrap();
        budget.acquire(30).unwrap();
        assert_eq!(budget.available(), 70);
        held = Some(budget);
    });
    let pid = std::process::id();
    let lines = viewer.look(80, 16);
    let expected = [
        "               VALUE   RATE/S  COUNTER (1-3 of 3)".to_owned(),
        "                   0        -  pair[0]".to_owned(),
        "                  -5        -  pair[1]".to_owned(),
        "             1234567        -  requests".to_owned(),
    ];
    assert_eq!(lines[2..6], expected, "{lines:#?}");
    let from = lines.iter().position(|line| line.contains("LIMIT")).unwrap();
    let expected = [
        "   LIMIT     HELD     FREE WAITING  BUDGET       PID:HELD (1-1 of 1)".to_owned(),
        format!("     100       30       70      no  connections  {pid}:30"),
        "   PROCESS  SLOT  STATE         HELD  BUDGETS (1-1 of 1)".to_owned(),
        format!("{pid:>10}     0  alive           30        1"),
    ];
    assert_eq!(lines[from..from + 4], expected, "{lines:#?}");
    assert!(lines[15].starts_with("q quit  ? help  s sort=name  / filter  p pause"), "{lines:#?}");
}

#[test]
fn narrow_panes_fit() {
    let mut viewer = Viewer::new(|segment| {
        segment.counter("requests").unwrap().add(1_234_567_890);
        segment.budget("connections", 12_345_678).unwrap();
    });
    let lines = viewer.look(40, 12);
    assert!(lines.contains(&"   1.23G       - requests".to_owned()), "{lines:#?}");
    assert!(lines.iter().any(|line| line.ends_with("  12.3M      no connections")), "{lines:#?}");
    assert!(lines[0].starts_with("thiscpu-top ") && lines[0].ends_with("shop"), "{lines:#?}");
    // The end of a path that is too long.
    let lines = viewer.look(24, 12);
    assert!(lines[0].starts_with("thiscpu-top ..") && lines[0].ends_with("/shop"), "{lines:#?}");
}

#[test]
fn no_size_is_too_small() {
    let mut viewer = Viewer::new(|segment| {
        segment.counter("é\u{200b}日本語").unwrap().inc();
        segment.budget("connections", 10).unwrap();
    });
    for width in [1, 2, 3, 10, 37] {
        for height in 1..12 {
            viewer.look(width, height);
        }
    }
}

#[test]
fn damage_and_stale_values_are_told() {
    let mut viewer = Viewer::new(|segment| segment.counter("requests").unwrap().add(7));
    viewer.look(80, 10);
    viewer.session.sample.damaged = 1;
    assert_eq!(viewer.draw(80, 10)[1], "1 record is damaged");
    viewer.session.sample.damaged = 0;
    fs::remove_file(viewer.directory.path().join("shop")).unwrap();
    viewer.segment.counter("requests").unwrap().add(1);
    let lines = viewer.look(80, 10);
    assert_eq!(lines[1], "STALE: the segment was removed; restart its service; values are old");
    assert!(lines.iter().any(|line| line.ends_with(" 7        -  requests")), "{lines:#?}");
}

#[test]
fn paused_values_stay() {
    let mut viewer = Viewer::new(|segment| segment.counter("requests").unwrap().add(7));
    viewer.look(80, 10);
    viewer.keys(&[Key::Char('p')]);
    viewer.segment.counter("requests").unwrap().add(1);
    let lines = viewer.look(80, 10);
    assert!(lines[1].starts_with("PAUSED"), "{lines:#?}");
    assert!(lines.iter().any(|line| line.ends_with(" 7        -  requests")), "{lines:#?}");
    viewer.keys(&[Key::Char(' ')]);
    let lines = viewer.look(80, 10);
    assert!(lines.iter().any(|line| line.contains(" 8 ")), "{lines:#?}");
}

#[test]
fn only_visible_rows_are_read_in_order_of_names() {
    let mut viewer = Viewer::new(|segment| {
        for number in 0..100 {
            segment.counter(&format!("n{number:03}")).unwrap().inc();
        }
    });
    let read = |viewer: &Viewer| {
        let rows = 0..viewer.session.sample.rows.len() as u32;
        rows.filter(|&row| viewer.session.sample.row(row).unwrap().2.is_some()).count()
    };
    let lines = viewer.look(80, 10);
    assert!(lines[2].contains("COUNTER (1-6 of 100)"), "{lines:#?}");
    assert_eq!(read(&viewer), 6);
    viewer.keys(&[Key::End]);
    let lines = viewer.draw(80, 10);
    assert!(lines[8].ends_with("1        -  n099"), "{lines:#?}");
    assert_eq!(read(&viewer), 12);
    viewer.keys(&[Key::Char('s')]);
    viewer.draw(80, 10);
    assert_eq!(read(&viewer), 100);
}

#[test]
fn filter_is_edited_and_dropped() {
    let mut viewer = Viewer::new(|segment| {
        for name in ["alpha", "Beta", "gamma"] {
            segment.counter(name).unwrap();
        }
    });
    viewer.look(80, 10);
    viewer.keys(&[Key::Char('/'), Key::Char('b'), Key::Char('q'), Key::Backspace]);
    let lines = viewer.draw(80, 10);
    assert_eq!(lines[9], "filter: b_  (Enter, Esc)");
    assert!(lines[3].ends_with("Beta") && lines[4].is_empty(), "{lines:#?}");
    viewer.keys(&[Key::Enter, Key::Char('/'), Key::Char('x'), Key::Escape]);
    assert!(viewer.draw(80, 10)[9].contains("/ filter=b  "));
    viewer.keys(&[Key::Escape]);
    assert!(viewer.draw(80, 10)[2].contains("(1-3 of 3)"));
}

#[test]
fn focused_pane_gets_the_room_and_small_screens_show_it_alone() {
    assert_eq!(heights([100, 100, 100], Pane::Counters, 20), [Some(9), Some(4), Some(4)]);
    assert_eq!(heights([100, 100, 100], Pane::Budgets, 20), [Some(4), Some(9), Some(4)]);
    assert_eq!(heights([100, 1, 0], Pane::Counters, 20), [Some(17), Some(1), None]);
    assert_eq!(heights([100, 1, 1], Pane::Budgets, 9), [None, Some(8), None]);
    assert_eq!(heights([0, 0, 0], Pane::Counters, 0), [Some(0), None, None]);
}

#[test]
fn many_budgets_are_sorted_in_one_way_and_held_is_of_now() {
    let mut budgets = Vec::new();
    let mut viewer = Viewer::new(|segment| {
        for number in 0..=BUDGETS_MAX as u64 {
            let budget = segment.budget(&format!("b{number:02}"), 1000).unwrap();
            // Units that are lent to CPUs make the states inexact.
            budgets.push(budget);
        }
    });
    let leases: Vec<_> =
        budgets.iter().zip(1..).map(|(budget, units)| budget.try_acquire(units).unwrap()).collect();
    viewer.session.choice.sort = SortKey::Value;
    viewer.keys(&[Key::Tab]);
    let mut taken: Vec<i64> = Vec::new();
    viewer.look(80, 10);
    viewer.session.begin_tick();
    for at in viewer.session.budgets(0, usize::MAX) {
        taken.push(viewer.session.sample.budgets[at as usize].taken());
    }
    assert!(taken.is_sorted_by(|one, other| one >= other), "{taken:?}");
    // Nobody has read the processes in this tick, so those from before do not count.
    drop(leases);
    viewer.session.begin_tick();
    for at in viewer.session.budgets(0, usize::MAX) {
        let budget = &viewer.session.sample.budgets[at as usize];
        assert_eq!(budget.held(), budget.taken(), "{}", budget.name);
    }
}
