//! The endpoint that Prometheus scrapes.

use std::ffi::c_char;

use thiscpu_metrics::Endpoint;

use crate::ffi::{TextBuffer, catch, create, deref, destroy, text};
use crate::registry::ThiscpuMetricsRegistry;
use crate::status::Status;

/// An endpoint that answers `GET /metrics`. Rust: `Endpoint`.
pub struct ThiscpuMetricsEndpoint(Endpoint);

/// Serves a registry at an address, and stores a handle of the endpoint in `*endpoint`.
///
/// An address is such as `127.0.0.1:9090`. Port 0 is a free one. Takes two threads. The endpoint
/// chooses the format by `Accept`, and compresses with gzip if the client asks for it.
///
/// - NULL: not allowed.
/// - Returns: `OK`, `NULL_POINTER`, `NO_MEMORY`, `CANNOT_LISTEN`.
/// - Blocks: to resolve the address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_metrics_serve(
    registry: *const ThiscpuMetricsRegistry,
    address: *const c_char,
    endpoint: *mut *mut ThiscpuMetricsEndpoint,
) -> Status {
    let new = || {
        // SAFETY: the header requires that the handle is null or live, and the address valid.
        let (registry, address) = unsafe { (deref(registry)?, text(address)?) };
        Ok(ThiscpuMetricsEndpoint(registry.0.serve(address)?))
    };
    // SAFETY: the header requires that `endpoint` is null or valid for writes.
    unsafe { create(endpoint, new) }
}

/// Writes the address of an endpoint, with its port, to `buffer`.
///
/// The buffer and `*length` are used as by `thiscpu_metrics_render`.
///
/// - NULL: allowed for `length`, and for `buffer` if `bytes` is 0.
/// - Returns: `OK`, `NULL_POINTER`.
/// - Blocks: never.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_metrics_endpoint_address(
    endpoint: *const ThiscpuMetricsEndpoint,
    buffer: *mut c_char,
    bytes: usize,
    length: *mut usize,
) -> Status {
    catch(|| {
        // SAFETY: the header requires that the handle is null or live, that `buffer` has room for
        // `bytes` bytes, and that `length` is null or valid for writes.
        let (endpoint, out) =
            unsafe { (deref(endpoint)?, TextBuffer::new(buffer, bytes, length)?) };
        out.write(&endpoint.0.address().to_string());
        Ok(())
    })
}

/// Stops an endpoint. Waits up to a second for current answers.
///
/// - NULL: allowed; does nothing.
/// - Returns: `OK`.
/// - Blocks: for current answers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thiscpu_metrics_endpoint_destroy(
    endpoint: *mut ThiscpuMetricsEndpoint,
) -> Status {
    // SAFETY: the header requires that the handle is null or live, and not used any more.
    unsafe { destroy(endpoint) }
}
