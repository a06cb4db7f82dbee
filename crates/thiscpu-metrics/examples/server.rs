//! A server that answers each line with its length, with metrics for Prometheus.
//!
//! Run it: `cargo run --release -p thiscpu-metrics --example server`. Then:
//! `echo hello | nc -N 127.0.0.1 7000; curl http://127.0.0.1:9100/metrics`.

use std::{
    io::{self, BufRead as _, BufReader, Write as _},
    net::{TcpListener, TcpStream},
    thread,
    time::Instant,
};

use thiscpu_metrics::{Counter, Error, Gauge, Histogram, Registry};

/// The server's metrics. Handles are cheap to clone; all clones are the same series.
#[derive(Clone)]
struct Metrics {
    begun: Counter,
    ended: Counter,
    connections: Gauge,
    seconds: Histogram,
}

impl Metrics {
    fn new(registry: &Registry) -> Result<Metrics, Error> {
        Ok(Metrics {
            begun: registry.counter("requests_begun_total", "Lines read.", &[])?,
            ended: registry.counter("requests_ended_total", "Lines answered.", &[])?,
            connections: registry.gauge("connections", "Open connections.", &[])?,
            seconds: registry.histogram("request_seconds", "Time to answer a line.", &[])?,
        })
    }
}

fn answer(client: &TcpStream, metrics: &Metrics) -> io::Result<()> {
    for line in BufReader::new(client).lines() {
        let line = line?;
        let begun = Instant::now();
        metrics.begun.increment(1);
        let mut client = client;
        writeln!(client, "{}", line.len())?;
        metrics.ended.increment(1);
        metrics.seconds.record(begun.elapsed().as_secs_f64());
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // In each scrape, the difference of these two is the number of requests at one instant.
    let registry = Registry::builder()
        .group("requests", &["requests_begun_total", "requests_ended_total"])
        .buckets_for("request_seconds", &[1e-6, 1e-5, 1e-4, 1e-3, 1e-2])
        .build()?;
    let metrics = Metrics::new(&registry)?;
    let endpoint = registry.serve("127.0.0.1:9100")?;
    let listener = TcpListener::bind("127.0.0.1:7000")?;
    println!("answering on 127.0.0.1:7000, metrics on http://{}/metrics", endpoint.address());
    for client in listener.incoming() {
        let (client, metrics) = (client?, metrics.clone());
        thread::spawn(move || {
            metrics.connections.increment(1.0);
            if let Err(error) = answer(&client, &metrics) {
                eprintln!("connection failed: {error}");
            }
            metrics.connections.decrement(1.0);
        });
    }
    Ok(())
}
