//! Measures what `thiscpu-top` costs: its own CPU time, and the speed of a program that it watches.
//!
//! `cargo build --release -p thiscpu-top && cargo run --release -p thiscpu-top --example cost`
//! takes two minutes. The program watches a segment with 100,000 counters, or as many as the first
//! argument says. A thread adds to all of them in turn. In each round it does so with and without
//! the program that watches, for two seconds each.

use std::error::Error;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use thiscpu::{Segment, SharedCounter};
use thiscpu_test_support::terminal;

const ROUNDS: usize = 11;
const PHASE: Duration = Duration::from_secs(2);
/// The time over which CPU time is measured.
const WATCH: Duration = Duration::from_secs(20);
/// The time after which the program has read the list of objects.
const START: Duration = Duration::from_secs(3);

/// `thiscpu-top` on a terminal that somebody reads, until this is dropped.
struct Top(Child);

impl Top {
    fn start(path: &Path, sort: &str) -> Result<Top, Box<dyn Error>> {
        let program = std::env::current_exe()?.ancestors().nth(2).map(|it| it.join("thiscpu-top"));
        let program = program.filter(|program| program.is_file());
        let program = program.ok_or("build thiscpu-top in this profile first")?;
        let (mut ours, theirs) = terminal::open(80);
        let mut command = Command::new(program);
        command.args(["--sort", sort]).arg(path).env("TERM", "xterm");
        command.stdin(theirs.try_clone()?).stdout(theirs);
        let top = Top(command.spawn()?);
        thread::spawn(move || drain(&mut ours));
        Ok(top)
    }

    /// Returns the CPU time that it has used, in seconds.
    fn cpu_s(&self) -> Result<f64, Box<dyn Error>> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.id()))?;
        let after_name = stat.rsplit_once(')').ok_or("no name")?.1;
        let fields: Vec<_> = after_name.split_whitespace().collect();
        let ticks = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
        // SAFETY: `sysconf` has no preconditions.
        let in_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
        Ok(ticks as f64 / in_second as f64)
    }
}

impl Drop for Top {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn drain(terminal: &mut File) {
    while matches!(terminal.read(&mut [0; 4096]), Ok(1..)) {}
}

/// Returns the adds in a second while time passes.
fn rate(adds: &AtomicU64, time: Duration) -> f64 {
    // Relaxed, both: the adder's number is only shown.
    let (begun, before) = (Instant::now(), adds.load(Relaxed));
    thread::sleep(time);
    (adds.load(Relaxed) - before) as f64 / begun.elapsed().as_secs_f64()
}

fn main() -> Result<(), Box<dyn Error>> {
    let len: usize = std::env::args().nth(1).map_or(Ok(100_000), |text| text.parse())?;
    let path = Path::new("/dev/shm").join(format!("thiscpu-top-cost-{}", std::process::id()));
    let segment = Segment::options().max_bytes(len as u64 * 512 + (1 << 20)).create(&path)?;
    let result = measure(&segment, len, &path);
    fs::remove_file(&path)?;
    result
}

fn measure(segment: &Segment, len: usize, path: &Path) -> Result<(), Box<dyn Error>> {
    let counters: Result<Vec<SharedCounter>, _> =
        (0..len).map(|number| segment.counter(&format!("counter-{number:07}"))).collect();
    let counters = counters?;
    let (adds, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|threads| {
        threads.spawn(|| {
            // Relaxed, all: the flag and the number order nothing else.
            while !is_over.load(Relaxed) {
                counters.iter().for_each(SharedCounter::inc);
                adds.fetch_add(len as u64, Relaxed);
            }
        });
        let result = report(&adds, path);
        is_over.store(true, Relaxed);
        result
    })
}

fn report(adds: &AtomicU64, path: &Path) -> Result<(), Box<dyn Error>> {
    for sort in ["rate", "name"] {
        let top = Top::start(path, sort)?;
        thread::sleep(START);
        let before = top.cpu_s()?;
        thread::sleep(WATCH);
        let share = 100.0 * (top.cpu_s()? - before) / WATCH.as_secs_f64();
        println!("thiscpu-top --sort {sort}: {share:.1} % of a CPU");
    }
    let mut ratios = Vec::new();
    for _ in 0..ROUNDS {
        let alone = rate(adds, PHASE);
        let top = Top::start(path, "rate")?;
        thread::sleep(START);
        let watched = rate(adds, PHASE);
        drop(top);
        ratios.push(watched / alone);
    }
    ratios.sort_by(f64::total_cmp);
    let [median, least, most] = [ratios[ROUNDS / 2], ratios[0], ratios[ROUNDS - 1]];
    println!("adds while watched / alone: {median:.3} ({least:.3} to {most:.3})");
    Ok(())
}
