//! The endpoint, over the loopback interface.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
};

use thiscpu_metrics::{Error, Format, Registry};
use thiscpu_test_support::child;

/// Sends a request, and returns the head and the body of the answer.
fn ask(address: SocketAddr, method: &str, path: &str) -> (String, String) {
    let mut client = TcpStream::connect(address).unwrap();
    write!(client, "{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_ascii_lowercase(), body.to_owned())
}

#[test]
fn endpoint_answers_get_and_head_only() {
    let registry = Registry::new();
    let counter = registry.counter("hits_total", "Hits.", &[]).unwrap();
    let endpoint = registry.serve("127.0.0.1:0").unwrap();
    let address = endpoint.address();
    for _ in 0..2 {
        counter.increment(1);
        let (head, body) = ask(address, "GET", "/metrics");
        assert!(head.starts_with("http/1.1 200 ok"), "{head}");
        assert!(head.contains(&format!("content-type: {}", Format::Text.content_type())), "{head}");
        assert!(head.contains(&format!("content-length: {}", body.len())), "{head}");
        assert_eq!(body, registry.render());
    }
    let (head, body) = ask(address, "HEAD", "/metrics?x=y");
    assert!(head.starts_with("http/1.1 200 ok") && body.is_empty(), "{head} {body}");
    let (head, _) = ask(address, "GET", "/");
    assert!(head.starts_with("http/1.1 404"), "{head}");
    let (head, _) = ask(address, "POST", "/metrics");
    assert!(head.starts_with("http/1.1 405") && head.contains("allow: get, head"), "{head}");
}

#[test]
fn address_in_use_is_reported() {
    let registry = Registry::new();
    let endpoint = registry.serve("127.0.0.1:0").unwrap();
    let address = endpoint.address().to_string();
    let error = registry.serve(&address).unwrap_err();
    assert_eq!(error, Error::AddressInUse { address: address.clone() });
    let message = error.to_string();
    assert!(message.contains(&address) && message.contains("another port"), "{message}");
}

/// Tries several times: another process may take the port, or hold the socket after a fork.
#[test]
fn dropped_endpoint_frees_its_port() {
    let registry = Registry::new();
    let is_free_again = || {
        let endpoint = registry.serve("127.0.0.1:0").unwrap();
        let address = endpoint.address().to_string();
        drop(endpoint);
        registry.serve(&address).is_ok()
    };
    assert!((0..100).any(|_| is_free_again()));
}

/// Checks that the endpoint's thread, which only exists in the parent, continues there.
#[test]
fn endpoint_drop_does_nothing_in_a_child() {
    let registry = Registry::new();
    let mut endpoint = Some(registry.serve("127.0.0.1:0").unwrap());
    // No thread holds one of the endpoint's locks.
    child::assert_holds(|| {
        drop(endpoint.take());
        true
    });
    let (head, _) = ask(endpoint.unwrap().address(), "GET", "/metrics");
    assert!(head.starts_with("http/1.1 200 ok"), "{head}");
}

#[test]
fn invalid_addresses_are_rejected() {
    for address in ["", "localhost", "127.0.0.1:99999"] {
        let error = Registry::new().serve(address).unwrap_err();
        assert!(matches!(error, Error::InvalidAddress { .. }), "{error}");
        let message = error.to_string();
        assert!(message.contains(&format!("{address:?}")), "{message}");
        assert!(message.contains("such as 127.0.0.1:9090"), "{message}");
    }
    // A reserved address. The system may be configured to let programs listen there nevertheless.
    if let Err(error) = Registry::new().serve("192.0.2.1:0") {
        assert!(matches!(error, Error::InvalidAddress { .. }), "{error}");
    }
}
