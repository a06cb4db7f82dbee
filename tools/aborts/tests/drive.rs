//! The program itself: it drives what it says, and fails if it cannot.

use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thiscpu-aborts"));
    command.args(arguments).env_remove("THISCPU_TIER").output().expect("it is built with this test")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// Without the release profile there are copies of a counter's and a budget's sections that nobody calls, so
/// `cargo xtask aborts` drives those.
#[test]
fn sections_are_aborted_everywhere_and_happen_once() {
    for sections in ["::", "pop", "push", "cmpxchg_double"] {
        let output = run(&[sections]);
        match output.status.code() {
            Some(0) => assert!(text(&output).contains("boundaries"), "{}", text(&output)),
            // There are no sections on this machine, or only one CPU.
            Some(2) => eprintln!("nothing was driven: {}", text(&output)),
            _ => panic!("{}", text(&output)),
        }
    }
}

#[test]
fn a_name_that_no_section_has_is_a_failure() {
    assert_ne!(run(&["u128::add"]).status.code(), Some(0));
}

#[test]
fn the_list_has_the_sections_of_the_specification() {
    let list = text(&run(&["--list"]));
    let names: Vec<_> = list.lines().collect();
    for name in ["add_windowed", "add_windowed_at", "cmpxchg_double", "spin", "pop", "push"] {
        assert!(names.contains(&name), "{list}");
    }
    for word in ["u8", "u16", "u32", "u64"] {
        for op in ["add", "add_return", "xchg", "cmpxchg"] {
            assert!(names.contains(&&*format!("{word}::{op}")), "{list}");
        }
    }
}
