//! The user's choice of panes and rows, and the keys that change it.

use crate::session::Session;
use crate::terminal::Key;

/// A part of the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Pane {
    #[default]
    Counters,
    Budgets,
    Processes,
}

impl Pane {
    pub(crate) const ALL: [Pane; 3] = [Pane::Counters, Pane::Budgets, Pane::Processes];

    fn next(self) -> Pane {
        Pane::ALL[(self as usize + 1) % Pane::ALL.len()]
    }
}

/// The state of the screen.
#[derive(Debug, Default)]
pub(crate) struct Ui {
    /// The pane that scrolls.
    pub(crate) focus: Pane,
    /// The first visible row of each pane.
    pub(crate) firsts: [usize; Pane::ALL.len()],
    /// The rows of each pane, visible or not.
    pub(crate) lens: [usize; Pane::ALL.len()],
    /// The visible rows of the focused pane.
    pub(crate) page: usize,
    pub(crate) shows_help: bool,
    /// The filter from before, while the user writes another.
    pub(crate) filter_before: Option<String>,
}

/// The next step after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Draw,
    DrawAll,
    Suspend,
    Quit,
}

impl Ui {
    /// Does what a key stands for.
    pub(crate) fn on_key(&mut self, key: Key, session: &mut Session) -> Step {
        match key {
            Key::Ctrl('c') => return Step::Quit,
            Key::Ctrl('l') => return Step::DrawAll,
            Key::Ctrl('z') => return Step::Suspend,
            _ if self.shows_help => self.shows_help = false,
            _ if self.filter_before.is_some() => self.edit_filter(key, session),
            Key::Char('q') => return Step::Quit,
            Key::Char('?' | 'h') => self.shows_help = true,
            Key::Char('p' | ' ') => session.is_paused = !session.is_paused,
            Key::Char('s') => {
                session.choice.sort = session.choice.sort.next();
                self.scroll_to_top();
            }
            Key::Char('r') => {
                session.choice.is_reversed = !session.choice.is_reversed;
                self.scroll_to_top();
            }
            Key::Char('/') => self.filter_before = Some(session.choice.filter.clone()),
            Key::Escape => self.set_filter(String::new(), session),
            Key::Tab => self.focus_next(),
            key => self.scroll(key),
        }
        Step::Draw
    }

    fn edit_filter(&mut self, key: Key, session: &mut Session) {
        let mut filter = session.choice.filter.clone();
        match key {
            Key::Enter => {
                self.filter_before = None;
                return;
            }
            Key::Escape => filter = self.filter_before.take().unwrap_or_default(),
            Key::Backspace => _ = filter.pop(),
            Key::Char(character) => filter.push(character),
            _ => return,
        }
        self.set_filter(filter, session);
    }

    fn set_filter(&mut self, filter: String, session: &mut Session) {
        session.choice.filter = filter;
        session.match_names();
        self.scroll_to_top();
    }

    fn scroll_to_top(&mut self) {
        self.firsts = [0; Pane::ALL.len()];
    }

    /// Gives the next pane that has rows the focus.
    fn focus_next(&mut self) {
        for _ in Pane::ALL {
            self.focus = self.focus.next();
            if self.lens[self.focus as usize] > 0 {
                return;
            }
        }
    }

    fn scroll(&mut self, key: Key) {
        let first = &mut self.firsts[self.focus as usize];
        let last = self.lens[self.focus as usize].saturating_sub(self.page);
        let page = self.page.max(1);
        *first = match key {
            Key::Up | Key::Char('k') => first.saturating_sub(1),
            Key::Down | Key::Char('j') => *first + 1,
            Key::PageUp => first.saturating_sub(page),
            Key::PageDown => *first + page,
            Key::Home | Key::Char('g') => 0,
            Key::End | Key::Char('G') => last,
            _ => return,
        };
        *first = (*first).min(last);
    }
}
