//! Runs each example as its readers would.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use thiscpu_test_support::{build, has};

/// Returns the program of an example, which cargo builds together with this test.
fn example(name: &str) -> Command {
    let test = std::env::current_exe().expect("a test knows its own path");
    let profile = test.ancestors().nth(2).expect("target/profile/deps/test");
    Command::new(profile.join("examples").join(name))
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn tokio_budget_holds_its_limit() {
    let said = text(&example("tokio_budget").output().unwrap());
    assert!(said.contains("of 1048576 held at once"), "{said}");
}

#[test]
fn tenants_lose_no_byte() {
    let said = text(&example("tenants").output().unwrap());
    assert!(said.contains("10000 tenants, 80000000 bytes, none lost"), "{said}");
}

#[test]
fn global_allocator_counts_its_blocks() {
    let said = text(&example("global_allocator").output().unwrap());
    assert!(said.contains("40000 strings"), "{said}");
    assert!(said.contains("bytes in use"), "{said}");
}

/// Checks what both programs of workers say.
fn assert_workers_share(said: &str) {
    let count = |part: &str| said.lines().filter(|line| line.contains(part)).count();
    assert!(said.starts_with("3 workers have served 3000 requests:\n"), "{said}");
    assert_eq!(count("is alive, and holds 2"), 3 + 2, "{said}");
    assert_eq!(count("has ended, and holds 2"), 1, "{said}");
    assert_eq!(count("2 connections came back: the parent got 6 of 10"), 1, "{said}");
    let end = "in the end: 3000 requests, none lost; 10 of 10 connections free\n";
    assert!(said.ends_with(end), "{said}");
}

#[test]
fn prefork_workers_share_a_limit_through_a_kill() {
    assert_workers_share(&text(&example("prefork").output().unwrap()));
}

/// A server that ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends a request and returns the answer's status and body.
fn request(address: &str, head: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    let head = format!("{head} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n");
    // A server that refuses a long body may close the connection before all of it is sent.
    let _ = stream.write_all(format!("{head}content-length: {length}\r\n\r\n{body}").as_bytes());
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).and_then(|word| word.parse().ok());
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    (status.unwrap_or_else(|| panic!("no status in {answer:?}")), body.unwrap_or_default())
}

#[test]
fn axum_server_counts_and_limits_requests() {
    let mut command = example("axum_server");
    let child = command.arg("127.0.0.1:0").stdout(Stdio::piped()).spawn().unwrap();
    let mut server = Server(child);
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("listening on http://").expect("an address").to_owned();
    for _ in 0..3 {
        assert_eq!(request(&address, "GET /", ""), (200, "hello\n".to_owned()));
    }
    assert_eq!(request(&address, "POST /upload", "12345"), (200, "5 bytes\n".to_owned()));
    let too_large = format!("POST /upload HTTP/1.1\r\ncontent-length: {}\r\n", (1 << 20) + 1);
    let mut stream = TcpStream::connect(&address).unwrap();
    stream
        .write_all(format!("{too_large}connection: close\r\nhost: x\r\n\r\n").as_bytes())
        .unwrap();
    let mut status = String::new();
    BufReader::new(stream).read_line(&mut status).unwrap();
    assert!(status.contains("413"), "{status}");
    let (status, scrape) = request(&address, "GET /metrics", "");
    assert_eq!(status, 200);
    for series in
        ["requests_total{route=\"hello\"} 3", "requests_total{route=\"upload\"} 2", "body_bytes 0"]
    {
        assert!(scrape.contains(series), "{series:?} is not in {scrape}");
    }
}

/// Compiles an example against the library as it was built, runs it, and returns its output.
fn compiled(compiler: &str, standard: &str, source: &str) -> Option<String> {
    if !has(compiler, compiler) {
        return None;
    }
    let library = build("thiscpu-capi");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("program");
    let mut compile = Command::new(compiler);
    compile.args([standard, "-O2", "-Wall", "-Wextra", "-Werror", "-pthread"]);
    compile.arg("-I").arg(root.join("../crates/thiscpu-capi/include"));
    compile.arg("-o").arg(&program).arg(root.join(source));
    // Statically, because an installed shared library has another name.
    compile.arg(library.join("libthiscpu_capi.a")).arg("-Wl,-z,nodelete");
    assert!(compile.status().unwrap().success());
    Some(text(&Command::new(program).output().unwrap()))
}

#[test]
fn c_example_accounts_for_each_request() {
    if let Some(said) = compiled("gcc", "-std=c11", "c/requests.c") {
        assert!(said.contains("400000 in all"), "{said}");
    }
}

#[test]
fn c_workers_share_a_limit_through_a_kill() {
    if let Some(said) = compiled("gcc", "-std=gnu11", "c/workers.c") {
        assert_workers_share(&said);
    }
}

#[test]
fn cpp_example_bills_each_request() {
    if let Some(said) = compiled("g++", "-std=c++17", "cpp/tenants.cpp") {
        assert_eq!(said, "100 tenants, 200000 requests\n");
    }
}

#[test]
fn documents_with_rust_are_compiled() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let included: String = [
        "examples/lib.rs",
        "crates/thiscpu/src/lib.rs",
        "crates/thiscpu-malloc/src/lib.rs",
        "crates/thiscpu-metrics/src/lib.rs",
        "crates/thiscpu-tower/src/lib.rs",
    ]
    .map(|path| std::fs::read_to_string(root.join(path)).unwrap())
    .concat();
    for directory in ["", "docs", "docs/design", "docs/decisions"] {
        for entry in std::fs::read_dir(root.join(directory)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "md") {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            // Blocks without a language are Rust too. Every second fence opens one.
            let fences = text.lines().filter(|line| line.starts_with("```"));
            let has_rust = fences.step_by(2).any(|fence| matches!(fence, "```" | "```rust"));
            let relative = path.strip_prefix(&root).unwrap().display().to_string();
            let is_included = included.contains(&format!("/{relative}\")]"));
            assert!(!has_rust || is_included, "the Rust blocks of {relative} are not compiled");
        }
    }
}
