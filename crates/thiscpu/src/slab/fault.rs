//! What a program does wrong with objects: said on standard error, and then the process is ended, because nothing that it
//! does from then on can be trusted.

use core::fmt::{self, Write as _};
use core::ptr::NonNull;

/// What was noticed.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub enum Fault {
    /// An object is freed that is free.
    FreedTwice,
    /// A free object has been written to.
    WrittenTo,
    /// An address is freed that is in no slab of the cache.
    Foreign,
    /// An address is freed at which no object begins.
    Inside,
}

impl Fault {
    /// Says what is wrong with the object at an address, of `size` bytes, and ends the process. Allocates nothing and takes no lock.
    #[cold]
    #[inline(never)]
    pub fn report(self, address: usize, size: usize) -> ! {
        let what = match self {
            Fault::FreedTwice => "freed twice",
            Fault::WrittenTo => "written to after it was freed",
            Fault::Foreign => "freed, but nothing of that size was ever handed out there",
            Fault::Inside => "freed, but it is inside of an object and not where one begins",
        };
        let mut line = Line { text: [0; 256], length: 0 };
        let _ = writeln!(line, "thiscpu: {address:#x} ({size} bytes): {what}");
        if cfg!(thiscpu_model) {
            panic!("{}", String::from_utf8_lossy(&line.text[..line.length]));
        }
        // SAFETY: the text is that long.
        unsafe {
            libc::write(libc::STDERR_FILENO, line.text.as_ptr().cast(), line.length);
            libc::abort()
        }
    }
}

// What is noticed on fast paths, in functions that cannot unwind and look as if they returned, so that those end with a jump to them.

/// Says that an object is freed which is free, and ends the process.
#[cold]
#[inline(never)]
pub(super) extern "C" fn freed_twice(object: usize, size: usize) {
    // The compiler is not to know that this never returns.
    if core::hint::black_box(true) {
        Fault::FreedTwice.report(object, size)
    }
}

/// Says that a free object has been written to, and ends the process.
#[cold]
#[inline(never)]
pub(super) extern "C" fn written_to(object: usize, size: usize) -> Option<NonNull<u8>> {
    if core::hint::black_box(true) {
        Fault::WrittenTo.report(object, size)
    }
    None
}

/// A line of text on the stack; what does not fit is left out.
struct Line {
    text: [u8; 256],
    length: usize,
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.text[self.length..];
        let length = text.len().min(room.len());
        room[..length].copy_from_slice(&text.as_bytes()[..length]);
        self.length += length;
        Ok(())
    }
}
