//! The sentence that says why the calling thread's last failed call failed.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::sync::Once;

thread_local! {
    /// The sentence about this thread's last failed call.
    static LAST: RefCell<CString> = RefCell::default();
}

/// Notes why the calling thread's call fails.
pub(crate) fn note(sentence: &str) {
    // A nul in a name of the caller ends the sentence.
    let bytes = sentence.bytes().take_while(|&byte| byte != 0).collect::<Vec<_>>();
    let sentence = CString::new(bytes).unwrap_or_default();
    // Fails only in destructors of a thread, which then have no sentence.
    let _ = LAST.try_with(|last| last.replace(sentence));
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
            note(text.strip_prefix("thiscpu: ").unwrap_or(text));
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
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}
