//! `thiscpu segment` as users see it: text, JSON, and exit status.

use std::fs::{self, File, Permissions};
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use thiscpu::Segment;
use thiscpu_test_support::text;

fn directory() -> TempDir {
    let shared = Path::new("/dev/shm");
    if shared.is_dir() { TempDir::new_in(shared) } else { TempDir::new() }.unwrap()
}

fn command(arguments: &[&str], path: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thiscpu"));
    command.arg("segment").args(arguments).arg(path);
    command
}

/// Returns the exit status, standard output and standard error.
fn run(arguments: &[&str], path: &Path) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command(arguments, path).output().unwrap();
    (status.code(), text(&stdout), text(&stderr))
}

/// Creates a segment with a counter, whose value is 7, and a group.
fn create(path: &Path) -> Segment {
    let segment = Segment::options().max_bytes(1 << 20).lanes(2).create(path).unwrap();
    segment.counter("requests").unwrap().add(10);
    segment.counter("requests").unwrap().add(-3);
    segment.counters::<3>("a \"group\"").unwrap().add(2, 1 << 40);
    segment
}

/// Writes a word of a file.
fn set_word(path: &Path, number: u64, value: u64) {
    let file = File::options().write(true).open(path).unwrap();
    file.write_all_at(&value.to_le_bytes(), 8 * number).unwrap();
}

/// Takes bytes away from the end of a file.
fn shorten(path: &Path, bytes: u64) {
    let file = File::options().write(true).open(path).unwrap();
    file.set_len(file.metadata().unwrap().len() - bytes).unwrap();
}

/// Words of the header.
const MAGIC: u64 = 0;
const FORMAT: u64 = 1;
const FEATURES: u64 = 2;
const LANES: u64 = 4;
const RECORDS_USED: u64 = 16;

#[test]
fn ls_lists_segments_and_skips_other_files() {
    let directory = directory();
    let path = |name: &str| directory.path().join(name);
    for name in ["sound", "foreign", "newer", "featured", "damaged", "cut"] {
        drop(create(&path(name)));
    }
    set_word(&path("foreign"), MAGIC, u64::from_be_bytes(*b"thiscpu\x1a"));
    set_word(&path("newer"), FORMAT, 77);
    set_word(&path("featured"), FEATURES, 4);
    set_word(&path("damaged"), LANES, 0);
    shorten(&path("cut"), 4096);
    fs::set_permissions(path("newer"), Permissions::from_mode(0o640)).unwrap();
    fs::write(path("text"), "no segment").unwrap();
    fs::write(path("zeros"), vec![0; 1 << 20]).unwrap();
    symlink(path("sound"), path("link")).unwrap();
    fs::create_dir(path("directory")).unwrap();
    let (status, stdout, stderr) = run(&["ls"], directory.path());
    assert_eq!((status, &*stderr), (Some(0), ""), "{stdout}");
    let lines: Vec<_> = stdout.lines().collect();
    assert_eq!(lines.len(), 7, "{stdout}");
    assert!(lines[0].starts_with("segment ") && lines[0].ends_with("owner  mode  format"));
    for (line, name, end) in [
        (lines[1], "cut", "   600  wrong length"),
        (lines[2], "damaged", "   600  its number of lanes is damaged"),
        (lines[3], "featured", "   600  unknown features 0x4"),
        (lines[4], "foreign", "   600  other byte order"),
        (lines[5], "newer", "   640  77, unknown"),
        (lines[6], "sound", "   600  1"),
    ] {
        assert!(line.contains(&format!("/{name} ")) && line.ends_with(end), "{stdout}");
    }
    let words: Vec<_> = lines[6].split_whitespace().collect();
    let size = fs::metadata(path("sound")).unwrap().len().to_string();
    assert_eq!((words[1], words[3], words[4]), (&*size, "2", "2"), "{stdout}");
    assert!(words[2].parse::<u64>().unwrap() > 0);

    let (status, stdout, stderr) = run(&["ls"], &path("missing"));
    assert_eq!((status, &*stdout), (Some(2), ""));
    assert!(
        stderr.contains("cannot list ")
            && stderr.ends_with("; give the directory of the segments\n")
    );
    let (status, _, stderr) = run(&["ls"], &path("text"));
    assert_eq!(status, Some(2));
    assert!(stderr.ends_with("; give a directory, or use `thiscpu segment show`\n"), "{stderr}");
}

