//! Settings from the environment, at any time and without allocation.
//!
//! An allocator is first used by the dynamic loader, before the C library has been told where the
//! environment is. Then it is read where the kernel shows it. In a program that runs with more rights
//! than whoever started it nothing is read: the environment is theirs, the rights are not.

use core::ffi::{CStr, c_char};

use super::{errno, topology::File};

/// What is kept of a value that the kernel shows; those that mean something are shorter.
const KEPT_BYTES: usize = 128;

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// Calls `look` with the value of the variable `name`, or with `None` if there is none. Keeps `errno`.
///
/// As with every reader of the environment, the program must not change it at the same time
/// (`std::env::set_var` is unsafe for this reason). std's reader takes a lock, which a signal handler
/// must not, and allocates.
pub(crate) fn var<T>(name: &CStr, look: impl FnOnce(Option<&[u8]>) -> T) -> T {
    let _errno = errno::save();
    if is_privileged() {
        return look(None);
    }
    // SAFETY: a plain load of a pointer; see above for who must not change it.
    if unsafe { environ.is_null() } {
        let mut found = Search::new(name.to_bytes());
        found.read();
        return look(found.value());
    }
    // SAFETY: the name ends with a zero byte, and so does a value, which stays as long as the program
    // does not change it.
    let value = unsafe {
        let value = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value))
    };
    look(value.map(CStr::to_bytes))
}

/// Whether the kernel started this program with rights that whoever started it does not have.
fn is_privileged() -> bool {
    // SAFETY: getauxval reads the auxiliary vector, which the loader has found by now.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Where in a list of `NAME=value`, each with a zero byte behind it, the search has come to.
#[derive(Clone, Copy)]
enum Place {
    /// That many bytes of an entry have been those of the name.
    Name(usize),
    /// In an entry of another name.
    Other,
    /// In the value.
    Value,
    /// Behind it.
    Behind,
}

/// The search for one variable in what the kernel shows, in pieces of any size.
struct Search<'a> {
    name: &'a [u8],
    place: Place,
    value: [u8; KEPT_BYTES],
    filled: usize,
}

impl<'a> Search<'a> {
    fn new(name: &'a [u8]) -> Self {
        Search { name, place: Place::Name(0), value: [0; KEPT_BYTES], filled: 0 }
    }

    fn read(&mut self) {
        let Some(file) = File::open(c"/proc/self/environ", 0) else { return };
        let mut piece = [0; 512];
        while let Some(read @ 1..) = file.read(&mut piece) {
            piece[..read].iter().for_each(|&byte| self.take(byte));
        }
    }

    fn take(&mut self, byte: u8) {
        self.place = match (self.place, byte) {
            (Place::Value | Place::Behind, 0) | (Place::Behind, _) => Place::Behind,
            (_, 0) => Place::Name(0),
            (Place::Name(known), b'=') if known == self.name.len() => Place::Value,
            (Place::Name(known), _) if self.name.get(known) == Some(&byte) => {
                Place::Name(known + 1)
            }
            (Place::Name(_) | Place::Other, _) => Place::Other,
            (Place::Value, _) => {
                self.keep(byte);
                Place::Value
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
        match self.place {
            Place::Value | Place::Behind => Some(&self.value[..self.filled]),
            Place::Name(_) | Place::Other => None,
        }
    }
}
