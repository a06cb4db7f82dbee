//! The way of the screen to the terminal: few writes, and no question.

use std::io::{self, BufWriter, Write};
use std::os::fd::AsRawFd as _;

use ratatui::backend::{Backend, ClearType, CrosstermBackend, WindowSize};
use ratatui::buffer::Cell;
use ratatui::layout::{Position, Size};

/// A terminal that is written to in few system calls, and never asked a question.
///
/// A question about the cursor would take its answer from the keyboard, and wait for it.
pub(super) struct WriteOnly {
    terminal: CrosstermBackend<BufWriter<Patient>>,
    is_cursor_hidden: bool,
}

/// Standard output, also if it never blocks: each write waits until the terminal takes bytes.
pub(super) struct Patient;

impl Write for Patient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let terminal = io::stdout().as_raw_fd();
        loop {
            // SAFETY: the pointer and the length are those of a live slice.
            let written = unsafe { libc::write(terminal, bytes.as_ptr().cast(), bytes.len()) };
            if let Ok(written) = usize::try_from(written) {
                return Ok(written);
            }
            let why = io::Error::last_os_error();
            if why.kind() != io::ErrorKind::WouldBlock {
                return Err(why);
            }
            let mut entry = libc::pollfd { fd: terminal, events: libc::POLLOUT, revents: 0 };
            // An error or an interruption shows at the next write.
            // SAFETY: the pointer is to one live entry.
            unsafe { libc::poll(&mut entry, 1, -1) };
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The size of a terminal that does not tell one.
const SIZE: Size = Size::new(80, 24);

/// More than most changes of a screen take.
const BUFFER_BYTES: usize = 16 << 10;

impl WriteOnly {
    pub(super) fn new() -> WriteOnly {
        let stdout = BufWriter::with_capacity(BUFFER_BYTES, Patient);
        WriteOnly { terminal: CrosstermBackend::new(stdout), is_cursor_hidden: false }
    }
}

impl Backend for WriteOnly {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, content: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        let mut content = content.peekable();
        // Without a change, nothing is written at all.
        if content.peek().is_none() { Ok(()) } else { self.terminal.draw(content) }
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        // ratatui asks for this at each draw.
        match std::mem::replace(&mut self.is_cursor_hidden, true) {
            true => Ok(()),
            false => self.terminal.hide_cursor(),
        }
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        // The terminal may be gone, and ratatui would write to it that it is.
        let _ = self.terminal.show_cursor();
        self.is_cursor_hidden = false;
        Ok(())
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        // The cursor is hidden, so it may be anywhere.
        Ok(Position::ORIGIN)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        self.terminal.set_cursor_position(position)
    }

    fn clear(&mut self) -> io::Result<()> {
        self.terminal.clear()
    }

    fn clear_region(&mut self, clear_type: ClearType) -> io::Result<()> {
        self.terminal.clear_region(clear_type)
    }

    fn size(&self) -> io::Result<Size> {
        // A serial line may not know its size.
        let known = self.terminal.size().ok().filter(|size| size.width > 0 && size.height > 0);
        Ok(known.unwrap_or(SIZE))
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        self.terminal.window_size()
    }

    fn flush(&mut self) -> io::Result<()> {
        Backend::flush(&mut self.terminal)
    }
}
