//! Compiles the operations of C as its compiler inlines them, with the feature `c`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "c")]
    compile();
}

#[cfg(feature = "c")]
fn compile() {
    let headers = "../../crates/thiscpu-capi/include";
    println!("cargo::rerun-if-changed=src/inlined.c");
    println!("cargo::rerun-if-changed={headers}");
    cc::Build::new()
        .file("src/inlined.c")
        .include(headers)
        .opt_level(2)
        .std("c11")
        .compile("inlined");
}
