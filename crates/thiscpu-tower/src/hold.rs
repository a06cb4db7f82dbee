//! How long a request holds its units.

/// The end of a request: [`UntilResponse`], or `UntilBodyEnd` with the feature `http`.
///
/// `R` is the response of the inner service. `G` is the guard that holds units, or that counts the
/// request. This trait is sealed: other crates cannot implement it.
pub trait Hold<R, G>: Sealed {
    /// The response of the layered service.
    type Response;

    /// Drops the guard of a request whose response this is, or makes the response keep it.
    #[doc(hidden)]
    fn hold(response: R, guard: G) -> Self::Response;
}

/// The part of [`Hold`] that other crates cannot implement.
pub trait Sealed {}

/// A request ends when the future of its response ends, or is dropped. The default.
#[derive(Clone, Copy, Debug)]
pub struct UntilResponse;

impl Sealed for UntilResponse {}

impl<R, G> Hold<R, G> for UntilResponse {
    type Response = R;

    fn hold(response: R, guard: G) -> R {
        drop(guard);
        response
    }
}