#[test]
fn show_prints_values_as_text_and_json() {
    let directory = directory();
    let path = directory.path().join("segment");
    let segment = create(&path);
    let budget = segment.budget("connections", 100).unwrap();
    budget.try_acquire(30).unwrap();
    assert_eq!(budget.available(), 70);
    let (status, stdout, stderr) = run(&["show"], &path);
    assert_eq!((status, &*stderr), (Some(0), ""), "{stdout}");
    let own = std::process::id();
    for line in [
        "format     1".to_owned(),
        format!("processes  1 ({own})"),
        "  \"requests\" (counter)  7".to_owned(),
        "  \"connections\" (budget)  30 of 100 held".to_owned(),
        "  \"a \\\"group\\\"\" (3 counters)  0, 0, 1099511627776".to_owned(),
    ] {
        let is_there = |shown: &str| shown.split("; ").next() == Some(&line);
        assert!(stdout.lines().any(is_there), "{line}: {stdout}");
    }
    budget.close();
    drop((budget, segment));
    let (status, stdout, _) = run(&["show", "--json"], &path);
    assert_eq!(status, Some(0));
    let shown: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((&shown["format"], &shown["lanes"]), (&1.into(), &2.into()), "{stdout}");
    assert_eq!((&shown["mode"], &shown["processes"]), (&"600".into(), &Value::Array(vec![])));
    let objects = shown["objects"].as_array().unwrap();
    let named = |name: &str| objects.iter().find(|object| object["name"] == name).unwrap();
    let value = |value: i64| serde_json::json!({ "low": value, "high": value, "exact": true });
    assert_eq!(named("requests")["values"], serde_json::json!([value(7)]));
    let state = serde_json::json!({
        "limit": 100, "free": 100, "exact": true, "queued": false, "closed": true,
        "held_by_ended": 0, "participants": [],
    });
    assert_eq!(named("connections")["values"], serde_json::json!([state]));
    let group = named("a \"group\"");
    assert_eq!((&group["kind"], &group["count"]), (&"counters".into(), &3.into()));
    assert_eq!(group["values"], serde_json::json!([value(0), value(0), value(1 << 40)]));
}

#[test]
fn show_has_a_line_for_each_family_of_a_registry() {
    let directory = directory();
    let path = directory.path().join("segment");
    let segment = Segment::options().max_bytes(1 << 20).lanes(2).series(10).create(&path).unwrap();
    let registry = segment.registry().unwrap();
    let requests = registry.counter_family("requests", "Requests.", &["method"]).unwrap();
    requests.series(&["GET"]).unwrap().add(10);
    requests.series(&["PUT"]).unwrap().add(3);
    registry.counter_family("errors", "", &[]).unwrap().series(&[]).unwrap().add(u64::MAX);
    let (status, stdout, stderr) = run(&["show"], &path);
    assert_eq!((status, &*stderr), (Some(0), ""), "{stdout}");
    let end = "registry   3 series used of 10, 0 refused\n  \"requests_total\" (2 series)  13\n  \
               \"errors_total\" (1 series)  9223372036854775807\n";
    assert!(stdout.ends_with(end), "{stdout}");
    let (status, stdout, _) = run(&["show", "--json"], &path);
    let shown: Value = serde_json::from_str(&stdout).unwrap();
    let most = i64::MAX as u64;
    let families = serde_json::json!([
        { "name": "requests_total", "series": 2, "low": 13, "high": 13 },
        { "name": "errors_total", "series": 1, "low": most, "high": most },
    ]);
    let registry = &shown["registry"];
    assert_eq!(
        (status, &registry["families"], &registry["series"]),
        (Some(0), &families, &3.into())
    );
    // A record of a family that is damaged ends the command with another status.
    let bytes = fs::read(&path).unwrap();
    let at = bytes.chunks(8).position(|word| word == b"errors_t").unwrap();
    set_word(&path, at as u64, u64::from_le_bytes(*b"erro\0s_t"));
    let (status, stdout, _) = run(&["show"], &path);
    assert_eq!(status, Some(1));
    assert!(stdout.contains(": its name of a family is damaged; "), "{stdout}");
    let (status, _, stderr) = run(&["check"], &path);
    assert!(status == Some(1) && stderr.contains("its name of a family is damaged"), "{stderr}");
}

