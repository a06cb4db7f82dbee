//! Colors, and what stands for them where there are none.

use ratatui::style::{Color, Modifier, Style as Cells};

/// Whether there are colors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Style {
    has_colors: bool,
}

impl Style {
    /// Returns the style that the environment asks for.
    pub(crate) fn of_environment() -> Style {
        Style { has_colors: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) }
    }

    /// Returns the style of the first line.
    pub(super) fn title(self) -> Cells {
        Cells::new().add_modifier(Modifier::BOLD)
    }

    /// Returns the style of a pane's label.
    pub(super) fn label(self, is_focused: bool) -> Cells {
        match is_focused {
            true => Cells::new().add_modifier(Modifier::REVERSED | Modifier::BOLD),
            false => Cells::new().add_modifier(Modifier::REVERSED),
        }
    }

    /// Returns the style of what somebody should look at.
    pub(super) fn alarm(self) -> Cells {
        match self.has_colors {
            true => Cells::new().fg(Color::Red).add_modifier(Modifier::BOLD),
            false => Cells::new().add_modifier(Modifier::BOLD),
        }
    }

    /// Returns the style of a budget that is at its limit.
    pub(super) fn full(self) -> Cells {
        match self.has_colors {
            true => Cells::new().fg(Color::Yellow),
            false => Cells::new(),
        }
    }
}
