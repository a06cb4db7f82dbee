//! Links the library so that it is never unmapped. After a `dlclose`, the kernel may still read a
//! section's descriptor, and the program may still hold blocks.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
