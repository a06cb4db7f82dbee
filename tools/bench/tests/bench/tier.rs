//! A tier that does not exist is refused before anything runs.

use std::process::Command;

#[test]
fn an_unknown_tier_is_refused_with_the_known_ones() {
    let output = Command::new(env!("CARGO_BIN_EXE_thiscpu-bench"))
        .args(["bench", "add", "--seconds", "0.01", "--rounds", "1"])
        .env("THISCPU_TIER", "percpu")
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(output.stdout.is_empty());
    for tier in ["rseq-cid", "rseq-cpu", "atomic"] {
        assert!(message.contains(tier), "{message}");
    }
}
