//! Heap profiles of programs: at exit, on a signal, at a peak, and of other processes.

use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use thiscpu_test_support::is_quick;

use crate::fixture::{compile, run, text};

/// Returns an empty directory of a test.
fn directory(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("profile").join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

/// Returns the live objects and bytes, and those that were allocated, of a whole profile.
fn totals(path: &Path) -> [u64; 4] {
    let text = fs::read_to_string(path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    assert!(text.contains("\nMAPPED_LIBRARIES:\n") && text.contains("r-xp"), "{text}");
    let words = text.lines().next().unwrap().split(|letter: char| !letter.is_ascii_digit());
    let numbers: Vec<u64> =
        words.filter(|word| !word.is_empty()).map(|word| word.parse().unwrap()).collect();
    numbers.try_into().unwrap()
}

/// Returns the names of all files in a directory.
fn files(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn profile_is_written_at_exit() {
    let Some(program) = compile("profile.c", &[]) else { return };
    let directory = directory("exit");
    let file = directory.join("heap");
    let words = format!("profile={},profile_interval=1", file.display());
    let output = run(&program, &["exit"], &[("THISCPU_MALLOC", &words)]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
    let [live, live_bytes, all, all_bytes] = totals(&file);
    // 1,000 blocks of 1,000 bytes, of which half are freed, and what the C library needs.
    assert!((500..600).contains(&live) && (1_000..1_100).contains(&all), "{live}, {all}");
    assert!((500_000..600_000).contains(&live_bytes), "{live_bytes}");
    assert!((1_000_000..1_100_000).contains(&all_bytes), "{all_bytes}");
    assert_eq!(files(&directory), ["heap"]);
}

/// Checks that a size of 0 does not pass the limit by which `malloc` leaves its fast path.
#[test]
fn blocks_of_no_bytes_are_sampled() {
    let Some(program) = compile("profile.c", &[]) else { return };
    let file = directory("zero").join("heap");
    let words = format!("profile={},profile_interval=1", file.display());
    let output = run(&program, &["zero"], &[("THISCPU_MALLOC", &words)]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let [live, ..] = totals(&file);
    // Such a block is sampled with a probability of 0.63. A standard deviation is 0.8 %.
    assert!((9_500..10_500).contains(&live), "{live}");
}

#[test]
fn profile_is_written_on_signals() {
    let Some(program) = compile("profile.c", &[]) else { return };
    let directory = directory("signal");
    let file = directory.join("heap");
    // Sampling is interrupted all the time: the program signals itself while it allocates.
    let words = format!("profile={},profile_interval=1024,profile_signal=USR2", file.display());
    let output = run(&program, &["signal"], &[("THISCPU_MALLOC", &words)]);
    assert!(output.status.success(), "{}: {}", output.status, text(&output.stderr));
    // It ends by `_exit`, so the file is that of a signal.
    assert!(totals(&file)[2] > 10_000);
    assert_eq!(files(&directory), ["heap"]);
}

#[test]
fn profile_is_written_at_peaks() {
    if is_quick() {
        return;
    }
    let Some(program) = compile("profile.c", &[]) else { return };
    let directory = directory("peak");
    let file = directory.join("heap");
    let words = format!("profile={},profile_interval=512,profile_at_peak", file.display());
    // The program is killed after its peak.
    let output = run(&program, &["killed"], &[("THISCPU_MALLOC", &words)]);
    assert!(!output.status.success());
    let [_, live_bytes, ..] = totals(&file);
    assert!(live_bytes > 900_000, "{live_bytes}");
    let whole = fs::read_to_string(&file).unwrap();
    let peaks = whole.lines().filter_map(|line| line.strip_prefix("# peak "));
    let bytes = peaks.map(|peak| peak.split(' ').nth(1).unwrap().parse::<u64>().unwrap());
    assert!(bytes.sum::<u64>() >= live_bytes, "{whole}");
}

#[test]
fn other_processes_write_files_of_their_own() {
    let Some(program) = compile("profile.c", &[]) else { return };
    let directory = directory("processes");
    let file = directory.join("heap");
    let words = format!("profile={},profile_interval=1", file.display());
    let output = run(&program, &["fork"], &[("THISCPU_MALLOC", &words)]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let names = files(&directory);
    assert!(names.len() == 3 && names[0] == "heap", "{names:?}");
    // Each child has its parent's blocks, and 100 of its own.
    let parent = totals(&file)[2];
    for name in &names[1..] {
        let child = totals(&directory.join(name))[2];
        assert!(child >= parent + 100, "{child}, {parent}");
    }
}

#[test]
fn unwritable_profile_warns_once() {
    let Some(program) = compile("profile.c", &[]) else { return };
    let words = "profile=/nonexistent/heap,profile_interval=1,profile_signal=USR2";
    let output = run(&program, &["exit"], &[("THISCPU_MALLOC", words)]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("warning: cannot write the heap profile to /nonexistent/heap"), "{said}");
    // Devices are written to, and not replaced.
    for (device, warnings) in [("/dev/full", 1), ("/dev/null", 0)] {
        let words = format!("profile={device},profile_interval=1");
        let output = run(&program, &["exit"], &[("THISCPU_MALLOC", &words)]);
        assert!(output.status.success());
        assert_eq!(text(&output.stderr).lines().count(), warnings, "{}", text(&output.stderr));
        assert!(fs::metadata(device).unwrap().file_type().is_char_device());
    }
}

#[test]
fn wrong_profile_words_warn() {
    let Some(program) = compile("profile.c", &[]) else { return };
    for word in
        ["profile=", "profile", "profile_interval=0", "profile_interval=x", "profile_signal=KILL"]
    {
        let output = run(&program, &["exit"], &[("THISCPU_MALLOC", word)]);
        assert!(output.status.success());
        let said = text(&output.stderr);
        assert!(said.lines().count() == 1 && said.contains(word), "{word}: {said}");
    }
}

/// Returns the addresses of executable mappings whose file has this name.
fn code_of(whole: &str, file: &str) -> Vec<std::ops::Range<usize>> {
    let hex = |digits: &str| usize::from_str_radix(digits, 16).unwrap();
    let lines = whole.lines().filter(|line| line.contains(" r-xp ") && line.ends_with(file));
    let ranges = lines.map(|line| line.split(' ').next().unwrap().split_once('-').unwrap());
    ranges.map(|(start, end)| hex(start)..hex(end)).collect()
}

/// Checks plugins that are unloaded before the profile is written.
///
/// They have the same address, one after the other, and frames of different sizes.
#[test]
fn unloaded_plugins_do_not_spoil_stacks() {
    if is_quick() {
        return;
    }
    let Some(program) = compile("profile.c", &[]) else { return };
    let shared = ["-shared", "-fPIC", "-fno-stack-protector"];
    let plugins = ["profile_plugin.c", "profile_plugin_again.c"].map(|it| compile(it, &shared));
    let [first, second] = plugins.each_ref().map(|it| it.as_ref().unwrap().to_str().unwrap());
    let file = directory("plugins").join("heap");
    let words = format!("profile={},profile_interval=1", file.display());
    let output = run(&program, &["plugins", first, second], &[("THISCPU_MALLOC", &words)]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    if text(&output.stdout) != "same address\n" {
        return eprintln!("skipped: the second plugin has another address than the first");
    }
    let whole = fs::read_to_string(&file).unwrap();
    let code = code_of(&whole, "/profile-c");
    assert!(code.len() == 1 && code_of(&whole, "_plugin-c").is_empty(), "{whole}");
    for sums in ["10: 30000 [10: 30000] @", "10: 50000 [10: 50000] @"] {
        let stack = whole.lines().find_map(|line| line.strip_prefix(sums));
        let stack = stack.unwrap_or_else(|| panic!("{whole}")).split_whitespace();
        let frames = stack.map(|frame| usize::from_str_radix(&frame[2..], 16).unwrap());
        // The plugin's caller, main, and the code that calls main.
        assert_eq!(frames.filter(|frame| code[0].contains(frame)).count(), 3, "{sums}: {whole}");
    }
}
