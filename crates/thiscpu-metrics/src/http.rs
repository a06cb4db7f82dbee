//! The endpoint that Prometheus scrapes: HTTP/1.1 on a thread of its own.
//!
//! The thread never waits for a client: each connection is a task, serves one request, and ends
//! after a time limit. The number of connections is limited. Further clients wait in the listener's
//! queue until a connection ends, which happens whatever the clients do.

use std::{
    convert::Infallible,
    io::ErrorKind,
    mem,
    net::{SocketAddr, TcpListener},
    panic::{AssertUnwindSafe, catch_unwind},
    process,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{ALLOW, CONTENT_TYPE},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    runtime::{self, Runtime},
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    time::{sleep, timeout},
};

use crate::{error::Error, registry::Registry, text};

/// Limits on the resources that clients use.
#[derive(Clone, Copy)]
struct Limits {
    connections: u32,
    /// The time from accepting a connection to the last byte.
    connection_time: Duration,
    /// The time that open connections have left when the endpoint ends.
    drain_time: Duration,
}

const LIMITS: Limits = Limits {
    connections: 16,
    connection_time: Duration::from_secs(30),
    drain_time: Duration::from_secs(1),
};

/// The pause after a failed accept, for example for lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// An endpoint that answers `GET /metrics` until it is dropped.
///
/// It has a thread of its own and serves at most 16 clients at once. Each has 30 seconds from its
/// connection to the last byte that it reads, so a client that does not read delays others for a
/// limited time. Clients never delay increments. Other paths get status 404, other methods 405.
///
/// The endpoint does not exist in a child of `fork`; dropping the child's copy does nothing. The
/// child inherits the listening socket, though (a program that it executes does not). As long as
/// the child has that socket, the address stays in use, and clients that connect after the parent's
/// endpoint has ended get no answer.
#[derive(Debug)]
pub struct Endpoint {
    address: SocketAddr,
    /// The process that the thread belongs to.
    process: u32,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Registry {
    /// Starts an endpoint that answers scrapes on `address`.
    ///
    /// `address` is a host or an IP address with a port; port 0 takes a free one, which
    /// [`Endpoint::address`] returns.
    ///
    /// ```
    /// use std::io::{Read as _, Write as _};
    ///
    /// let registry = thiscpu_metrics::Registry::new();
    /// registry.counter("requests_total", "", &[])?.increment(1);
    /// let endpoint = registry.serve("127.0.0.1:0")?;
    ///
    /// let mut client = std::net::TcpStream::connect(endpoint.address())?;
    /// client.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    /// let mut answer = String::new();
    /// client.read_to_string(&mut answer)?;
    /// assert!(answer.ends_with("requests_total 1\n"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::AddressInUse`], [`Error::InvalidAddress`], [`Error::PermissionDenied`], and
    /// [`Error::ThreadSpawn`].
    pub fn serve(&self, address: &str) -> Result<Endpoint, Error> {
        self.serve_within(address, LIMITS)
    }

    fn serve_within(&self, address: &str, limits: Limits) -> Result<Endpoint, Error> {
        let (listener, bound) = listen(address)?;
        let spawn_error = |error: std::io::Error| Error::ThreadSpawn { reason: error.to_string() };
        let runtime =
            runtime::Builder::new_current_thread().enable_all().build().map_err(spawn_error)?;
        let (stop, stopped) = oneshot::channel();
        let registry = self.clone();
        let thread = thread::Builder::new()
            .name("thiscpu-metrics".to_owned())
            .spawn(move || run(&runtime, listener, registry, limits, stopped))
            .map_err(spawn_error)?;
        let process = process::id();
        Ok(Endpoint { address: bound, process, stop: Some(stop), thread: Some(thread) })
    }
}

impl Endpoint {
    /// Returns the address that the endpoint listens on, with its port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Endpoint {
    /// Stops listening, and waits up to a second for open connections to end.
    ///
    /// In a child of `fork` this does nothing.
    fn drop(&mut self) {
        if self.process != process::id() {
            // The thread and the channel it waits on belong to the parent.
            mem::forget((self.stop.take(), self.thread.take()));
            return;
        }
        drop(self.stop.take());
        // A thread that has panicked has ended.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn listen(address: &str) -> Result<(TcpListener, SocketAddr), Error> {
    let listen = || {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let bound = listener.local_addr()?;
        Ok((listener, bound))
    };
    listen().map_err(|error| listen_error(address, &error))
}

fn listen_error(address: &str, error: &std::io::Error) -> Error {
    let (address, reason) = (address.to_owned(), error.to_string());
    match error.kind() {
        ErrorKind::AddrInUse => Error::AddressInUse { address },
        ErrorKind::PermissionDenied => Error::PermissionDenied { address, reason },
        _ => Error::InvalidAddress { address, reason },
    }
}

/// Runs the endpoint, on its thread.
fn run(
    runtime: &Runtime,
    listener: TcpListener,
    registry: Registry,
    limits: Limits,
    stopped: oneshot::Receiver<()>,
) {
    runtime.block_on(async {
        let permits = Arc::new(Semaphore::new(limits.connections as usize));
        let accepting = accept(listener, registry, limits, Arc::clone(&permits));
        let accepting = tokio::spawn(accepting);
        // The sender never sends; it is dropped when the endpoint is.
        let _ = stopped.await;
        accepting.abort();
        let _ = accepting.await;
        // All permits are free once all connections have ended.
        let _ = timeout(limits.drain_time, permits.acquire_many(limits.connections)).await;
    });
}

async fn accept(
    listener: TcpListener,
    registry: Registry,
    limits: Limits,
    permits: Arc<Semaphore>,
) {
    // Cannot fail: the listener is non-blocking, and this runs in the runtime.
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    while let Ok(permit) = Arc::clone(&permits).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                drop(tokio::spawn(serve_client(
                    TokioIo::new(stream),
                    registry.clone(),
                    limits,
                    permit,
                )));
            }
            Err(_) => sleep(PAUSE).await,
        }
    }
}

