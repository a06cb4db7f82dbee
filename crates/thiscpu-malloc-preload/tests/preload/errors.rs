//! Errors of C programs, and how they are reported.

use std::os::unix::process::ExitStatusExt as _;

use crate::fixture::{ENVIRONMENTS, compile, run, text};

/// The error, `THISCPU_MALLOC`, the final signal, and parts of the message in order.
const ERRORS: [(&str, &str, i32, &[&str]); 12] = [
    ("small twice", "", libc::SIGABRT, &["thiscpu: 0x", "(112 bytes)", "double free"]),
    ("small twice after trim", "", libc::SIGABRT, &["thiscpu: 0x", "(112 bytes)", "double free"]),
    ("large twice", "", libc::SIGABRT, &["thiscpu: 0x", "(311296 bytes)", "double free"]),
    ("huge twice", "", libc::SIGABRT, &["thiscpu: 0x", "(4294967296 bytes)", "double free"]),
    ("small written to", "", libc::SIGABRT, &["thiscpu: 0x", "(112 bytes)", "write after free"]),
    ("stack", "", libc::SIGABRT, &["thiscpu: 0x", "invalid free", "was ever allocated there"]),
    ("inside small", "", libc::SIGABRT, &["thiscpu: 0x", "(112 bytes)", "middle of an object"]),
    ("inside large", "", libc::SIGABRT, &["thiscpu: 0x", "(311296 bytes)", "middle of an object"]),
    // Errors with unguarded blocks are detected as without hardening.
    ("small twice", "harden", libc::SIGABRT, &["double free"]),
    (
        "guarded twice",
        "harden",
        libc::SIGABRT,
        &["double free of byte 0", "freed block of 50 bytes"],
    ),
    (
        "guarded use after free",
        "harden",
        libc::SIGSEGV,
        &["use after free", "byte 3 of the freed block of 50 bytes", "freed by thread"],
    ),
    (
        "guarded overflow",
        "harden",
        libc::SIGABRT,
        &["overflow", "1 byte after the end of the block of 50 bytes", "allocated by thread"],
    ),
];

/// Uses of addresses that are not aligned like blocks, and the size in the message.
const MISALIGNED: [(&str, &str); 9] = [
    ("misaligned free", "(112 bytes)"),
    ("misaligned free by 8", "(112 bytes)"),
    ("misaligned free of last byte", "(112 bytes)"),
    ("misaligned free of tiny", "(8 bytes)"),
    ("misaligned free of large", "(311296 bytes)"),
    ("misaligned free of aligned", "(128 bytes)"),
    ("misaligned realloc", "(112 bytes)"),
    ("misaligned realloc to 0", "(112 bytes)"),
    ("misaligned usable size", "(112 bytes)"),
];

/// Checks every way to free: in assembly, while calls are counted, and without sections.
#[test]
fn misaligned_address_aborts_at_once() {
    let Some(program) = compile("errors.c", &[]) else { return };
    for (error, size) in MISALIGNED {
        for environment in ENVIRONMENTS {
            for words in ["", "stats", "harden"] {
                let environment = [environment, &[("THISCPU_MALLOC", words)]].concat();
                let output = run(&program, &[error], &environment);
                let said = text(&output.stderr);
                let signal = output.status.signal();
                assert_eq!(signal, Some(libc::SIGABRT), "{error}, {environment:?}: {said}");
                for part in ["thiscpu: 0x", size, "pointer into the middle of an object"] {
                    assert!(said.contains(part), "{error}, {environment:?}: {said}");
                }
            }
        }
    }
}

#[test]
fn invalid_free_reports_and_aborts() {
    let Some(program) = compile("errors.c", &[]) else { return };
    for (error, words, signal, says) in ERRORS {
        for environment in ENVIRONMENTS {
            let environment = [environment, &[("THISCPU_MALLOC", words)]].concat();
            let output = run(&program, &[error], &environment);
            let said = text(&output.stderr);
            assert_eq!(output.status.signal(), Some(signal), "{error}, {environment:?}: {said}");
            let mut rest = said.as_str();
            for part in says {
                let found = rest.find(part).unwrap_or_else(|| {
                    panic!(
                        "{error}, {environment:?}: {part:?} is missing, or out of order, in {said}"
                    )
                });
                rest = &rest[found + part.len()..];
            }
        }
    }
}
