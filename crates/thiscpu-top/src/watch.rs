//! The loop that draws, waits for keys, and looks at the segment again.

use std::io;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use signal_hook::consts::SIGHUP;

use crate::screen::{self, Style};
use crate::session::Session;
use crate::terminal::{self, Event, Terminal};
use crate::ui::{Step, Ui};

/// The most time for each list of a look, so that keys are answered soon.
const PATIENCE: Duration = Duration::from_millis(100);

/// Shows a segment until the user quits, or the terminal is gone.
pub(crate) fn run(session: &mut Session, interval: Duration) -> Result<()> {
    session.set_patience(PATIENCE);
    let mut terminal = Terminal::open()?;
    let end = show(&mut terminal, session, interval);
    drop(terminal);
    match end {
        Ok(None) => Ok(()),
        Ok(Some(signal)) => {
            terminal::end_by(signal);
            Ok(())
        }
        Err(why) if terminal::is_gone(&why) => {
            terminal::end_by(SIGHUP);
            Ok(())
        }
        Err(why) => Err(why).context("cannot use the terminal"),
    }
}

/// Returns the signal that has ended this, if one has.
fn show(
    terminal: &mut Terminal,
    session: &mut Session,
    interval: Duration,
) -> io::Result<Option<i32>> {
    let (mut ui, style) = (Ui::default(), Style::of_environment());
    let mut next_look = Instant::now();
    let mut is_drawn = false;
    loop {
        let now = Instant::now();
        if next_look <= now {
            // Looks that a busy machine has missed are left out.
            next_look = now + interval;
            if !session.is_paused {
                session.begin_tick();
                is_drawn = false;
            }
        }
        // Drawn after the last key that is there: a terminal may be slower than the keyboard.
        let deadline = if is_drawn { next_look } else { now };
        match terminal.next(deadline)? {
            Event::Timeout if is_drawn => {}
            Event::Timeout => {
                terminal.draw(|frame| screen::draw(frame, session, &mut ui, style))?;
                is_drawn = true;
            }
            Event::Resize => is_drawn = false,
            Event::Suspend => {
                terminal.suspend()?;
                is_drawn = false;
            }
            Event::Continue => {
                terminal.resume()?;
                is_drawn = false;
            }
            Event::End(signal) => return Ok(Some(signal)),
            Event::Key(key) => {
                match ui.on_key(key, session) {
                    Step::Draw => {}
                    Step::DrawAll => terminal.clear()?,
                    Step::Suspend => terminal.suspend()?,
                    Step::Quit => return Ok(None),
                }
                is_drawn = false;
            }
        }
    }
}