#[test]
fn check_ends_with_status_of_segment() {
    let directory = directory();
    let path = directory.path().join("segment");
    let damaged = |number: u64, value: u64| {
        let _ = fs::remove_file(&path);
        drop(create(&path));
        set_word(&path, number, value);
        run(&["check"], &path)
    };
    let (status, stdout, stderr) = damaged(FEATURES, 0);
    assert_eq!((status, &*stderr), (Some(0), ""));
    assert!(stdout.contains("/segment: no damage found\n"), "{stdout}");
    for line in [
        "  header   its sizes fit together, ",
        "  index    each entry in use leads to a record, ",
        "  records  2 objects: valid names and kinds, ",
        "  values   not checked: ",
        "  unused   no bytes",
    ] {
        assert!(stdout.lines().any(|shown| shown.starts_with(line)), "{line}: {stdout}");
    }
    let records_used = {
        let mut word = [0; 8];
        File::open(&path).unwrap().read_exact_at(&mut word, 8 * RECORDS_USED).unwrap();
        u64::from_le_bytes(word)
    };
    let (status, stdout, _) = damaged(RECORDS_USED, records_used + 64);
    assert_eq!(status, Some(0));
    assert!(
        stdout.contains("  unused   64 bytes of records and 0 of each lane; harmless: skipped ")
    );
    for (number, value, wanted_status, wanted) in [
        (RECORDS_USED, 1 << 40, 1, "area of records: 1099511627776 bytes are in use of "),
        (LANES, 0, 1, "its number of lanes is damaged; "),
        (FORMAT, 77, 2, "it has format 77, and this version of thiscpu knows format 1; "),
        (MAGIC, 1, 2, "it is not a segment; "),
        (MAGIC, u64::from_be_bytes(*b"thiscpu\x1a"), 2, "a machine of the other byte order made"),
    ] {
        let (status, stdout, stderr) = damaged(number, value);
        assert_eq!((status, &*stdout), (Some(wanted_status), ""), "{stderr}");
        let is_clear = stderr.starts_with("thiscpu: ") && stderr.contains("; ");
        assert!(is_clear && stderr.contains(wanted), "{stderr}");
    }
    let (_, _, stderr) = damaged(RECORDS_USED, 1 << 40);
    assert!(stderr.ends_with(": 1 fault found; remove it after all its processes have ended\n"));
    assert_eq!(run(&[], &path).0, Some(2));
}

#[test]
fn messages_fit_bad_input() {
    let directory = directory();
    let path = |name: &str| directory.path().join(name);
    for name in ["cut", "part", "longer", "newer", "sound"] {
        drop(create(&path(name)));
    }
    let len = fs::metadata(path("sound")).unwrap().len();
    shorten(&path("cut"), 4096);
    shorten(&path("part"), len - 1000);
    File::options().write(true).open(path("longer")).unwrap().set_len(len + 1).unwrap();
    set_word(&path("newer"), FORMAT, 77);
    symlink(path("sound"), path("link")).unwrap();
    fs::create_dir(path("directory")).unwrap();
    fs::write(path("empty"), "").unwrap();
    fs::write(path("text"), "no segment").unwrap();
    let length = |found: u64| {
        format!("its header says {len} bytes, but the file has {found}; copy it again if ")
    };
    let inputs = [
        ("missing", 2, "there is no such file; check the path, or list segments".to_owned()),
        ("directory", 2, "it is a directory; give the path of a file, or list ".to_owned()),
        (
            "link",
            2,
            "it is a symbolic link, or its path has a loop of them; give the path ".to_owned(),
        ),
        ("empty", 2, "it is not a segment; check the path\n".to_owned()),
        ("text", 2, "it is not a segment; check the path\n".to_owned()),
        ("text/file", 2, "Not a directory (os error 20); check the path".to_owned()),
        ("newer", 2, "it has format 77, and this version of thiscpu knows ".to_owned()),
        ("cut", 1, length(len - 4096)),
        ("part", 1, length(1000)),
        ("longer", 1, length(len + 1)),
    ];
    for (name, wanted_status, reason) in inputs {
        for (command, action) in [("show", "show"), ("check", "check"), ("rm", "remove")] {
            let is_segment = wanted_status == 1 || name == "newer";
            if command == "rm" && is_segment {
                continue;
            }
            let (status, stdout, stderr) = run(&[command], &path(name));
            assert_eq!((status, &*stdout), (Some(wanted_status), ""), "{name}: {stderr}");
            let wanted = format!("thiscpu: cannot {action} {}: {reason}", path(name).display());
            assert!(stderr.starts_with(&wanted), "{stderr}");
            assert_eq!(stderr.lines().count(), 1, "{stderr}");
        }
    }
    for name in ["cut", "part", "longer", "newer"] {
        assert_eq!(run(&["rm"], &path(name)).0, Some(0));
    }
}

/// Where [`holds_units_until_it_is_killed`] finds its segment.
const HELD: &str = "THISCPU_TEST_HELD_SEGMENT";

