//! How the library is linked: never unmapped, because the kernel may look at a section's descriptor, and
//! anybody may hold a block, long after a `dlclose`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
