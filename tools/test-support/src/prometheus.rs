//! Prometheus itself, and parsers of its formats.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{PYTHON, has, has_python_module, slowdown, text};

/// How long Prometheus may take to start, and to have new values.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running Prometheus, with its data in a directory of its own.
pub struct Prometheus {
    process: Child,
    address: SocketAddr,
    directory: PathBuf,
}

impl Prometheus {
    /// Starts a server that scrapes `target` five times a second.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    pub fn start(target: SocketAddr) -> Prometheus {
        // Tests of one process may run at once.
        static SERVERS: AtomicU32 = AtomicU32::new(0);
        // Relaxed: each call gets another number, which orders nothing.
        let number = SERVERS.fetch_add(1, Relaxed);
        let name = format!("thiscpu-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        fs::create_dir_all(&directory).expect("a temporary directory");
        let config = format!(
            "global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}\n\
             scrape_configs: [{{job_name: test, static_configs: [{{targets: ['{target}']}}]}}]\n"
        );
        let file = directory.join("prometheus.yml");
        fs::write(&file, config).expect("a temporary file");
        // Prometheus cannot choose a port. Another program may take this one before it does; then
        // the test fails, with the message of Prometheus.
        let address =
            TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr()).expect("a free port");
        let process = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", directory.join("data").display()))
            .args([format!("--web.listen-address={address}"), "--log.level=error".into()])
            .args(["--enable-feature=exemplar-storage"])
            .stdout(Stdio::null())
            .spawn()
            .expect("prometheus starts");
        Prometheus { process, address, directory }
    }

    /// Asks the API, and returns its `data`; `None` if it cannot answer yet.
    pub fn ask(&self, path: &str) -> Option<Value> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        write!(stream, "GET /api/v1/{path} HTTP/1.0\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (_, body) = answer.split_once("\r\n\r\n")?;
        let mut body: Value = serde_json::from_str(body).ok()?;
        (body["status"] == "success").then(|| body["data"].take())
    }

    /// Returns the value of one series, or of an expression that has one.
    ///
    /// The query is a part of a URL, and has no blanks.
    pub fn value(&self, name: &str) -> Option<f64> {
        let data = self.ask(&format!("query?query={name}"))?;
        data["result"][0]["value"][1].as_str()?.parse().ok()
    }

    /// Waits until the condition holds.
    ///
    /// # Panics
    ///
    /// If it never holds.
    #[track_caller]
    pub fn wait_for(&self, wanted: &str, condition: impl Fn() -> bool) {
        let end = Instant::now() + PATIENCE * slowdown();
        while !condition() {
            assert!(Instant::now() < end, "Prometheus never had {wanted}");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        self.process.kill().expect("it is a child");
        self.process.wait().expect("it is a child");
        // It may have left files that this user cannot remove.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Prints each sample that the parser finds: name, labels, value, and the exemplar's labels.
const PARSER: &str = "
import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse
for family in parse(sys.stdin.read()):
    print('family', family.name, family.type, family.unit, family.documentation)
    for sample in family.samples:
        exemplar = sample.exemplar
        if exemplar:
            is_dated = exemplar.timestamp is not None
            exemplar = (exemplar.labels, float(exemplar.value), is_dated)
        print(sample.name, sample.labels, float(sample.value), exemplar or '')
";

/// Runs a program with this input, and returns its output and its messages.
///
/// # Panics
///
/// If it does not end with success.
#[track_caller]
pub fn run(program: &mut Command, input: &str) -> String {
    let piped = program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(input.as_bytes()).expect("it reads its input");
    drop(stdin);
    let output = child.wait_with_output().expect("it has an output");
    let [out, errors] = [output.stdout, output.stderr].map(|bytes| text(&bytes));
    assert!(output.status.success(), "{out}{errors}\n{input}");
    out + &errors
}

/// Returns what the Python parser of OpenMetrics reads; `None` if it is not installed.
///
/// # Panics
///
/// If the parser refuses the text.
#[track_caller]
pub fn parse_openmetrics(text: &str) -> Option<String> {
    has_python_module("prometheus_client", "python3-prometheus-client")
        .then(|| run(Command::new(PYTHON).args(["-c", PARSER]), text))
}

/// Returns promtool's complaints about names in a text; `None` if it is not installed.
///
/// # Panics
///
/// If promtool refuses the text.
#[track_caller]
pub fn check_text(text: &str) -> Option<String> {
    has("promtool", "prometheus")
        .then(|| run(Command::new("promtool").args(["check", "metrics"]), text))
}
