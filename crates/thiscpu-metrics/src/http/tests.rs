//! The endpoint's limits, with clients that keep to none.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    os::fd::AsRawFd as _,
};

use thiscpu_test_support::is_quick;

use super::*;

/// Longer than any answer takes.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Limits that no client reaches, so that only displacement makes room.
const NO_LIMITS: Limits = {
    let hour = Duration::from_secs(3600);
    Limits { request_time: hour, connection_time: hour, drain_time: hour }
};

const REQUEST: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

fn connect(address: SocketAddr) -> TcpStream {
    let client = TcpStream::connect(address).unwrap();
    let bytes: libc::c_int = 64 * 1024;
    // SAFETY: the option is an integer, which it gets. Large buffers of many clients that do not
    // read would fill the kernel's memory.
    let outcome = unsafe {
        libc::setsockopt(
            client.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVBUF,
            (&raw const bytes).cast(),
            size_of_val(&bytes) as libc::socklen_t,
        )
    };
    assert_eq!(outcome, 0);
    client.set_read_timeout(Some(ANSWER_TIMEOUT)).unwrap();
    client
}

/// Connects and sends some bytes.
fn send(address: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut client = connect(address);
    // The endpoint may have closed the connection already.
    let _ = client.write_all(bytes);
    client
}

/// Returns the status line of the answer to some bytes.
fn status(address: SocketAddr, bytes: &[u8]) -> String {
    status_of(send(address, bytes))
}

fn status_of(mut client: TcpStream) -> String {
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    answer.lines().next().unwrap_or_default().to_owned()
}

/// Returns whether a client gets the text of a scrape.
fn is_answered(address: SocketAddr) -> bool {
    let mut answer = [0; 15];
    send(address, REQUEST).read_exact(&mut answer).is_ok() && answer == *b"HTTP/1.1 200 OK"
}

/// Allows this process many connections, and returns how many a test may open.
fn clients() -> usize {
    const OTHERS: libc::rlim_t = 1_000;
    let wanted: libc::rlim_t = if is_quick() { 200 } else { 2_000 };
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls get a structure of the type that they require.
    let outcome = unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = limit.rlim_max.min(limit.rlim_cur.max(wanted + OTHERS));
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit)
    };
    assert_eq!(outcome, 0);
    wanted.min(limit.rlim_cur.saturating_sub(OTHERS)) as usize
}

/// Returns a registry whose text is larger than the buffers of a connection.
fn large_registry() -> Registry {
    let (registry, value) = (Registry::new(), "x".repeat(1_000_000));
    for i in 0..12 {
        registry.counter(&format!("c{i}"), "", &[("label", &value)]).unwrap();
    }
    registry
}

/// Opens many connections whose clients do nothing more.
///
/// A later client gets its answer.
#[track_caller]
fn assert_does_not_delay(registry: &Registry, clients: usize, sent: &[u8]) {
    let endpoint = registry.serve_within("127.0.0.1:0", NO_LIMITS).unwrap();
    let address = endpoint.address();
    let stuck: Vec<_> = (0..clients).map(|_| send(address, sent)).collect();
    assert!((0..3).all(|_| is_answered(address)));
    drop(stuck);
}

#[test]
fn clients_that_send_nothing_do_not_delay_a_scrape() {
    assert_does_not_delay(&Registry::new(), clients(), b"");
}

#[test]
fn clients_that_send_half_a_request_do_not_delay_a_scrape() {
    assert_does_not_delay(&Registry::new(), clients(), &REQUEST[..30]);
}

#[test]
fn clients_that_do_not_read_do_not_delay_a_scrape() {
    if is_quick() {
        return;
    }
    assert_does_not_delay(&large_registry(), clients().min(300), REQUEST);
}

#[test]
fn clients_that_do_not_close_do_not_delay_a_scrape() {
    let endpoint = Registry::new().serve_within("127.0.0.1:0", NO_LIMITS).unwrap();
    let address = endpoint.address();
    let open: Vec<_> = (0..clients()).map(|_| send(address, REQUEST)).collect();
    for mut client in open.into_iter().rev().take(10) {
        let mut answer = [0; 15];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(answer, *b"HTTP/1.1 200 OK");
    }
    assert!(is_answered(address));
}

#[test]
fn displaced_client_gets_status_503() {
    let endpoint = Registry::new().serve_within("127.0.0.1:0", NO_LIMITS).unwrap();
    let address = endpoint.address();
    let first = connect(address);
    let _others: Vec<_> = (0..300).map(|_| connect(address)).collect();
    assert_eq!(status_of(first), "HTTP/1.1 503 Service Unavailable");
}

