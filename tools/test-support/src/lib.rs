//! Helpers for the tests and tools of this workspace.

pub mod bits;
pub mod cancellation;
pub mod child;
pub mod cpus;
pub mod errno;
mod level;
pub mod memory;
pub mod painted_stack;
pub mod program;
pub mod random;
pub mod rate_oracle;
pub mod seccomp;
#[cfg(feature = "sections")]
pub mod sections;
pub mod signals;
pub mod stats;
pub mod terminal;
#[cfg(feature = "tool")]
pub mod tool;

pub use level::{Level, is_full, is_quick, level};

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Builds a package as users build it, in the calling test's profile.
///
/// Returns the directory of the built files.
///
/// # Panics
///
/// If the build fails.
pub fn build(package: &str) -> PathBuf {
    // A test is in `deps`, in a directory that is named after the profile.
    let test = std::env::current_exe().expect("a test knows its path");
    let output = test.ancestors().nth(2).expect("target/profile/deps/test");
    let profile = match output.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--offline", "--package", package, "--profile", profile]);
    build.arg("--target-dir").arg(output.parent().expect("target"));
    build.current_dir(env!("CARGO_MANIFEST_DIR"));
    assert!(build.status().expect("cargo runs").success(), "cannot build {package}");
    output.into()
}

/// Builds the malloc that programs preload, once, and returns its path.
pub fn preloaded_malloc() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| build("thiscpu-malloc-preload").join("libthiscpu_malloc.so"))
}

/// Returns `THISCPU_TEST_SLOWDOWN`, or 1: how many times slower this machine is than usual.
///
/// Emulated machines and programs under valgrind set it. Deadlines are multiplied by it, and
/// numbers of rounds divided.
///
/// # Panics
///
/// If the variable is not a number from 1.
pub fn slowdown() -> u32 {
    static FACTOR: OnceLock<u32> = OnceLock::new();
    *FACTOR.get_or_init(|| match std::env::var("THISCPU_TEST_SLOWDOWN") {
        Err(_) => 1,
        Ok(text) => match text.parse() {
            Ok(factor @ 1..) => factor,
            _ => panic!("invalid THISCPU_TEST_SLOWDOWN={text:?}: set it to a number from 1"),
        },
    })
}

/// Returns whether a tool is installed. If not, prints the command that installs `package`.
///
/// A quick run takes compilers of C and C++ for missing, because they take most of its time.
///
/// # Panics
///
/// If the tool is missing in CI, where no test may be skipped unnoticed.
pub fn has(tool: &str, package: &str) -> bool {
    if is_quick() && ["cc", "gcc", "clang", "c++", "g++", "clang++"].contains(&tool) {
        eprintln!("skipped: a quick run compiles no C");
        return false;
    }
    let mut version = Command::new(tool);
    version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    is_in_place(version.status().is_ok_and(|status| status.success()), tool, package)
}

/// The interpreter for which the system's packages install modules.
pub const PYTHON: &str = "/usr/bin/python3";

/// Returns whether [`PYTHON`] has a module; if not, prints the package to install.
///
/// # Panics
///
/// If the module is missing in CI, where no test may be skipped unnoticed.
pub fn has_python_module(module: &str, package: &str) -> bool {
    let mut import = Command::new(PYTHON);
    import.args(["-c", &format!("import {module}")]).stdout(Stdio::null()).stderr(Stdio::null());
    is_in_place(import.status().is_ok_and(|status| status.success()), module, package)
}

fn is_in_place(is_here: bool, tool: &str, package: &str) -> bool {
    if !is_here {
        assert!(!in_ci(), "{tool} is missing; run `apt-get install {package}`");
        eprintln!("skipped: {tool} is missing; run `apt-get install {package}`");
    }
    is_here
}

/// Returns whether this is a run of CI, as the variable `CI` says.
pub fn in_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false")
}

/// Returns the output of a program as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Sets a flag when dropped, after a panic too.
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}
