//! The sentence that says why the calling thread's last failed call failed.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char};
use std::fmt::{self, Write as _};
use std::sync::Once;

thread_local! {
    /// Where the sentence is. Without a destructor, so that errors are noted without memory.
    static LAST: Cell<Sentence> = const { Cell::new(Sentence::Fixed(c"")) };
    /// The sentence about this thread's last failed call, if it is not a fixed one; with a nul.
    static TEXT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

#[derive(Clone, Copy)]
enum Sentence {
    Fixed(&'static CStr),
    /// In `TEXT`.
    Text,
}

/// Notes why the calling thread's call fails, without memory.
pub(crate) fn note_fixed(sentence: &'static CStr) {
    LAST.set(Sentence::Fixed(sentence));
}

/// Notes why the calling thread's call fails.
pub(crate) fn note(sentence: fmt::Arguments<'_>) {
    // Destructors of a thread may find that its text is gone.
    let is_noted = TEXT.try_with(|text| {
        let mut text = text.borrow_mut();
        text.clear();
        // For the nul, even if nothing else fits.
        text.try_reserve(1).ok()?;
        let _ = Line(&mut text).write_fmt(sentence);
        text.push(0);
        Some(())
    });
    LAST.set(match is_noted {
        Ok(Some(())) => Sentence::Text,
        _ => Sentence::Fixed(c"no memory: there is none for the sentence about this error"),
    });
}

/// A writer that is cut off if memory is exhausted, and leaves out nuls.
struct Line<'a>(&'a mut Vec<u8>);

impl fmt::Write for Line<'_> {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        // With room for the nul at the end.
        self.0.try_reserve(part.len() + 1).map_err(|_| fmt::Error)?;
        self.0.extend(part.bytes().filter(|&byte| byte != 0));
        Ok(())
    }
}

/// Makes panics silent: their message becomes the thread's last error.
///
/// This copy of the standard library runs no code but this library's.
pub(crate) fn silence_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        std::panic::set_hook(Box::new(|info| {
            let payload = info.payload();
            let text = payload.downcast_ref::<&str>().copied();
            let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
            let text = text.unwrap_or("no message");
            note(format_args!("{}", text.strip_prefix("thiscpu: ").unwrap_or(text)));
        }));
    });
}

/// Returns the sentence about the calling thread's last failed call.
///
/// It says what failed, why, and what to do. It is valid until the thread's next failed call, and
/// empty if none has failed.
///
/// - Blocks: never.
/// - Signal handlers: not allowed.
#[unsafe(no_mangle)]
pub extern "C" fn thiscpu_metrics_last_error() -> *const c_char {
    let text = || TEXT.try_with(|text| text.borrow().as_ptr().cast()).ok();
    match LAST.get() {
        Sentence::Fixed(sentence) => sentence.as_ptr(),
        Sentence::Text => text().unwrap_or(c"".as_ptr()),
    }
}