/// Serves one connection, from its request to its end.
async fn serve_client(
    stream: TokioIo<tokio::net::TcpStream>,
    registry: Registry,
    limits: Limits,
    _permit: OwnedSemaphorePermit,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = answer(&registry, request.method(), request.uri().path());
        async move { Ok::<_, Infallible>(answer) }
    });
    let connection = http1::Builder::new().keep_alive(false).serve_connection(stream, service);
    // Errors are the client's: it went away or was too slow.
    let _ = timeout(limits.connection_time, connection).await;
}

/// The media type of answers other than scrapes.
const PLAIN_TEXT: &str = "text/plain; charset=utf-8";

fn answer(registry: &Registry, method: &Method, path: &str) -> Response<Full<Bytes>> {
    let (status, content_type, body) = match path {
        "/metrics" if method == Method::GET || method == Method::HEAD => {
            scrape(|| registry.render())
        }
        "/metrics" => {
            let body = "method not allowed: use GET or HEAD\n".to_owned();
            (StatusCode::METHOD_NOT_ALLOWED, PLAIN_TEXT, body)
        }
        _ => (StatusCode::NOT_FOUND, PLAIN_TEXT, "not found: only /metrics exists\n".to_owned()),
    };
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(content_type));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, hyper::header::HeaderValue::from_static("GET, HEAD"));
    }
    response
}

/// Renders a scrape.
///
/// Reading sums panics if a sandbox denies fences. The client then gets status 500 instead of a
/// connection that is closed.
fn scrape(render: impl FnOnce() -> String) -> (StatusCode, &'static str, String) {
    match catch_unwind(AssertUnwindSafe(render)) {
        Ok(body) => (StatusCode::OK, text::CONTENT_TYPE, body),
        Err(_) => {
            let body = "cannot read the values: see the program's standard error\n";
            (StatusCode::INTERNAL_SERVER_ERROR, PLAIN_TEXT, body.to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::TcpStream,
        time::Instant,
    };

    use super::*;

    /// Longer than any answer takes.
    const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

    fn ask(address: SocketAddr) -> TcpStream {
        let mut client = TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(ANSWER_TIMEOUT)).unwrap();
        // The endpoint may have closed the connection already.
        let _ = client.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
        client
    }

    /// Opens more connections than are allowed, which send nothing or do not read the answer.
    ///
    /// A later client must get its answer.
    #[test]
    fn clients_that_do_not_read_are_disconnected() {
        if thiscpu_test_support::is_quick() {
            return;
        }
        let registry = Registry::new();
        let counters: Vec<_> = (0..2_000)
            .map(|i| registry.counter(&format!("c{i}"), &"x".repeat(10_000), &[]).unwrap())
            .collect();
        let limits =
            Limits { connections: 2, connection_time: Duration::from_millis(50), ..LIMITS };
        let endpoint = registry.serve_within("127.0.0.1:0", limits).unwrap();
        let address = endpoint.address();
        let silent = || TcpStream::connect(address).unwrap();
        let began = Instant::now();
        let stuck: Vec<_> = (0..3).flat_map(|_| [silent(), ask(address)]).collect();
        counters[0].increment(1);
        // On a slow machine this client may be too slow as well; then the next one tries.
        let is_answered = || {
            let mut answer = [0; 15];
            ask(address).read_exact(&mut answer).is_ok() && answer == *b"HTTP/1.1 200 OK"
        };
        while !is_answered() {
            assert!(began.elapsed() < ANSWER_TIMEOUT, "no client gets an answer");
        }
        drop(stuck);
    }

    #[test]
    fn scrape_that_panics_returns_status_500() {
        let (status, _, body) = scrape(|| panic!("deliberate"));
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
        assert!(body.contains("standard error"), "{body}");
    }

    #[test]
    fn privileged_port_reports_permission_denied() {
        let error = listen_error("127.0.0.1:80", &ErrorKind::PermissionDenied.into());
        let message = error.to_string();
        assert!(message.contains("127.0.0.1:80") && message.contains("1024"), "{message}");
        assert!(!message.contains("use an address"), "{message}");
    }

    /// Drops the endpoint during an answer, which is larger than the socket's buffers.
    #[test]
    fn drop_lets_a_current_answer_finish() {
        let registry = Registry::new();
        for i in 0..700 {
            registry.counter(&format!("c{i}"), &"x".repeat(10_000), &[]).unwrap();
        }
        let limits = Limits { drain_time: Duration::from_secs(3600), ..LIMITS };
        let endpoint = registry.serve_within("127.0.0.1:0", limits).unwrap();
        let address = endpoint.address();
        let mut client = ask(address);
        let mut first = [0];
        client.read_exact(&mut first).unwrap();
        let ending = thread::spawn(move || drop(endpoint));
        let mut rest = String::new();
        client.read_to_string(&mut rest).unwrap();
        assert!(rest.ends_with("c699 0\n"));
        ending.join().unwrap();
    }
}
