//! Worker processes that share a counter and a limit, one of which is killed.
//!
//! ```sh
//! cargo run --release -p thiscpu-examples --example prefork
//! ```
//!
//! The parent starts three workers, which attach to its segment by the path. Each worker counts
//! requests, and then holds two of ten connections. The parent kills one worker: its counts stay,
//! and its connections come back.

use std::env;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use thiscpu::{Segment, SegmentView};

const WORKERS: usize = 3;
const REQUESTS_EACH: i64 = 1000;
/// Connections that all processes together may hold.
const LIMIT: u64 = 10;
/// Connections that a worker keeps after its requests.
const KEPT: u64 = 2;

fn main() -> Result<()> {
    match env::args_os().nth(1) {
        Some(path) => work(Path::new(&path)),
        None => supervise(),
    }
}

/// Serves requests, and then keeps connections until the parent closes standard input.
fn work(path: &Path) -> Result<()> {
    let segment = Segment::open(path)?;
    let requests = segment.counter("requests")?;
    let connections = segment.budget("connections", LIMIT)?;
    for _ in 0..REQUESTS_EACH {
        let connection = connections.lease(1)?;
        requests.inc();
        drop(connection);
    }
    let kept = connections.lease(KEPT)?;
    println!("ready");
    io::stdin().read_to_end(&mut Vec::new())?;
    drop(kept);
    Ok(())
}

/// A segment's file, which is removed at the end.
struct File(PathBuf);

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A worker, which is killed if nobody has waited for its end.
struct Worker(Child);

impl Worker {
    /// Starts a worker, and waits until it keeps its connections.
    fn start(path: &Path) -> Result<Worker> {
        let mut command = Command::new(env::current_exe()?);
        command.arg(path).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut worker = Worker(command.spawn()?);
        let said = worker.0.stdout.take().context("standard output is not a pipe")?;
        let mut line = String::new();
        BufReader::new(said).read_line(&mut line)?;
        ensure!(line == "ready\n", "worker {} failed", worker.0.id());
        Ok(worker)
    }

    /// Lets the worker end, and waits until it has.
    fn finish(mut self) -> Result<()> {
        drop(self.0.stdin.take());
        ensure!(self.0.wait()?.success(), "worker {} failed", self.0.id());
        Ok(())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill(); // SIGKILL
        let _ = self.0.wait();
    }
}

/// Prints what each process holds, and returns how many units ended processes hold.
fn show_holders(view: &SegmentView) -> Result<u64> {
    let mut held_by_ended = 0;
    for user in view.budget("connections")?.participants() {
        let state = if user.is_alive { "is alive" } else { "has ended" };
        println!("  process {} {state}, and holds {}", user.pid, user.held);
        held_by_ended += if user.is_alive { 0 } else { user.held };
    }
    Ok(held_by_ended)
}

fn supervise() -> Result<()> {
    let name = format!("thiscpu-prefork-{}", std::process::id());
    let shared = Path::new("/dev/shm");
    let directory = if shared.is_dir() { shared.to_owned() } else { env::temp_dir() };
    let path = directory.join(name);
    // Before the guard: a file that was there already is not this program's to remove.
    let segment = Segment::create(&path)?;
    let file = File(path);
    let requests = segment.counter("requests")?;
    let connections = segment.budget("connections", LIMIT)?;

    let mut workers = (0..WORKERS).map(|_| Worker::start(&file.0)).collect::<Result<Vec<_>>>()?;
    println!("{WORKERS} workers have served {} requests:", requests.sum());
    // A view changes nothing, so it takes nothing back from the killed worker either.
    let view = SegmentView::open(&file.0)?;
    ensure!(show_holders(&view)? == 0, "a worker has ended too early");

    let mut killed = workers.remove(0);
    killed.0.kill()?; // SIGKILL
    killed.0.wait()?;
    println!("worker {} is killed:", killed.0.id());
    let lost = show_holders(&view)?;
    ensure!(lost == KEPT, "the killed worker held {lost} connections, not {KEPT}");

    // All that the living workers leave. This takes the units of the killed one back.
    let rest = LIMIT - KEPT * workers.len() as u64;
    connections.acquire_timeout(rest, Duration::from_secs(10)).with_context(|| {
        format!("cannot get {rest} connections: units of a killed worker did not come back")
    })?;
    println!("{lost} connections came back: the parent got {rest} of {LIMIT}");
    connections.release(rest);

    workers.into_iter().try_for_each(Worker::finish)?;
    let (sum, free) = (requests.sum(), connections.available());
    ensure!(sum == WORKERS as i64 * REQUESTS_EACH, "requests are lost: {sum} are left");
    ensure!(free == LIMIT, "connections are lost: {free} of {LIMIT} are free");
    println!("in the end: {sum} requests, none lost; {free} of {LIMIT} connections free");
    Ok(())
}
