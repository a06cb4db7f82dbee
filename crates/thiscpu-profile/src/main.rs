//! `thiscpu-profile`: makes pprof profiles and flame graphs of heap profiles.
//!
//! A process writes its profile as text with addresses only, because it must not allocate
//! meanwhile. `raw` reads that text, `symbols` finds the names, and `stacks` has both. The
//! others write it: `pprof`, `folded` and `top`.

// `println!` panics when it cannot write.
#![warn(clippy::print_stderr, clippy::print_stdout)]

mod folded;
mod pprof;
mod raw;
mod stacks;
mod symbols;
mod top;

use std::fs;
use std::io::{self, Read as _, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use clap::Parser;

use raw::{Moment, Space};
use stacks::Stacks;

/// Make a pprof profile or a flame graph of a heap profile of `thiscpu run --heap-profile`
///
/// Without an option, it writes a profile for pprof, gzipped, to FILE.pb.gz. Symbols come from the
/// programs and libraries where they were loaded from, and from /usr/lib/debug.
#[derive(Debug, Parser)]
#[command(name = "thiscpu-profile", version)]
struct Arguments {
    /// The heap profile
    file: PathBuf,

    /// Write to OUT, or to standard output for `-`
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,

    #[command(flatten)]
    format: Format,

    /// Count live blocks, or all that were allocated (a profile for pprof has both)
    #[arg(long, value_enum, default_value_t = Space::Live)]
    space: Space,

    /// Count blocks that were live at the end, or at the peak (a profile for pprof has both)
    #[arg(long, value_enum, default_value_t = Moment::Exit)]
    at: Moment,
}

#[derive(Debug, clap::Args)]
#[group(multiple = false)]
struct Format {
    /// Write a line for each stack: its functions, separated by semicolons, and its bytes
    #[arg(long)]
    folded: bool,

    /// Draw a flame graph
    #[cfg(feature = "svg")]
    #[arg(long)]
    svg: bool,

    /// List the COUNT functions that allocate most
    #[arg(long, value_name = "COUNT")]
    top: Option<usize>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let is_closed = error
                .downcast_ref::<io::Error>()
                .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe);
            if !is_closed {
                let _ = writeln!(io::stderr(), "thiscpu-profile: {error:#}");
            }
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let file = &arguments.file;
    let text = read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let profile = raw::parse(&text).with_context(|| format!("cannot use {}", file.display()))?;
    let stacks = Stacks::of(&profile);
    for path in stacks.symbols.replaced() {
        let _ = writeln!(
            io::stderr(),
            "thiscpu-profile: warning: {} has changed since the profile was written, so its \
             functions have no names",
            path.display()
        );
    }
    let select = |sample: &raw::Sample| sample.bytes(arguments.space, arguments.at);
    let stdout = Some(Path::new("-"));
    let output = arguments.output.as_deref();
    if let Some(count) = arguments.format.top {
        return write(output.or(stdout), &top::list(&stacks, select, count).into_bytes());
    }
    if arguments.format.folded {
        return write(output.or(stdout), folded::lines(&stacks, select).as_bytes());
    }
    #[cfg(feature = "svg")]
    if arguments.format.svg {
        let default = with_ending(file, ".svg");
        return write(output.or(Some(&default)), &folded::svg(&stacks, select)?);
    }
    let default = with_ending(file, ".pb.gz");
    write(output.or(Some(&default)), &pprof::encode(&profile, &stacks)?)
}

/// The largest heap profile: 65,536 stacks of 64 frames take less than half of it.
const PROFILE_BYTES_MAX: u64 = 256 << 20;

fn read(file: &Path) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    let read = fs::File::open(file)?.take(PROFILE_BYTES_MAX + 1).read_to_end(&mut text)?;
    ensure!(read as u64 <= PROFILE_BYTES_MAX, "it is too long for a heap profile");
    Ok(text)
}

/// Returns the path with an ending added to the file's name.
fn with_ending(file: &Path, ending: &str) -> PathBuf {
    let mut path = file.as_os_str().to_owned();
    path.push(ending);
    path.into()
}

fn write(to: Option<&Path>, bytes: &[u8]) -> Result<()> {
    match to {
        Some(path) if path != Path::new("-") => {
            fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
        }
        _ => {
            let mut stdout = io::stdout().lock();
            stdout.write_all(bytes)?;
            Ok(stdout.flush()?)
        }
    }
}