#[test]
fn late_request_gets_status_408() {
    let limits = Limits { request_time: Duration::from_millis(50), ..NO_LIMITS };
    let endpoint = Registry::new().serve_within("127.0.0.1:0", limits).unwrap();
    for sent in [&b""[..], &REQUEST[..30]] {
        assert_eq!(status(endpoint.address(), sent), "HTTP/1.1 408 Request Timeout");
    }
}

#[test]
fn client_that_does_not_read_is_disconnected() {
    if is_quick() {
        return;
    }
    let limits = Limits { connection_time: Duration::from_millis(500), ..NO_LIMITS };
    let endpoint = large_registry().serve_within("127.0.0.1:0", limits).unwrap();
    let mut client = send(endpoint.address(), REQUEST);
    thread::sleep(2 * limits.connection_time);
    let mut answer = Vec::new();
    // The connection is closed, with or without an error.
    let _ = client.read_to_end(&mut answer);
    assert!(answer.len() < 12_000_000, "{}", answer.len());
}

#[test]
fn requests_with_large_heads_get_status_431() {
    let endpoint = Registry::new().serve_within("127.0.0.1:0", NO_LIMITS).unwrap();
    let with = |head: &str| {
        let request = format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\n{head}\r\n");
        status(endpoint.address(), request.as_bytes())
    };
    let large = |bytes: usize| format!("X: {}\r\n", "x".repeat(bytes));
    assert_eq!(with(&large(15_000)), "HTTP/1.1 200 OK");
    assert_eq!(with(&large(17_000)), "HTTP/1.1 431 Request Header Fields Too Large");
    assert_eq!(with(&large(1_000_000)), "HTTP/1.1 431 Request Header Fields Too Large");
    assert_eq!(with(&"X: y\r\n".repeat(200)), "HTTP/1.1 431 Request Header Fields Too Large");
}

/// Sends bodies that the endpoint does not read.
///
/// Closing a connection at once would reset it.
#[test]
fn clients_that_send_a_body_get_their_answer() {
    let endpoint = Registry::new().serve_within("127.0.0.1:0", NO_LIMITS).unwrap();
    let body = "x".repeat(20_000_000);
    let length = body.len();
    for (method, wanted) in [("POST", "405 Method Not Allowed"), ("GET", "200 OK")] {
        let request =
            format!("{method} /metrics HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{body}");
        let mut client = connect(endpoint.address());
        client.write_all(request.as_bytes()).unwrap();
        assert_eq!(status_of(client), format!("HTTP/1.1 {wanted}"));
    }
    assert_eq!(status(endpoint.address(), b"hello\r\n\r\n"), "HTTP/1.1 400 Bad Request");
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
    if is_quick() {
        return;
    }
    let endpoint = large_registry().serve_within("127.0.0.1:0", NO_LIMITS).unwrap();
    let address = endpoint.address();
    let silent = connect(address);
    let mut client = send(address, REQUEST);
    let mut first = [0];
    client.read_exact(&mut first).unwrap();
    let ending = thread::spawn(move || drop(endpoint));
    let mut rest = String::new();
    client.read_to_string(&mut rest).unwrap();
    assert!(rest.ends_with("x\"} 0\n"));
    drop(client);
    // A client without a request does not delay the end.
    ending.join().unwrap();
    drop(silent);
}

/// Counts the threads before the first scrape, during one, and after it.
///
/// A thread that had to be started for a scrape could fail to.
#[test]
fn scrapes_start_no_thread() {
    let status = thiscpu_test_support::child::status_of(|| {
        let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
        let registry = Registry::new();
        let value = move || threads() as f64;
        registry.register_gauge("threads", "", &[], value).unwrap();
        let endpoint = registry.serve_within("127.0.0.1:0", NO_LIMITS).unwrap();
        let before = threads();
        let mut text = String::new();
        send(endpoint.address(), REQUEST).read_to_string(&mut text).unwrap();
        let is_kept = text.ends_with(&format!("threads {before}\n")) && threads() == before;
        i32::from(!is_kept)
    });
    assert_eq!(status, 0);
}

/// Ends sending while the scrape is taken.
#[test]
fn client_that_sends_nothing_more_gets_its_answer() {
    let registry = Registry::new();
    let (begun, has_begun) = std::sync::mpsc::channel();
    let value = move || {
        let _ = begun.send(());
        // Long enough for the endpoint to see the end.
        thread::sleep(Duration::from_millis(100));
        1.0
    };
    registry.register_gauge("slow", "", &[], value).unwrap();
    let endpoint = registry.serve_within("127.0.0.1:0", NO_LIMITS).unwrap();
    let client = send(endpoint.address(), REQUEST);
    has_begun.recv_timeout(ANSWER_TIMEOUT).unwrap();
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(status_of(client), "HTTP/1.1 200 OK");
}
