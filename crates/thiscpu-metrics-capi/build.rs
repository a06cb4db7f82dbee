//! Sets how the shared library is linked.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libthiscpu_metrics.so.{}", abi_version());
    // `dlclose` must not unmap the library: the kernel may still read a section's descriptor.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}

/// Returns the part of the version that changes with the ABI, by semantic versioning.
fn abi_version() -> String {
    let part = |name| env::var(name).expect("cargo sets the version");
    match part("CARGO_PKG_VERSION_MAJOR").as_str() {
        "0" => format!("0.{}", part("CARGO_PKG_VERSION_MINOR")),
        major => major.into(),
    }
}
