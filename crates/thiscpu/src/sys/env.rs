//! Environment variables, read at any time and without allocation.
//!
//! The dynamic loader uses an allocator before the C library knows where the environment is. Until
//! then this file reads `/proc/self/environ`. A program that runs with more rights than its caller
//! reads nothing, because the caller controls the environment.

use core::ffi::{CStr, c_char};

use super::{errno, file};

/// The longest prefix kept of a value in `/proc`, in bytes; meaningful values are shorter.
const KEPT_BYTES: usize = 128;

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// Calls `look` with the value of the variable `name`, or with `None` if it is not set.
///
/// Allocates nothing, takes no lock and keeps `errno`; async-signal-safe. (`std::env::var` takes a
/// lock and allocates.) As with every reader of the environment, the program must not change it at
/// the same time; `std::env::set_var` is unsafe for this reason.
pub(crate) fn var<T>(name: &CStr, look: impl FnOnce(Option<&[u8]>) -> T) -> T {
    let _errno = errno::save();
    if is_privileged() {
        return look(None);
    }
    // SAFETY: no thread changes the environment meanwhile, as the callers of `set_var` guarantee.
    if unsafe { environ.is_null() } {
        return look_in_proc(name, look);
    }
    // SAFETY: the name ends with a zero byte. The value does too, and stays where it is as long as
    // the program does not change the environment.
    let value = unsafe {
        let value = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value))
    };
    look(value.map(CStr::to_bytes))
}

/// Calls `look` with the value that the variable had when the program started.
///
/// A function of its own, so that `var` needs no room for the search.
#[cold]
#[inline(never)]
fn look_in_proc<T>(name: &CStr, look: impl FnOnce(Option<&[u8]>) -> T) -> T {
    let mut search = Search::new(name.to_bytes());
    // Without `/proc` the variable is not set.
    let _ = file::each_byte(c"/proc/self/environ", |byte| search.parse(byte));
    look(search.value())
}

/// Returns whether the kernel gave this program rights that its caller does not have.
fn is_privileged() -> bool {
    // SAFETY: getauxval reads the auxiliary vector, which the loader knows by now.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// The state of a parse of `NAME=value` entries that each end with a zero byte.
#[derive(Clone, Copy)]
enum ParseState {
    /// In a name; the number of bytes that have matched.
    Name(usize),
    /// In an entry with another name.
    Other,
    Value,
    Behind,
}

/// A search for one variable in the bytes of `/proc/self/environ`.
struct Search<'a> {
    name: &'a [u8],
    state: ParseState,
    value: [u8; KEPT_BYTES],
    filled: usize,
}

impl<'a> Search<'a> {
    fn new(name: &'a [u8]) -> Self {
        Search { name, state: ParseState::Name(0), value: [0; KEPT_BYTES], filled: 0 }
    }

    fn parse(&mut self, byte: u8) {
        use ParseState::{Behind, Name, Other, Value};
        self.state = match (self.state, byte) {
            (Value | Behind, 0) | (Behind, _) => Behind,
            (_, 0) => Name(0),
            (Name(matched), b'=') if matched == self.name.len() => Value,
            (Name(matched), _) if self.name.get(matched) == Some(&byte) => Name(matched + 1),
            (Name(_) | Other, _) => Other,
            (Value, _) => {
                self.keep(byte);
                Value
            }
        };
    }

    fn keep(&mut self, byte: u8) {
        if let Some(room) = self.value.get_mut(self.filled) {
            *room = byte;
            self.filled += 1;
        }
    }

    fn value(&self) -> Option<&[u8]> {
        match self.state {
            ParseState::Value | ParseState::Behind => Some(&self.value[..self.filled]),
            ParseState::Name(_) | ParseState::Other => None,
        }
    }
}