// A process of the next test. By itself it tests nothing.
#[test]
fn holds_units_until_it_is_killed() {
    let Some(path) = std::env::var_os(HELD) else { return };
    let budget = Segment::open(path).unwrap().budget("connections", 100).unwrap();
    budget.try_acquire(30).unwrap();
    println!("holding");
    // Until the other process kills this one, or has ended itself.
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

fn user(slot: u32, pid: u32, held: u64, alive: bool) -> Value {
    serde_json::json!({ "slot": slot, "pid": pid, "held": held, "alive": alive })
}

#[test]
fn show_tells_what_ended_processes_hold() {
    let directory = directory();
    let path = directory.path().join("segment");
    let segment = create(&path);
    let budget = segment.budget("connections", 100).unwrap();
    budget.try_acquire(20).unwrap();
    let mut other = Command::new(std::env::current_exe().unwrap());
    other.args(["--exact", "holds_units_until_it_is_killed", "--nocapture"]).env(HELD, &path);
    let mut other = other.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(other.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().ends_with("holding")));
    let shown = || {
        let (status, stdout, stderr) = run(&["show"], &path);
        assert_eq!((status, &*stderr), (Some(0), ""), "{stdout}");
        let (_, json, _) = run(&["show", "--json"], &path);
        let json: Value = serde_json::from_str(&json).unwrap();
        let objects = json["objects"].as_array().unwrap();
        let object = objects.iter().find(|object| object["name"] == "connections").unwrap();
        (stdout, object["values"][0].clone())
    };
    let own = user(0, std::process::id(), 20, true);
    let (text, json) = shown();
    assert!(text.contains(" of 100 held\n"), "{text}");
    assert_eq!(json["held_by_ended"], 0);
    assert_eq!(json["participants"], serde_json::json!([own, user(1, other.id(), 30, true)]));
    other.kill().unwrap();
    other.wait().unwrap();
    let (text, json) = shown();
    assert!(text.contains(" of 100 held, 30 of them by ended processes\n"), "{text}");
    assert_eq!(json["held_by_ended"], 30);
    assert_eq!(json["participants"], serde_json::json!([own, user(1, other.id(), 30, false)]));
    // A call that reads the available units takes them back.
    assert_eq!(budget.available(), 80);
    let (text, json) = shown();
    assert!(text.contains("20 of 100 held\n"), "{text}");
    assert_eq!(json["participants"], serde_json::json!([own]));
}

#[test]
fn rm_removes_segments_only() {
    let directory = directory();
    let path = |name: &str| directory.path().join(name);
    let segment = create(&path("segment"));
    let (status, stdout, stderr) = run(&["rm"], &path("segment"));
    assert_eq!((status, &*stderr), (Some(0), ""));
    let users = format!("processes that keep it until they end: 1 ({})", std::process::id());
    assert!(stdout.starts_with("removed /") && stdout.contains(&users), "{stdout}");
    assert!(!path("segment").exists());
    assert_eq!(segment.counter("requests").unwrap().sum(), 7);
    // Damaged ones, and those of other versions, are segments.
    for (number, value) in [(FORMAT, 77), (LANES, 0)] {
        drop(create(&path("segment")));
        set_word(&path("segment"), number, value);
        assert_eq!(run(&["rm"], &path("segment")).0, Some(0));
        assert!(!path("segment").exists());
    }
    drop(create(&path("segment")));
    symlink(path("segment"), path("link")).unwrap();
    fs::write(path("text"), "no segment").unwrap();
    fs::create_dir(path("directory")).unwrap();
    for name in ["link", "text", "directory", "missing"] {
        let (status, stdout, stderr) = run(&["rm"], &path(name));
        assert_eq!((status, &*stdout), (Some(2), ""), "{name}: {stderr}");
        assert!(stderr.starts_with("thiscpu: cannot ") && stderr.contains("; "), "{stderr}");
        assert_eq!(path(name).symlink_metadata().is_ok(), name != "missing");
    }
}

#[test]
fn errors_of_output_are_noticed() {
    let directory = directory();
    let path = directory.path().join("segment");
    drop(create(&path));
    for arguments in [&["ls"][..], &["show"], &["show", "--json"], &["check"]] {
        let place = if arguments == ["ls"] { directory.path() } else { &path };
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = command(arguments, place).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(text(&output.stderr).contains("cannot write to standard output"));
        let mut unread = command(arguments, place);
        let mut unread = unread.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(unread.stdout.take());
        let output = unread.wait_with_output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
    }
}
