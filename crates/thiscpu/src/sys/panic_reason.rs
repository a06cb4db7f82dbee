//! Why the calling thread panics, noted for callers that turn panics into status codes.
//!
//! It is beside the payload, not in it: the panic hook prints only payloads that are text.

use core::cell::Cell;
use core::fmt::Arguments;

thread_local! {
    static NOTED: Cell<PanicReason> = const { Cell::new(PanicReason::Other) };
}

/// Why a function of this library panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PanicReason {
    /// Fences are denied.
    FenceDenied,
    /// The system gave no memory for accounts.
    NoMemory,
    /// Anything else, which is a bug of this library.
    Other,
}

impl PanicReason {
    /// Panics with a message, after it has noted the reason for [`take`](Self::take).
    #[cold]
    #[track_caller]
    pub(crate) fn panic(self, message: Arguments<'_>) -> ! {
        NOTED.set(self);
        panic!("{message}")
    }

    /// Returns the reason for the panic that is in progress, for panic hooks.
    pub fn noted() -> PanicReason {
        NOTED.get()
    }

    /// Returns the reason for the panic that the calling thread has just caught.
    ///
    /// It is right if each earlier panic of the thread was followed by a call of this function.
    pub fn take() -> PanicReason {
        NOTED.replace(PanicReason::Other)
    }
}
