//! The endpoint that Prometheus scrapes: HTTP/1.1 on a thread of its own.
//!
//! The thread never waits for a client: each connection is a task, has one request, and ends after a time. There are only so many at once;
//! who comes then waits in the listener's queue until one of them has ended, which they do whatever the clients do.

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

/// What clients can take.
#[derive(Clone, Copy)]
struct Limits {
    connections: u32,
    /// From being accepted to the last byte.
    connection_time: Duration,
    /// What is left to those that are there when the endpoint ends.
    last_time: Duration,
}

const LIMITS: Limits = Limits {
    connections: 16,
    connection_time: Duration::from_secs(30),
    last_time: Duration::from_secs(1),
};

/// After the system refused a connection, for want of descriptors for example.
const PAUSE: Duration = Duration::from_millis(100);

/// An endpoint that answers `GET /metrics`, until it is dropped.
///
/// It has a thread, and 16 clients at once at most, of which each has 30 seconds from its connection to the last byte it reads: so one that does not
/// read holds up others for a bounded time, and increments not at all. Other paths are answered with 404, other
/// methods with 405.
///
/// A child of `fork` has none of it: its copy may be dropped there, which does nothing. But the child inherits the listening socket (what it executes
/// does not): for as long as it has that, the address is in use, and who connects after the parent's endpoint has ended waits for an answer that does not come.
#[derive(Debug)]
pub struct Endpoint {
    address: SocketAddr,
    /// Whose thread it is.
    process: u32,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Registry {
    /// Answers scrapes at `address`: a host or an IP address and a port, 0 for one that is free.
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
    /// If the address is in use, is none of this machine's, takes a privilege, or is not to be understood, or if there is no thread to be had.
    pub fn serve(&self, address: &str) -> Result<Endpoint, Error> {
        self.serve_within(address, LIMITS)
    }

    fn serve_within(&self, address: &str, limits: Limits) -> Result<Endpoint, Error> {
        let (listener, bound) = listen(address)?;
        let no_thread = |error: std::io::Error| Error::ThreadSpawn { reason: error.to_string() };
        let runtime =
            runtime::Builder::new_current_thread().enable_all().build().map_err(no_thread)?;
        let (stop, stopped) = oneshot::channel();
        let registry = self.clone();
        let thread = thread::Builder::new()
            .name("thiscpu-metrics".to_owned())
            .spawn(move || run(&runtime, listener, registry, limits, stopped))
            .map_err(no_thread)?;
        let process = process::id();
        Ok(Endpoint { address: bound, process, stop: Some(stop), thread: Some(thread) })
    }
}

impl Endpoint {
    /// Where it listens, with the port that it got.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Endpoint {
    /// Listens no more, lets answers that are under way end, for a second at most, and waits for that. In a child of `fork` it does nothing.
    fn drop(&mut self) {
        if self.process != process::id() {
            // The thread is the parent's, and so is what it waits on.
            mem::forget((self.stop.take(), self.thread.take()));
            return;
        }
        drop(self.stop.take());
        // A thread that has panicked has nothing left to end.
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
    listen().map_err(|error| refused(address, &error))
}

fn refused(address: &str, error: &std::io::Error) -> Error {
    let (address, reason) = (address.to_owned(), error.to_string());
    match error.kind() {
        ErrorKind::AddrInUse => Error::AddressInUse { address },
        ErrorKind::PermissionDenied => Error::PermissionDenied { address, reason },
        _ => Error::InvalidAddress { address, reason },
    }
}

/// All that the thread does.
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
        // Nothing is ever sent: the other end is dropped.
        let _ = stopped.await;
        accepting.abort();
        let _ = accepting.await;
        // Who has all permits knows that all connections have ended.
        let _ = timeout(limits.last_time, permits.acquire_many(limits.connections)).await;
    });
}

