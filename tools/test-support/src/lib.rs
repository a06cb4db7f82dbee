//! What tests of several packages need: libraries built as users build them, and tools that may be missing.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Has a package built by the command that users are told, in the profile of the test that asks. The directory that it is in then.
///
/// # Panics
///
/// If it cannot be built.
pub fn build(package: &str) -> PathBuf {
    // A test is in `deps`, in a directory that is named after the profile.
    let test = std::env::current_exe().expect("a test knows where it is");
    let output = test.ancestors().nth(2).expect("target/profile/deps/test");
    let profile = match output.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--offline", "--package", package, "--profile", profile]);
    build.arg("--target-dir").arg(output.parent().expect("target"));
    build.current_dir(env!("CARGO_MANIFEST_DIR"));
    assert!(build.status().expect("cargo runs").success());
    output.into()
}

/// Whether a tool is here, which Debian's `package` has.
///
/// # Panics
///
/// If it is not, in CI, where a test must not be left out unseen.
pub fn has(tool: &str, package: &str) -> bool {
    let mut version = Command::new(tool);
    version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    let is_here = version.status().is_ok_and(|status| status.success());
    if !is_here {
        let is_ci =
            std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false");
        assert!(!is_ci, "{tool} is missing: apt-get install {package}");
        eprintln!("skipped: {tool} is missing: apt-get install {package}");
    }
    is_here
}
