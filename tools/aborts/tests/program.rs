//! The program itself: it drives sections, and fails if it cannot.

use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thiscpu-aborts"));
    command
        .args(arguments)
        .env_remove("THISCPU_TIER")
        .output()
        .expect("it was built with this test")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

// Builds without the release profile contain copies of the sections of counters and budgets that
// are never called. `cargo xtask aborts` drives those sections in a release build.
#[test]
fn aborted_sections_happen_exactly_once() {
    for sections in ["::", "pop", "push", "cmpxchg_double"] {
        let output = run(&[sections]);
        match output.status.code() {
            Some(0) => assert!(text(&output).contains("boundaries"), "{}", text(&output)),
            // This machine has no sections, or only one CPU.
            Some(2) => eprintln!("nothing was driven: {}", text(&output)),
            _ => panic!("{}", text(&output)),
        }
    }
}

#[test]
fn unknown_section_is_a_failure() {
    assert_ne!(run(&["u128::add"]).status.code(), Some(0));
}

#[test]
fn list_has_all_specified_sections() {
    let list = text(&run(&["--list"]));
    let names: Vec<_> = list.lines().collect();
    for name in
        ["add_windowed", "add_windowed_at", "add_up", "cmpxchg_double", "spin", "pop", "push"]
    {
        assert!(names.contains(&name), "{list}");
    }
    for word in ["u8", "u16", "u32", "u64"] {
        for op in ["add", "add_return", "xchg", "cmpxchg"] {
            assert!(names.contains(&&*format!("{word}::{op}")), "{list}");
        }
    }
}