async fn accept(
    listener: TcpListener,
    registry: Registry,
    limits: Limits,
    permits: Arc<Semaphore>,
) {
    // It is one that does not block, and this is the runtime: nothing else can be wrong.
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    while let Ok(permit) = Arc::clone(&permits).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                drop(tokio::spawn(attend(TokioIo::new(stream), registry.clone(), limits, permit)));
            }
            Err(_) => sleep(PAUSE).await,
        }
    }
}

/// One connection, from its request to its end.
async fn attend(
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
    // A client that goes away, or is late, is its own affair.
    let _ = timeout(limits.connection_time, connection).await;
}

/// The type of what is not a scrape.
const WORDS: &str = "text/plain; charset=utf-8";

fn answer(registry: &Registry, method: &Method, path: &str) -> Response<Full<Bytes>> {
    let (status, content_type, body) = match path {
        "/metrics" if method == Method::GET || method == Method::HEAD => {
            scraped(|| registry.render())
        }
        "/metrics" => {
            let body = "/metrics can be read, by GET; nothing else\n".to_owned();
            (StatusCode::METHOD_NOT_ALLOWED, WORDS, body)
        }
        _ => (StatusCode::NOT_FOUND, WORDS, "there is /metrics and nothing else\n".to_owned()),
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

/// A sum panics where what it needs of the system was taken away. Clients are told so, rather than left with a connection that ends.
fn scraped(render: impl FnOnce() -> String) -> (StatusCode, &'static str, String) {
    match catch_unwind(AssertUnwindSafe(render)) {
        Ok(body) => (StatusCode::OK, text::CONTENT_TYPE, body),
        Err(_) => {
            let body = "the values cannot be read; standard error of the program says why\n";
            (StatusCode::INTERNAL_SERVER_ERROR, WORDS, body.to_owned())
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

    /// So long nobody waits for an answer that comes.
    const HOPELESS: Duration = Duration::from_secs(60);

    fn ask(address: SocketAddr) -> TcpStream {
        let mut client = TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(HOPELESS)).unwrap();
        // Fails if the endpoint has ended the connection already.
        let _ = client.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
        client
    }

    /// More clients than there is room for: some say nothing, some ask and do not read. Whoever comes then is answered all the same.
    #[test]
    fn clients_that_do_not_read_end() {
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
        // Its own time may be too short as well, on a slow machine; the next has another.
        let is_answered = || {
            let mut answer = [0; 15];
            ask(address).read_exact(&mut answer).is_ok() && answer == *b"HTTP/1.1 200 OK"
        };
        while !is_answered() {
            assert!(began.elapsed() < HOPELESS, "nobody is answered");
        }
        drop(stuck);
    }

    #[test]
    fn a_scrape_that_fails_is_said() {
        let (status, _, body) = scraped(|| panic!("as planned"));
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
        assert!(body.contains("standard error"), "{body}");
    }

    #[test]
    fn who_may_not_listen_is_told_so() {
        let error = refused("127.0.0.1:80", &ErrorKind::PermissionDenied.into());
        let message = error.to_string();
        assert!(message.contains("127.0.0.1:80") && message.contains("1024"), "{message}");
        assert!(!message.contains("an address is"), "{message}");
    }

    /// The answer is larger than what the system keeps for a connection, so it is under way when the endpoint ends.
    #[test]
    fn an_answer_under_way_ends_with_the_endpoint() {
        let registry = Registry::new();
        for i in 0..2_000 {
            registry.counter(&format!("c{i}"), &"x".repeat(10_000), &[]).unwrap();
        }
        let limits = Limits { last_time: Duration::from_secs(3600), ..LIMITS };
        let endpoint = registry.serve_within("127.0.0.1:0", limits).unwrap();
        let address = endpoint.address();
        let mut client = ask(address);
        let mut first = [0];
        client.read_exact(&mut first).unwrap();
        let ending = thread::spawn(move || drop(endpoint));
        let mut rest = String::new();
        client.read_to_string(&mut rest).unwrap();
        assert!(rest.ends_with("c1999 0\n"));
        ending.join().unwrap();
    }
}
