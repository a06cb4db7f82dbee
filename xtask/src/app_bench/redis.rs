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
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use super::measure::{self, Cost};
use super::run::{Parts, Run};
use super::server::Server;
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

/// A step of the work.
enum Step {
    Load {
        /// The kinds of requests.
        kinds: &'static str,
        /// The size of values.
        bytes: u32,
        /// The number of keys is divided by this.
        fewer: u32,
    },
    /// Drops all keys.
    Flush,
}

/// Small values, then large ones in their place, and small ones after all were dropped.
const STEPS: [Step; 9] = [
    Step::Load { kinds: "set,hset,sadd", bytes: 20, fewer: 1 },
    Step::Load { kinds: "set,get", bytes: 700, fewer: 1 },
    Step::Load { kinds: "lpush,lpop", bytes: 90, fewer: 1 },
    Step::Load { kinds: "set,get", bytes: 4_096, fewer: 8 },
    Step::Load { kinds: "set,get", bytes: 40_000, fewer: 40 },
    Step::Flush,
    Step::Load { kinds: "set,hset", bytes: 150, fewer: 1 },
    Step::Load { kinds: "set,get", bytes: 4_096, fewer: 8 },
    Step::Load { kinds: "set,get", bytes: 48, fewer: 1 },
];

fn run(run: &Run) -> Result<Cost> {
    let log = run.directory.join("log");
    serve(run, &log).with_context(|| format!("the server's log is in {}", log.display()))
}

fn serve(run: &Run, log: &Path) -> Result<Cost> {
    let server = start(run, log)?;
    for step in STEPS {
        match step {
            Step::Load { kinds, bytes, fewer } => {
                run.measure(&mut benchmark(run, kinds, bytes, fewer)?)?;
            }
            Step::Flush => {
                run.measure(client(run)?.arg("flushall"))?;
            }
        }
    }
    for query in [&["dbsize"][..], &["debug", "digest"]] {
        run.measure(client(run)?.args(query))?;
    }
    let peak_bytes = measure::peak_bytes(server.id()?)?;
    run.measure(client(run)?.args(["shutdown", "nosave"]))?;
    Ok(Cost { peak_bytes, ..server.finish(run)? })
}

fn start(run: &Run, log: &Path) -> Result<Server> {
    let mut server = run.command(SERVER)?;
    server.args(["--port", "0", "--unixsocket", SOCKET[1], "--daemonize", "no"]);
    server.args(["--save", "", "--appendonly", "no", "--enable-debug-command", "yes"]);
    // The log is no result: it contains times and the process id.
    server.stdout(File::create(log)?);
    Server::start(run, &mut server, libc::SIGKILL, || {
        let mut ping = client(run)?;
        ping.arg("ping").stdout(Stdio::null()).stderr(Stdio::null());
        Ok(ping)
    })
}

fn client(run: &Run) -> Result<Command> {
    let mut client = run.client(CLIENT)?;
    client.args(SOCKET);
    Ok(client)
}

fn benchmark(run: &Run, kinds: &str, bytes: u32, fewer: u32) -> Result<Command> {
    let keys = (run.scale.of(100, 8_000) / fewer).max(1);
    let mut benchmark = run.client(BENCHMARK)?;
    benchmark.args(SOCKET).args(["-q", "-c", "20", "-P", "16", "-t", kinds]);
    for (option, value) in [("-r", keys), ("-n", keys * REQUESTS_PER_KEY), ("-d", bytes)] {
        benchmark.args([option, &value.to_string()]);
    }
    // The output contains times, which differ from run to run.
    benchmark.stdout(Stdio::null());
    Ok(benchmark)
}
