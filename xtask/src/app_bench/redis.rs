//! redis-server under redis-benchmark. The server runs on the allocator; the clients do not.
//!
//! The clients' own work is half of the elapsed time, so the server's CPU time is reported as its
//! time too.
//!
//! redis-benchmark seeds its choice of keys with the time. The final content must not depend on it.
//! So there are many more requests than keys, all values of a load are equal, and the kinds of
//! requests have one result in any order.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use super::measure::{self, Cost};
use super::run::{Parts, Run};
use crate::tools::Tool;

const SERVER: &str = "/usr/bin/redis-server";
const BENCHMARK: &str = "/usr/bin/redis-benchmark";
const CLIENT: &str = "/usr/bin/redis-cli";

pub(super) const PARTS: Parts = Parts {
    tools: &[
        Tool { program: SERVER, package: "redis-server" },
        Tool { program: BENCHMARK, package: "redis-tools" },
        Tool { program: CLIENT, package: "redis-tools" },
    ],
    prepare: |_, _| Ok(()),
    run,
};

/// A socket in the directory of the run, so the server needs no port.
const SOCKET: [&str; 2] = ["-s", "redis.sock"];

/// The number of requests for each key.
///
/// With it, the probability that a key is never chosen is below 10^-12.
const REQUESTS_PER_KEY: u32 = 28;

/// The kinds of requests, and the sizes of values in bytes.
const LOADS: [(&str, u32); 5] =
    [("set,hset,sadd", 20), ("set,get", 700), ("lpush,lpop", 90), ("set", 150), ("set,get", 48)];

fn run(run: &Run) -> Result<Cost> {
    let log = run.directory.join("log");
    serve(run, &log).with_context(|| format!("the server's log is in {}", log.display()))
}

fn serve(run: &Run, log: &Path) -> Result<Cost> {
    let server = Server::start(run, log)?;
    for (kinds, bytes) in LOADS {
        run.measure(&mut benchmark(run, kinds, bytes)?)?;
    }
    for query in [&["dbsize"][..], &["debug", "digest"]] {
        run.measure(run.client(CLIENT)?.args(SOCKET).args(query))?;
    }
    server.stop(run)
}

fn benchmark(run: &Run, kinds: &str, bytes: u32) -> Result<Command> {
    let keys = run.scale.of(100, 8_000);
    let mut benchmark = run.client(BENCHMARK)?;
    benchmark.args(SOCKET).args(["-q", "-c", "20", "-P", "16", "-t", kinds]);
    for (option, value) in [("-r", keys), ("-n", keys * REQUESTS_PER_KEY), ("-d", bytes)] {
        benchmark.args([option, &value.to_string()]);
    }
    // The output contains times, which differ from run to run.
    benchmark.stdout(Stdio::null());
    Ok(benchmark)
}

/// A server, which is killed when this is dropped.
struct Server(Option<Child>);

impl Server {
    fn start(run: &Run, log: &Path) -> Result<Server> {
        let mut server = run.command(SERVER)?;
        server.args(["--port", "0", "--unixsocket", SOCKET[1], "--daemonize", "no"]);
        server.args(["--save", "", "--appendonly", "no", "--enable-debug-command", "yes"]);
        // The log is no result: it contains times and the process id.
        let child = server.stdout(File::create(log)?).spawn().context(SERVER)?;
        let mut server = Server(Some(child));
        server.wait_until_ready(run)?;
        Ok(server)
    }

    fn wait_until_ready(&mut self, run: &Run) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let mut ping = run.client(CLIENT)?;
            ping.args(SOCKET).arg("ping").stdout(Stdio::null()).stderr(Stdio::null());
            if measure::run(&mut ping)?.0.success() {
                return Ok(());
            }
            if let Some(status) = self.0.as_mut().map(Child::try_wait).transpose()?.flatten() {
                self.0 = None;
                bail!("{SERVER}: {status}; {}", run.last_errors());
            }
            ensure!(Instant::now() < deadline, "{SERVER} does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn stop(mut self, run: &Run) -> Result<Cost> {
        let child = self.0.take().context("the server is not running")?;
        let peak_bytes = measure::peak_bytes(child.id())?;
        self.0 = Some(child);
        run.measure(run.client(CLIENT)?.args(SOCKET).args(["shutdown", "nosave"]))?;
        let child = self.0.take().context("the server is not running")?;
        let (status, cost) = measure::finish(child)?;
        ensure!(status.success(), "{SERVER}: {status}; {}", run.last_errors());
        Ok(Cost { time: cost.cpu, peak_bytes, ..cost })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // Fails if the server has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
