//! How the shared library is linked.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libthiscpu.so.{}", interface());
    // Never unmapped: the kernel may look at a section's descriptor long after a `dlclose`.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}

/// A program that was linked with one of these runs with any other of the same: what semantic versioning says.
fn interface() -> String {
    let part = |name| env::var(name).expect("cargo says which version it is");
    match part("CARGO_PKG_VERSION_MAJOR").as_str() {
        "0" => format!("0.{}", part("CARGO_PKG_VERSION_MINOR")),
        major => major.into(),
    }
}
