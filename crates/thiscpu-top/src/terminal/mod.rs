//! The terminal: raw mode, keys, signals, and the way back.
//!
//! The program reads keys itself. It must notice that the terminal is gone in any case: a library
//! that reads again after an error would use a whole CPU forever.

mod backend;
mod keys;

use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal as _, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::OpenOptionsExt as _;
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
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use backend::{Patient, WriteOnly};
pub(crate) use keys::Key;

/// How long the rest of a key's bytes may take.
const REST_OF_KEY: Duration = Duration::from_millis(100);
/// How long the program may take to end after a signal.
///
/// It may be stuck in a write to a terminal that takes nothing.
const PATIENCE: Duration = Duration::from_secs(1);

/// The byte of Ctrl-C.
const CTRL_C: libc::cc_t = 3;

/// Something that has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Key(Key),
    /// The terminal has another size.
    Resize,
    /// Somebody wants this program to stop, as Ctrl-Z does.
    Suspend,
    /// This process was stopped, and goes on.
    Continue,
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
        take(&terminal.keyboard).context("cannot use the terminal")?;
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

    /// Gives the terminal back, stops this process's group, and takes the terminal again.
    pub(crate) fn suspend(&mut self) -> io::Result<()> {
        self.screen.show_cursor()?;
        restore();
        stop_group()?;
        self.resume()
    }

    /// Takes the terminal again after this process was stopped.
    ///
    /// Its modes and its screen may be those of another program.
    pub(crate) fn resume(&mut self) -> io::Result<()> {
        disable_raw_mode()?;
        take(&self.keyboard)?;
        // Hides the cursor at the next draw.
        self.screen.show_cursor()?;
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
                    SIGTSTP => Event::Suspend,
                    SIGCONT => Event::Continue,
                    // The terminal sends it for the key, so that it works in a long look too.
                    SIGINT => Event::Key(Key::Ctrl('c')),
                    signal => Event::End(signal),
                });
            }
            if has_keys {
                let mut chunk = [0; 256];
                match self.keyboard.read(&mut chunk) {
                    Ok(0) => return Ok(Event::End(SIGHUP)),
                    Ok(count) => self.bytes.extend_from_slice(&chunk[..count]),
                    // Somebody else may read from a terminal that never blocks.
                    Err(why) if is_transient(&why) => {}
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
        ignore_background();
        restore();
    }
}

/// Takes the terminal over.
fn take(keyboard: &File) -> io::Result<()> {
    enable_raw_mode()?;
    keep_interrupt(keyboard)?;
    execute!(Patient, EnterAlternateScreen)
}

/// Makes a terminal in raw mode send `SIGINT` for Ctrl-C, and no signal for other keys.
///
/// The thread of signals can end the program while the main thread is busy.
fn keep_interrupt(keyboard: &File) -> io::Result<()> {
    let terminal = keyboard.as_raw_fd();
    // SAFETY: the structure is plain data, which the call fills in.
    let mut modes: libc::termios = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live local.
    if unsafe { libc::tcgetattr(terminal, &mut modes) } != 0 {
        return Err(io::Error::last_os_error());
    }
    modes.c_lflag |= libc::ISIG;
    modes.c_cc[libc::VINTR] = CTRL_C;
    // The shell must not get the terminal before this program has given it back.
    modes.c_cc[libc::VSUSP] = libc::_POSIX_VDISABLE;
    modes.c_cc[libc::VQUIT] = libc::_POSIX_VDISABLE;
    // SAFETY: the pointer is to a live local, which the call before has filled in.
    match unsafe { libc::tcsetattr(terminal, libc::TCSANOW, &modes) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Gives the terminal back as it was.
///
/// Nobody could be told of an error: the terminal may be gone.
fn restore() {
    let _ = disable_raw_mode();
    let _ = execute!(Patient, LeaveAlternateScreen, Show);
}

/// Lets a process that ends give the terminal back also from the background.
///
/// Ctrl-C may have ended the shell that waits for this process, and its parent has the terminal.
fn ignore_background() {
    // SAFETY: the action runs no code of this process.
    unsafe { libc::signal(libc::SIGTTOU, libc::SIG_IGN) };
}

/// Gives the terminal back without a wait: the main thread may be stuck in a write to it.
fn restore_at_once() {
    ignore_background();
    let _ = disable_raw_mode();
    // A description of its own: the mode of the shared one would change for other programs too.
    let mut options = File::options();
    let options = options.write(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    if let Ok(mut terminal) = options.open("/proc/self/fd/1") {
        let _ = terminal.write(b"\x1b[?1049l\x1b[?25h");
    }
}

/// Stops the processes of this group, as the terminal does for Ctrl-Z.
///
/// A shell that waits for this process stops too, and so its own parent gets the terminal. Nothing
/// happens in a group without such a parent, which could never go on.
fn stop_group() -> io::Result<()> {
    // SAFETY: the structure is plain data, for which zeros stand for an empty mask and no flags.
    let mut default: libc::sigaction = unsafe { std::mem::zeroed() };
    default.sa_sigaction = libc::SIG_DFL;
    // SAFETY: the structure is plain data, which the call fills in.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live locals. The default action runs no code of this process.
    if unsafe { libc::sigaction(SIGTSTP, &default, &mut before) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // Comes before the call returns: the kernel prefers the thread that it is called in.
    // SAFETY: `kill` has no preconditions.
    let sent = unsafe { libc::kill(0, SIGTSTP) };
    let why = io::Error::last_os_error();
    // SAFETY: the pointer is to a live local, which has the action of `signals`.
    unsafe { libc::sigaction(SIGTSTP, &before, std::ptr::null_mut()) };
    if sent == 0 { Ok(()) } else { Err(why) }
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

/// Returns whether an error of a read or write only means that it is to be done again.
fn is_transient(why: &io::Error) -> bool {
    matches!(why.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock)
}

/// Starts a thread that passes signals on, and returns the stream of their numbers.
fn signals() -> io::Result<UnixStream> {
    let (ours, mut theirs) = UnixStream::pair()?;
    // The main thread may take nothing. Then a size or two are lost among hundreds, and the thread
    // itself ends the program.
    theirs.set_nonblocking(true)?;
    let all = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH, SIGTSTP, SIGCONT];
    let mut signals = Signals::new(all)?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            let number = u8::try_from(signal).unwrap_or_default();
            let _ = theirs.write_all(&[number]);
            if ![SIGWINCH, SIGTSTP, SIGCONT].contains(&signal) {
                thread::sleep(PATIENCE);
                restore_at_once();
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
