//! The terminal: raw mode, keys, signals, and the way back.
//!
//! The program reads keys itself. It must notice that the terminal is gone in any case: a library
//! that reads again after an error would use a whole CPU forever.

mod backend;
mod keys;

use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal as _, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use ratatui::Frame;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use backend::WriteOnly;
pub(crate) use keys::Key;

/// How long the rest of a key's bytes may take.
const REST_OF_KEY: Duration = Duration::from_millis(100);
/// How long the program may take to end after a signal.
///
/// It may be stuck in a write to a terminal that takes nothing.
const PATIENCE: Duration = Duration::from_secs(1);

/// Something that has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Key(Key),
    /// The terminal has another size.
    Resize,
    /// The terminal is gone, or somebody ends this program by a signal.
    End(i32),
    /// The deadline has passed.
    Timeout,
}

/// A terminal in raw mode, until this is dropped or the program panics.
pub(crate) struct Terminal {
    screen: ratatui::Terminal<WriteOnly>,
    keyboard: File,
    /// The numbers of signals.
    signals: UnixStream,
    /// The bytes of keys that were not taken yet.
    bytes: Vec<u8>,
}

impl Terminal {
    /// Takes the terminal over.
    pub(crate) fn open() -> Result<Terminal> {
        let stdin = io::stdin();
        let keyboard = match stdin.is_terminal() {
            true => stdin.as_fd().try_clone_to_owned().map(File::from),
            false => File::open("/dev/tty"),
        };
        let keyboard = keyboard.context("cannot read keys from a terminal")?;
        let signals = signals().context("cannot receive signals")?;
        restore_on_panic();
        // Dropped if the rest fails: then the terminal is given back.
        let screen = ratatui::Terminal::new(WriteOnly::new()).context("cannot use the terminal")?;
        let terminal = Terminal { screen, keyboard, signals, bytes: Vec::new() };
        take().context("cannot use the terminal")?;
        Ok(terminal)
    }

    /// Draws, and writes only the cells that have changed.
    pub(crate) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.screen.draw(draw).map(drop)
    }

    /// Makes the next draw write all cells.
    pub(crate) fn clear(&mut self) -> io::Result<()> {
        self.screen.clear()
    }

    /// Gives the terminal back, stops this process, and takes the terminal again.
    pub(crate) fn suspend(&mut self) -> io::Result<()> {
        self.screen.show_cursor()?;
        restore();
        emulate_default_handler(SIGTSTP)?;
        take()?;
        // Hides the cursor at the next draw.
        self.screen.clear()
    }

    /// Waits for a key, a signal, or the deadline.
    pub(crate) fn next(&mut self, deadline: Instant) -> io::Result<Event> {
        loop {
            let is_partial = !self.bytes.is_empty();
            if let Some(key) = keys::take(&mut self.bytes, false) {
                match key {
                    Some(key) => return Ok(Event::Key(key)),
                    None => continue,
                }
            }
            let rest = deadline.saturating_duration_since(Instant::now());
            let patience = if is_partial { REST_OF_KEY } else { rest };
            let [has_keys, has_signal] = wait(&self.keyboard, &self.signals, patience)?;
            if has_signal {
                let mut number = [0];
                self.signals.read_exact(&mut number)?;
                return Ok(match i32::from(number[0]) {
                    SIGWINCH => Event::Resize,
                    signal => Event::End(signal),
                });
            }
            if has_keys {
                let mut chunk = [0; 256];
                match self.keyboard.read(&mut chunk) {
                    Ok(0) => return Ok(Event::End(SIGHUP)),
                    Ok(count) => self.bytes.extend_from_slice(&chunk[..count]),
                    Err(why) if why.kind() == ErrorKind::Interrupted => {}
                    Err(_) => return Ok(Event::End(SIGHUP)),
                }
            } else if is_partial {
                if let Some(Some(key)) = keys::take(&mut self.bytes, true) {
                    return Ok(Event::Key(key));
                }
            } else if Instant::now() >= deadline {
                return Ok(Event::Timeout);
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        restore();
    }
}

/// Takes the terminal over.
fn take() -> io::Result<()> {
    enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen)
}

