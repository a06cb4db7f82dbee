//! PostgreSQL under pgbench and a script of queries. The server runs on the allocator; the clients
//! do not.
//!
//! As with redis, the CPU time of the server is reported as its time. It includes that of all of
//! its processes.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use super::measure::{self, Cost};
use super::run::{self, Parts, Run, Scale};
use super::server::Server;
use crate::tools::Tool;

const SERVER: &str = "/usr/lib/postgresql/15/bin/postgres";
const INITDB: &str = "/usr/lib/postgresql/15/bin/initdb";
const BENCHMARK: &str = "/usr/lib/postgresql/15/bin/pgbench";
const CLIENT: &str = "/usr/lib/postgresql/15/bin/psql";
const SETPRIV: &str = "/usr/bin/setpriv";

pub(super) const PARTS: Parts = Parts {
    tools: &[
        Tool { program: SERVER, package: "postgresql-15" },
        Tool { program: INITDB, package: "postgresql-15" },
        Tool { program: BENCHMARK, package: "postgresql-15" },
        Tool { program: CLIENT, package: "postgresql-client-15" },
        Tool { program: SETPRIV, package: "util-linux" },
    ],
    prepare,
    run,
};

/// Arguments of setpriv that make a program run as the user `postgres`.
///
/// PostgreSQL refuses to run as root. The program may still use directories that only root may
/// enter, because this repository may be in one. It keeps the signal that it gets when this process
/// ends.
const UNPRIVILEGED: [&str; 6] = [
    "--reuid=postgres",
    "--regid=postgres",
    "--clear-groups",
    "--inh-caps=+dac_override",
    "--ambient-caps=+dac_override",
    "--pdeathsig=keep",
];

/// Settings of the server: no disk, and no work that begins at a time of its own.
const SETTINGS: [&str; 8] = [
    "listen_addresses=",
    "fsync=off",
    "max_wal_size=4GB",
    "autovacuum=off",
    "jit=off",
    "shared_buffers=16MB",
    // Files in the data directory, so that nothing is left in /dev/shm.
    "dynamic_shared_memory_type=mmap",
    "log_line_prefix=",
];

/// The number of connections of pgbench.
const CLIENTS: &str = "8";

/// Makes the data directory that all runs begin with.
fn prepare(inputs: &Path, scale: Scale) -> Result<()> {
    let rows = scale.of(1_000, 12_000).to_string();
    let queries = include_str!("scripts/queries.sql").replace("SCALE", &rows);
    fs::write(inputs.join("queries.sql"), queries)?;
    let mut initdb = unprivileged(INITDB, |program| Ok(run::plain(program, inputs)))?;
    initdb.args(["--no-sync", "--no-instructions", "--wal-segsize=1", "--auth=peer"]);
    initdb.args(["--encoding=UTF8", "--locale=C", "--pgdata"]).arg(inputs.join("data"));
    let (status, _) = measure::run(initdb.stdin(Stdio::null()).stdout(Stdio::null()))?;
    ensure!(status.success(), "{INITDB}: {status}");
    Ok(())
}

/// Returns a command that runs `program` as another user than root.
///
/// `make` makes a command from the name of a program.
fn unprivileged(program: &str, make: impl Fn(&str) -> Result<Command>) -> Result<Command> {
    // SAFETY: the call has no arguments and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return make(program);
    }
    let mut command = make(SETPRIV)?;
    command.args(UNPRIVILEGED).arg(program);
    Ok(command)
}

fn run(run: &Run) -> Result<Cost> {
    let log = run.directory.join("log");
    serve(run, &log).with_context(|| format!("the server's log is in {}", log.display()))
}

fn serve(run: &Run, log: &Path) -> Result<Cost> {
    let mut copy = run.client("/bin/cp")?;
    run.measure(copy.arg("--archive").arg(run.inputs.join("data")).arg("data"))?;
    let server = start(run, log)?;
    let scale = run.scale.of(1, 2).to_string();
    bench(run, &["--initialize", "--quiet", "--scale", &scale])?;
    let counts = [(20, 300), (20, 1_000), (1, 20)].map(|(quick, full)| run.scale.of(quick, full));
    let [changes, reads, connections] = counts.map(|count| count.to_string());
    let common = ["--no-vacuum", "--client", CLIENTS, "--random-seed=1", "--transactions"];
    bench(run, &[&common[..], &[&changes, "--protocol=prepared"]].concat())?;
    bench(run, &[&common[..], &[&reads, "--select-only"]].concat())?;
    // Each of these transactions has a connection, and so a process, of its own.
    bench(run, &[&common[..], &[&connections, "--select-only", "--connect"]].concat())?;
    let mut queries = client(run, CLIENT)?;
    queries.args(["--no-psqlrc", "--quiet", "--no-align", "--set=ON_ERROR_STOP=1"]);
    run.measure(queries.stdin(run.input("queries.sql")?))?;
    // It ends when the last connection is closed.
    server.signal(libc::SIGTERM)?;
    let cost = server.finish(run)?;
    fs::write(run.results().join("log"), complaints(&fs::read_to_string(log)?))?;
    Ok(cost)
}

/// Returns the warnings and errors in a log; other lines have times and process ids.
///
/// Refusals before the server was ready are none: each run has as many as it had to wait.
fn complaints(log: &str) -> String {
    let early = |line: &str| line.ends_with("the database system is starting up");
    let lines = log.lines().filter(|line| !line.starts_with("LOG:") && !early(line));
    lines.flat_map(|line| [line, "\n"]).collect()
}

fn start(run: &Run, log: &Path) -> Result<Server> {
    let mut server = unprivileged(SERVER, |program| run.command(program))?;
    server.args(["-D", "data"]);
    let directory = format!("unix_socket_directories={}", socket());
    for setting in SETTINGS.into_iter().chain([&directory[..]]) {
        server.args(["-c", setting]);
    }
    let log = File::create(log)?;
    server.stdout(log.try_clone()?).stderr(log);
    // It then ends its other processes, without a last write.
    Server::start(run, &mut server, libc::SIGQUIT, || {
        let mut ping = client(run, CLIENT)?;
        ping.args(["--no-psqlrc", "--command", ""]).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(ping)
    })
}

fn bench(run: &Run, arguments: &[&str]) -> Result<()> {
    let mut bench = client(run, BENCHMARK)?;
    // The output contains times.
    let output = File::create(run.directory.join("pgbench"))?;
    bench.args(arguments).stdout(output.try_clone()?).stderr(output);
    run.measure(&mut bench).with_context(|| {
        let text = fs::read_to_string(run.directory.join("pgbench")).unwrap_or_default();
        format!("pgbench wrote: {text}")
    })?;
    Ok(())
}

fn client(run: &Run, program: &str) -> Result<Command> {
    let mut client = unprivileged(program, |program| run.client(program))?;
    client.env("PGHOST", socket()).env("PGDATABASE", "postgres");
    Ok(client)
}

/// Returns the name of the server's socket.
///
/// It is an abstract one, because the path of a socket may have 107 bytes only. The server accepts
/// only connections of its own user.
fn socket() -> String {
    format!("@thiscpu-app-bench-{}", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_results() {
        let log = "\
LOG:  starting PostgreSQL 15
LOG:  database system is ready to accept connections
FATAL:  the database system is starting up
LOG:  received smart shutdown request
WARNING:  terminating connection
DETAIL:  Another server process has ended
thiscpu: double free
";
        let expected = "\
WARNING:  terminating connection
DETAIL:  Another server process has ended
thiscpu: double free
";
        assert_eq!(complaints(log), expected);
    }
}
