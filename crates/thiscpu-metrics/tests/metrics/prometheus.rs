//! Prometheus itself scrapes the endpoint, and its API gives the exact numbers back.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use thiscpu_metrics::Registry;

/// How long Prometheus may take to start, and to have new values.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running Prometheus, with its data in a directory of its own.
struct Prometheus {
    process: Child,
    address: SocketAddr,
    directory: PathBuf,
}

impl Prometheus {
    /// Starts a server that scrapes `target` five times a second.
    fn start(target: SocketAddr) -> Prometheus {
        let directory = std::env::temp_dir().join(format!("thiscpu-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let config = format!(
            "global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}\n\
             scrape_configs: [{{job_name: test, static_configs: [{{targets: ['{target}']}}]}}]\n"
        );
        let file = directory.join("prometheus.yml");
        fs::write(&file, config).unwrap();
        // Prometheus cannot choose a port. Another program may take this one before it does; then
        // the test fails, with the message of Prometheus.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let process = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", directory.join("data").display()))
            .args([format!("--web.listen-address={address}"), "--log.level=error".into()])
            .args(["--enable-feature=exemplar-storage"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Prometheus { process, address, directory }
    }

    /// Asks the API, and returns its `data`; `None` if it cannot answer yet.
    fn ask(&self, path: &str) -> Option<Value> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        write!(stream, "GET /api/v1/{path} HTTP/1.0\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (_, body) = answer.split_once("\r\n\r\n")?;
        let mut body: Value = serde_json::from_str(body).ok()?;
        (body["status"] == "success").then(|| body["data"].take())
    }

    /// Returns the value of one series.
    fn value(&self, name: &str) -> Option<f64> {
        let data = self.ask(&format!("query?query={name}"))?;
        data["result"][0]["value"][1].as_str()?.parse().ok()
    }

    /// Waits until the condition holds.
    #[track_caller]
    fn wait_for(&self, wanted: &str, condition: impl Fn() -> bool) {
        let end = Instant::now() + PATIENCE * thiscpu_test_support::slowdown();
        while !condition() {
            assert!(Instant::now() < end, "Prometheus never had {wanted}");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        fs::remove_dir_all(&self.directory).unwrap();
    }
}

#[test]
fn prometheus_has_the_exact_values() {
    // Prometheus takes seconds to start.
    if thiscpu_test_support::is_quick() || !thiscpu_test_support::has("prometheus", "prometheus") {
        return;
    }
    let registry = Registry::builder().buckets_for("time_seconds", &[0.5, 1.0]).build().unwrap();
    let hits = registry.counter("hits", "Hits.", &[("path", "/a b")]).unwrap();
    let level = registry.gauge("level", "", &[]).unwrap();
    let time = registry.histogram("time_seconds", "", &[]).unwrap();
    let endpoint = registry.serve("127.0.0.1:0").unwrap();
    let prometheus = Prometheus::start(endpoint.address());
    prometheus.wait_for("a scrape", || prometheus.value("hits_total").is_some());

    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..50_000).for_each(|_| hits.increment(1)));
        }
    });
    hits.increment((1 << 53) - 1 - 200_000);
    hits.increment_with_exemplar(1, &[("trace_id", "abc")]).unwrap();
    level.set(-2.75);
    [0.25, 0.75, 3.0].iter().for_each(|&seconds| time.record(seconds));

    let all = [
        ("hits_total", (1_u64 << 53) as f64),
        ("level", -2.75),
        ("time_seconds_count", 3.0),
        ("time_seconds_sum", 4.0),
        ("time_seconds_bucket{le=%220.5%22}", 1.0),
        ("time_seconds_bucket{le=%221.0%22}", 2.0),
        ("time_seconds_bucket{le=%22%2BInf%22}", 3.0),
    ];
    for (name, value) in all {
        let wanted = format!("{name} {value}");
        prometheus.wait_for(&wanted, || prometheus.value(name) == Some(value));
    }
    let exemplars = prometheus.ask("query_exemplars?query=hits_total&start=0&end=9999999999");
    let exemplar = &exemplars.unwrap()[0]["exemplars"][0];
    assert_eq!(exemplar["labels"]["trace_id"], "abc", "only OpenMetrics has exemplars");

    // Its staleness marker comes with the next scrape.
    assert!(registry.remove("hits", &[("path", "/a b")]));
    prometheus.wait_for("no series", || prometheus.value("hits_total").is_none());
    assert_eq!(prometheus.value("level"), Some(-2.75));
}
