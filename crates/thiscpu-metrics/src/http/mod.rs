//! The endpoint that Prometheus scrapes: HTTP/1.1 on a thread of its own, and one for scrapes.
//!
//! The former never waits for a client: each connection is a task, serves one request, and ends
//! after a time limit. The number of connections is limited, but no client has to wait for another
//! one to end: see `connections`. It never waits for a scrape either: see `scraper`.

mod client;
mod connections;
mod scraper;
#[cfg(test)]
mod tests;

use std::{
    io::ErrorKind,
    mem,
    net::{SocketAddr, ToSocketAddrs as _},
    process,
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::{
    net::{TcpListener, TcpSocket},
    runtime::{self, Runtime},
    sync::oneshot,
    task::yield_now,
    time::{sleep, timeout},
};

use self::{
    connections::Connections,
    scraper::{Scraper, Source},
};
use crate::{error::Error, media::Format, registry::Registry, text};

/// Limits on the time that clients take.
#[derive(Clone, Copy)]
struct Limits {
    /// The time from accepting a connection to the end of its request's head.
    request_time: Duration,
    /// The time from accepting a connection to the last byte.
    connection_time: Duration,
    /// The time that current answers have when the endpoint ends.
    ///
    /// Also the time that a client has to close its connection after an answer.
    drain_time: Duration,
}

const LIMITS: Limits = Limits {
    request_time: Duration::from_secs(10),
    connection_time: Duration::from_secs(30),
    drain_time: Duration::from_secs(1),
};

/// The number of clients that the kernel lets wait to be accepted.
///
/// The system may have a lower limit. A client that finds no place tries again after a second.
const BACKLOG: u32 = 4096;

/// The pause after a failed accept, for example for lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(10);

/// An endpoint that answers `GET /metrics` until it is dropped.
///
/// It has two threads, one for clients and one for scrapes. Clients never delay increments, and
/// those that send nothing or read nothing do not delay a scrape:
///
/// | limit | what happens beyond it |
/// |---|---|
/// | 256 connections | a new one displaces one that sends or reads nothing; status 503 |
/// | 8 scrapes, each in up to four forms | a new one displaces readers of the oldest |
/// | 10 seconds from the connection to the request | status 408 |
/// | 30 seconds from the connection to the last byte of the answer | it is closed |
/// | 16 KiB or 100 lines of a request's head | status 431 |
///
/// Other paths get status 404, other methods 405, and malformed requests 400. Requests that arrive
/// during a scrape share the next one.
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
        let registry = self.clone();
        let scrape = move |formats: &[Format]| {
            // The registry is locked until all formats are written, but not for compression.
            let reading = registry.read();
            formats.iter().map(|&format| text::render(&reading, format)).collect()
        };
        serve_within(address, Box::new(scrape), limits)
    }
}

/// Starts an endpoint that answers scrapes of a source of texts, as [`Registry::serve`] does.
///
/// `source` takes a scrape, and returns its text in each of the formats that it gets. Clients get
/// status 500 if it panics.
///
/// # Errors
///
/// Those of [`Registry::serve`].
pub fn serve(
    address: &str,
    source: impl FnMut(&[Format]) -> Vec<String> + Send + 'static,
) -> Result<Endpoint, Error> {
    serve_within(address, Box::new(source), LIMITS)
}

fn serve_within(address: &str, source: Source, limits: Limits) -> Result<Endpoint, Error> {
    let spawn_error = |error: std::io::Error| Error::ThreadSpawn { reason: error.to_string() };
    let runtime =
        runtime::Builder::new_current_thread().enable_all().build().map_err(spawn_error)?;
    let (listener, bound) = {
        let _entered = runtime.enter();
        listen(address).map_err(|error| listen_error(address, &error))?
    };
    let (stop, stopped) = oneshot::channel();
    let scraper = Scraper::start(source).map_err(spawn_error)?;
    let thread = thread::Builder::new()
        .name(THREAD_NAME.to_owned())
        .spawn(move || run(&runtime, listener, scraper, limits, stopped))
        .map_err(spawn_error)?;
    let process = process::id();
    Ok(Endpoint { address: bound, process, stop: Some(stop), thread: Some(thread) })
}

const THREAD_NAME: &str = "thiscpu-metrics";

impl Endpoint {
    /// Returns the address that the endpoint listens on, with its port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Endpoint {
    /// Stops listening, and waits up to a second for current answers and a current scrape.
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

/// Listens on the first of the address's socket addresses that allows it.
fn listen(address: &str) -> std::io::Result<(TcpListener, SocketAddr)> {
    let listen = |address: SocketAddr| {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // As the standard library does: connections of an earlier endpoint may still be closing.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let listener = socket.listen(BACKLOG)?;
        let bound = listener.local_addr()?;
        Ok((listener, bound))
    };
    let mut outcome = Err(std::io::Error::new(ErrorKind::InvalidInput, "the host has no address"));
    for address in address.to_socket_addrs()? {
        outcome = listen(address);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
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
    (scraper, scraper_ended): (Scraper, oneshot::Receiver<()>),
    limits: Limits,
    stopped: oneshot::Receiver<()>,
) {
    runtime.block_on(async {
        let connections = Connections::default();
        let accepting = tokio::spawn(accept(listener, connections.clone(), scraper, limits));
        // The sender never sends; it is dropped when the endpoint is.
        let _ = stopped.await;
        accepting.abort();
        let _ = accepting.await;
        let end = async {
            connections.finish().await;
            let _ = scraper_ended.await;
        };
        // Not for as long as a scrape takes.
        let _ = timeout(limits.drain_time, end).await;
    });
}

async fn accept(listener: TcpListener, connections: Connections, scraper: Scraper, limits: Limits) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let connection = connections.add().await;
                drop(tokio::spawn(client::serve(stream, connection, scraper.clone(), limits)));
                // A displaced connection ends, and requests are read, before the next accept.
                yield_now().await;
            }
            Err(_) => {
                connections.displace();
                sleep(PAUSE).await;
            }
        }
    }
}
