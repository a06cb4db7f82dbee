//! Statistics that programs read: mallinfo2, malloc_info, `thiscpu_malloc.h` and JSON at exit.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use thiscpu_test_support::{has, is_quick};

use crate::fixture::{compile, passes, run, text};

#[test]
fn c_statistics_count_blocks_in_use() {
    if let Some(program) = compile("stats.c", &[]) {
        passes(&program, &[], "done\n");
    }
}

#[test]
fn c_json_is_that_of_the_process() {
    let Some(program) = compile("stats.c", &[]) else { return };
    let output = run(&program, &["json"], &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["program"], &json["version"]), (&"stats-c".into(), &1.into()));
    assert!(json["mapped_bytes"].as_u64() > Some(4_000_000), "{json}");
}

/// Prints the sum of free bytes, its total, and the current bytes of the system.
const READ_XML: &str = "
import sys, xml.etree.ElementTree as tree
root = tree.fromstring(sys.stdin.read())
assert root.tag == 'malloc' and root.get('version') == '1'
heap = root.find('heap')
sizes = [(int(size.get('from')), int(size.get('count')), int(size.get('total')))
         for size in heap.find('sizes')]
assert sizes and all(size * count == total for size, count, total in sizes)
rest = int(root.find(\"total[@type='rest']\").get('size'))
system = int(root.find(\"system[@type='current']\").get('size'))
assert int(root.find(\"aspace[@type='total']\").get('size')) >= system
print(sum(total for _, _, total in sizes) == rest, system > 4000000)
";

#[test]
fn malloc_info_writes_valid_xml() {
    if is_quick() {
        return;
    }
    let Some(program) = compile("stats.c", &[]) else { return };
    if !has("python3", "python3") {
        return;
    }
    let output = run(&program, &["xml"], &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    // glibc's own has no heap of this allocator.
    assert!(text(&output.stdout).contains("<size from=\"208\" to=\"208\""));
    let mut python = Command::new("python3")
        .args(["-c", READ_XML])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    python.stdin.take().unwrap().write_all(&output.stdout).unwrap();
    let read = python.wait_with_output().unwrap();
    // The program has allocated nothing but the stream's buffer.
    assert!(text(&read.stdout).starts_with("True"), "{}", text(&output.stdout));
}

#[test]
fn json_at_exit_goes_to_standard_error_or_a_file() {
    let Some(program) = compile("exits.c", &[]) else { return };
    let output = run(&program, &["exit"], &[("THISCPU_MALLOC", "stats=json")]);
    let json: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(json["is_counting"], true);
    assert_eq!(
        (&json["settings"]["stats"], &json["settings"]["harden"]),
        (&"json".into(), &"off".into())
    );
    let counted = json["classes"].as_array().unwrap().iter();
    assert!(counted.map(|class| class["allocations"].as_u64().unwrap()).sum::<u64>() > 0);
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stats.json");
    let _ = fs::remove_file(&file);
    let word = format!("stats=json:{}", file.display());
    let output = run(&program, &["children"], &[("THISCPU_MALLOC", &word)]);
    assert_eq!(text(&output.stderr), "");
    let lines = fs::read_to_string(&file).unwrap();
    // The process, and the child that exits.
    let processes = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let processes = processes.inspect(|json| {
        assert_eq!(json["settings"]["stats"], word["stats=".len()..]);
    });
    let processes: Vec<_> = processes.map(|json| json["pid"].as_u64().unwrap()).collect();
    assert!(processes.len() == 2 && processes[0] != processes[1], "{processes:?}");
}