/// Gives the terminal back as it was.
///
/// Nobody could be told of an error: the terminal may be gone.
fn restore() {
    let _ = disable_raw_mode();
    let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
}

/// Gives the terminal back before a panic is reported on it.
fn restore_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        restore();
        report(panic);
    }));
}

/// Ends this process by a signal, as if it had not been caught.
pub(crate) fn end_by(signal: i32) {
    let _ = emulate_default_handler(signal);
}

/// Returns whether an error of a write means that the terminal is gone.
pub(crate) fn is_gone(why: &io::Error) -> bool {
    why.kind() == ErrorKind::BrokenPipe || why.raw_os_error() == Some(libc::EIO)
}

/// Starts a thread that passes signals on, and returns the stream of their numbers.
fn signals() -> io::Result<UnixStream> {
    let (ours, mut theirs) = UnixStream::pair()?;
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH])?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            let number = u8::try_from(signal).unwrap_or_default();
            let _ = theirs.write_all(&[number]);
            if signal != SIGWINCH {
                thread::sleep(PATIENCE);
                let _ = disable_raw_mode();
                end_by(signal);
            }
        }
    })?;
    Ok(ours)
}

/// Waits until one of two files can be read; returns which can.
fn wait(one: &File, other: &UnixStream, patience: Duration) -> io::Result<[bool; 2]> {
    let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut entries = [entry(one.as_raw_fd()), entry(other.as_raw_fd())];
    // Rounded up, or the last millisecond would be a loop without a wait.
    let milliseconds = patience.as_micros().div_ceil(1000).min(i32::MAX as u128) as i32;
    // SAFETY: the pointer is to two entries of a live array.
    match unsafe { libc::poll(entries.as_mut_ptr(), 2, milliseconds) } {
        -1 => match io::Error::last_os_error() {
            why if why.kind() == ErrorKind::Interrupted => Ok([false; 2]),
            why => Err(why),
        },
        // Hangups and errors too, which the read reports.
        _ => Ok(entries.map(|entry| entry.revents != 0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use thiscpu_test_support::terminal;

    #[test]
    fn panic_gives_the_terminal_back() {
        let (ours, theirs) = terminal::open(80);
        let is_raw = || {
            // SAFETY: the structure is plain data, which the call fills in.
            let mut modes: libc::termios = unsafe { std::mem::zeroed() };
            // SAFETY: the pointer is to a live local.
            assert_eq!(unsafe { libc::tcgetattr(ours.as_raw_fd(), &mut modes) }, 0);
            modes.c_lflag & libc::ICANON == 0
        };
        assert!(!is_raw());
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "terminal::tests::panics_with_terminal", "--ignored"]);
        child.arg("--nocapture").stdin(theirs.try_clone().unwrap());
        child.stdout(theirs.try_clone().unwrap()).stderr(theirs.try_clone().unwrap());
        let mut program = child.spawn().unwrap();
        // The command has the terminal too.
        drop(child);
        assert!(!program.wait().unwrap().success());
        assert!(!is_raw());
        drop(theirs);
        let (mut written, mut ours) = (Vec::new(), ours);
        // Ends with an error: the child was the last other user.
        let _ = ours.read_to_end(&mut written);
        let written = thiscpu_test_support::text(&written);
        let at = |sequence: &str| written.find(sequence).unwrap_or_else(|| panic!("{written:?}"));
        assert!(at("\x1b[?1049h") < at("\x1b[?1049l") && at("\x1b[?25l") < at("\x1b[?25h"));
        // The report is on the screen that people see afterwards.
        assert!(at("\x1b[?1049l") < at("raw: true"), "{written:?}");
    }

    #[test]
    #[ignore = "no test: the program of another one"]
    fn panics_with_terminal() {
        let mut terminal = Terminal::open().unwrap();
        terminal.draw(|_| ()).unwrap();
        panic!("raw: {}", ratatui::crossterm::terminal::is_raw_mode_enabled().unwrap());
    }
}
