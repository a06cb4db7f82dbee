//! Programs that need the malloc of a sanitizer's runtime.

use std::fs;

use thiscpu_test_support::{is_quick, text};

use crate::fixture::{assert_refused, compile_by, directory, exclusive, run, write};

#[test]
fn run_refuses_programs_with_sanitizers() {
    if is_quick() {
        return;
    }
    let _exclusive = exclusive();
    let place = directory("sanitizers");
    let source = place.join("program.c");
    fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let program = place.join("program");
    let named = program.to_str().expect("a UTF-8 path");
    for (compiler, options, sanitizer) in [
        ("gcc", "-fsanitize=address", "AddressSanitizer"),
        ("gcc", "-fsanitize=address -static-libasan", "a sanitizer"),
        ("gcc", "-fsanitize=address -static-libasan -s", "a sanitizer"),
        ("gcc", "-fsanitize=thread", "ThreadSanitizer"),
        ("gcc", "-fsanitize=leak -s", "LeakSanitizer"),
        ("clang", "-fsanitize=address", "AddressSanitizer"),
        ("clang", "-fsanitize=address -shared-libasan", "AddressSanitizer"),
        ("clang", "-fsanitize=memory -s", "MemorySanitizer"),
        ("clang", "-fsanitize=thread", "ThreadSanitizer"),
        ("clang", "-fsanitize=leak", "LeakSanitizer"),
    ] {
        let options: Vec<_> = options.split(' ').collect();
        if !compile_by(compiler, &source, &program, &options, "gcc clang libclang-rt-14-dev") {
            return;
        }
        let reasons = ["cannot run", sanitizer, "-fsanitize", "run it without thiscpu"];
        assert_refused(run(&[named]), 125, &reasons);
    }
    let script = write(&place.join("script"), format!("#!{named}\n").as_bytes());
    assert_refused(run(&[&script]), 125, &["its interpreter is", "LeakSanitizer"]);
    for compiler in ["gcc", "clang"] {
        let options = ["-fsanitize=undefined"];
        if !compile_by(compiler, &source, &program, &options, "gcc clang libclang-rt-14-dev") {
            return;
        }
        let output = run(&[named]).output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
    }
}

#[test]
fn run_refuses_preloaded_sanitizer() {
    let _exclusive = exclusive();
    for runtime in ["/no/such/libasan.so.8", "/no/such/libclang_rt.asan-x86_64.so"] {
        let mut command = run(&["true"]);
        command.env("LD_PRELOAD", format!("libm.so.6 {runtime}"));
        // The loader warns of a library that it does not find, and goes on.
        assert_refused(command, 125, &["thiscpu: LD_PRELOAD names", runtime]);
    }
}
