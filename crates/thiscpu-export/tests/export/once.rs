//! One answer, printed: what it has, and how the program ends.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use thiscpu_test_support::text;

use crate::fixture::{PROGRAM, Place, Worker, once, printed, requests, run, value};

#[test]
fn answer_has_series_counters_budgets_and_health_without_workers() {
    let place = Place::new();
    let path = place.path("shop");
    let segment = place.create("shop");
    requests(&segment, "/").add(7);
    requests(&segment, "/cart").add(1 << 60);
    segment.counter("orders").unwrap().add(-3);
    segment.counters::<2>("pair").unwrap().add(1, 5);
    let budget = segment.budget("connections", 100).unwrap();
    budget.close();
    drop((budget, segment));
    let text = printed(&path, &[]);
    let label = place.label("shop");
    let family = format!(
        "# HELP requests_total Requests served.\n\
         # TYPE requests_total counter\n\
         requests_total{{segment=\"{label}\",path=\"/\"}} 7\n\
         requests_total{{segment=\"{label}\",path=\"/cart\"}} 1152921504606846976\n"
    );
    assert!(text.starts_with(&family), "{text}");
    let wanted = [
        ("thiscpu_segment_up{}", 1.0),
        ("thiscpu_segment_values{part=\"series\",kind=\"exact\"}", 2.0),
        ("thiscpu_segment_values{part=\"series\",kind=\"bounds\"}", 0.0),
        ("thiscpu_segment_values{part=\"counters\",kind=\"exact\"}", 3.0),
        ("thiscpu_segment_values{part=\"counters\",kind=\"missing\"}", 0.0),
        ("thiscpu_segment_values{part=\"budgets\",kind=\"exact\"}", 1.0),
        ("thiscpu_segment_replacements_total{}", 0.0),
        ("thiscpu_segment_series{}", 2.0),
        ("thiscpu_segment_series_limit{}", 100.0),
        ("thiscpu_segment_refused_series_total{}", 0.0),
        ("thiscpu_segment_damaged_records{}", 0.0),
        ("thiscpu_segment_unknown_objects{}", 0.0),
        ("thiscpu_value{name=\"orders\"}", -3.0),
        ("thiscpu_value{name=\"pair\",index=\"0\"}", 0.0),
        ("thiscpu_value{name=\"pair\",index=\"1\"}", 5.0),
        ("thiscpu_budget_limit{budget=\"connections\"}", 100.0),
        ("thiscpu_budget_held{budget=\"connections\"}", 0.0),
        ("thiscpu_budget_free{budget=\"connections\"}", 100.0),
        ("thiscpu_budget_waiting{budget=\"connections\"}", 0.0),
        ("thiscpu_budget_closed{budget=\"connections\"}", 1.0),
    ];
    for (series, number) in wanted {
        assert_eq!(value(&text, &of(&label, series)), Some(number), "{series}\n{text}");
    }
    assert!(text.contains(&format!("path=\"{}\",format=\"", path.display())), "{text}");
}

/// Returns a series with the label of a segment before its own.
fn of(label: &str, series: &str) -> String {
    let series = series.replacen('{', &format!("{{segment=\"{label}\","), 1);
    series.replace(",}", "}")
}

#[test]
fn full_registry_says_how_many_series_it_refused() {
    let place = Place::new();
    let segment = place.create("shop");
    let family = segment.registry().unwrap().counter_family("a", "", &["n"]).unwrap();
    let refused = (0..400).filter(|n: &u32| family.series(&[&n.to_string()]).is_err()).count();
    assert!(refused > 0);
    drop((family, segment));
    let text = printed(&place.path("shop"), &[]);
    let series = of(&place.label("shop"), "thiscpu_segment_refused_series_total{}");
    assert_eq!(value(&text, &series), Some(refused as f64), "{text}");
}

#[test]
fn ended_worker_and_its_units_are_shown() {
    let place = Place::new();
    let path = place.path("shop");
    drop(place.create("shop"));
    let label = place.label("shop");
    let (alive, ended) = (Worker::start("hold", &path), Worker::start("hold", &path));
    ended.kill();
    let text = printed(&path, &[]);
    let states = [("alive", 1.0), ("ended", 1.0)];
    for (state, number) in states {
        for series in [
            format!("thiscpu_segment_participants{{state=\"{state}\"}}"),
            format!("thiscpu_budget_participants{{budget=\"connections\",state=\"{state}\"}}"),
        ] {
            assert_eq!(value(&text, &of(&label, &series)), Some(number), "{series}\n{text}");
        }
    }
    let units = |text: &str| {
        ["limit", "held", "free"].map(|of_units| {
            let series = format!("thiscpu_budget_{of_units}{{budget=\"connections\"}}");
            value(text, &of(&label, &series)).unwrap()
        })
    };
    assert_eq!(units(&text), [100.0, 60.0, 40.0], "{text}");
    // Of the living one alone. The exporter takes no slot, and leaves the ended one's.
    assert_eq!(printed(&path, &["--exact"]).matches("state=\"ended\"} 1\n").count(), 2);
    drop(alive);
}

#[test]
fn segment_of_process_without_name_is_found_by_its_id() {
    let place = Place::new();
    let path = place.path("shop");
    let segment = place.create("shop");
    let worker = Worker::start("hold", &path);
    fs::remove_file(&path).unwrap();
    requests(&segment, "/").add(7);
    for options in [&[][..], &["--exact"]] {
        let text = printed(Path::new(&worker.id()), options);
        assert!(text.contains(",path=\"/\"} 7\n"), "{text}");
    }
}

#[test]
fn segments_share_families_and_have_a_label() {
    let place = Place::new();
    let [one, two] = ["one", "two"].map(|name| {
        let segment = place.create(name);
        requests(&segment, "/").add(name.len() as u64);
        let registry = segment.registry().unwrap();
        let labels = ["segment", "exported_segment"];
        let family = registry.counter_family("odd", "", &labels).unwrap();
        family.series(&["x", "y"]).unwrap().inc();
        drop(segment);
        (place.path(name), place.label(name))
    });
    let (status, text, stderr) = run(once(&one.0, &[]).arg(&two.0));
    assert_eq!((status, &*stderr), (Some(0), ""), "{text}");
    let (one, two) = (one.1, two.1);
    let odd = "exported_segment=\"x\",exported_exported_segment=\"y\"} 1";
    let family = format!(
        "# TYPE odd_total counter\n\
         odd_total{{segment=\"{one}\",{odd}\n\
         odd_total{{segment=\"{two}\",{odd}\n\
         # HELP requests_total Requests served.\n\
         # TYPE requests_total counter\n\
         requests_total{{segment=\"{one}\",path=\"/\"}} 3\n\
         requests_total{{segment=\"{two}\",path=\"/\"}} 3\n\
         # HELP thiscpu_segment_up "
    );
    assert!(text.starts_with(&family), "{text}");
    assert_eq!(text.matches("# TYPE thiscpu_segment_up gauge\n").count(), 1, "{text}");
}

#[test]
fn segment_that_cannot_be_read_is_down_and_ends_with_1() {
    let place = Place::new();
    let path = place.path("shop");
    let down = of(&place.label("shop"), "thiscpu_segment_up{}");
    let fails = |wanted: &str| {
        let (status, stdout, stderr) = run(&mut once(&path, &[]));
        assert_eq!((status, value(&stdout, &down)), (Some(1), Some(0.0)), "{stdout}");
        let begin = format!("thiscpu-export: segment {}: cannot open ", place.label("shop"));
        assert!(stderr.starts_with(&begin) && stderr.contains(wanted), "{stderr}");
        assert!(stderr.contains("; ") && !stdout.contains("thiscpu_value{"), "{stderr}");
    };
    fails("there is no such file");
    fs::write(&path, "no segment").unwrap();
    fails("it is not a segment");
    fs::remove_file(&path).unwrap();
    drop(place.create("shop"));
    let mut bytes = fs::read(&path).unwrap();
    // The number of the format comes after the magic number.
    assert_eq!(bytes[8..16].len(), 8);
    let format = u64::from_ne_bytes(bytes[8..16].try_into().unwrap());
    bytes[8..16].copy_from_slice(&(format + 1).to_ne_bytes());
    fs::write(&path, bytes).unwrap();
    fails("this version of thiscpu knows format");
    // A sign makes it a name, of which there is no file.
    let (status, _, stderr) = run(&mut once(Path::new("+1073741824"), &[]));
    assert!(status == Some(1) && stderr.contains("/dev/shm/+1073741824: "), "{stderr}");
    let (status, _, stderr) = run(&mut once(Path::new("1073741824"), &[]));
    assert_eq!(status, Some(1));
    assert!(stderr.contains("there is no process 1073741824; "), "{stderr}");
}

#[test]
fn damaged_records_are_left_out_and_counted() {
    let place = Place::new();
    let path = place.path("shop");
    let segment = place.create("shop");
    requests(&segment, "/").add(7);
    let registry = segment.registry().unwrap();
    registry.counter_family("sound", "", &[]).unwrap().series(&[]).unwrap().inc();
    drop((registry, segment));
    // A name that would be a line of its own.
    let mut bytes = fs::read(&path).unwrap();
    let name = b"requests_total";
    let at = bytes.windows(name.len()).position(|window| window == name).unwrap();
    bytes[at..at + name.len()].copy_from_slice(b"x 1\nsound_tota");
    fs::write(&path, bytes).unwrap();
    let text = printed(&path, &[]);
    let label = place.label("shop");
    assert_eq!(text.matches("\nsound_tot").count(), 1, "{text}");
    assert_eq!(value(&text, &of(&label, "sound_total{}")), Some(1.0), "{text}");
    let damaged = of(&label, "thiscpu_segment_damaged_records{}");
    // The family and its series.
    assert_eq!(value(&text, &damaged), Some(2.0), "{text}");
}

#[test]
fn second_family_and_second_series_of_a_name_are_damaged() {
    let place = Place::new();
    let path = place.path("shop");
    let segment = place.create("shop");
    let registry = segment.registry().unwrap();
    for (name, value) in [("requests", "/1"), ("requests", "/2"), ("sequence", "/3")] {
        let family = registry.counter_family(name, "", &["path"]).unwrap();
        family.series(&[value]).unwrap().inc();
    }
    drop((registry, segment));
    // The names of both families become equal, and the labels of two series.
    let mut bytes = fs::read(&path).unwrap();
    for (old, new) in [(&b"sequence_total"[..], &b"requests_total"[..]), (b"/2", b"/1")] {
        let at = bytes.windows(old.len()).position(|window| window == old).unwrap();
        bytes[at..at + new.len()].copy_from_slice(new);
    }
    fs::write(&path, bytes).unwrap();
    let text = printed(&path, &[]);
    let label = place.label("shop");
    assert_eq!(text.matches("\nrequests_total{").count(), 1, "{text}");
    assert_eq!(value(&text, &of(&label, "requests_total{path=\"/1\"}")), Some(1.0), "{text}");
    let damaged = of(&label, "thiscpu_segment_damaged_records{}");
    assert_eq!(value(&text, &damaged), Some(2.0), "{text}");
}

#[test]
fn wrong_requests_end_with_2() {
    let place = Place::new();
    drop(place.create("shop"));
    let path = place.path("shop");
    let refused = |options: &[&str]| {
        let (status, stdout, stderr) = run(Command::new(PROGRAM).args(options));
        assert_eq!((status, &*stdout), (Some(2), ""), "{options:?}: {stderr}");
        stderr
    };
    let path = path.to_str().unwrap();
    refused(&["--once", "--listen", "127.0.0.1:0", path]);
    refused(&["--format", "openmetrics", path]);
    refused(&["--once", "--format", "xml", path]);
    for empty in ["", "/dev/shm", "/dev/shm/"] {
        let stderr = refused(&["--once", empty]);
        assert!(stderr.contains("the name of a segment is empty; give a name"), "{stderr}");
    }
    let stderr = refused(&["--once", path, path]);
    assert!(stderr.contains(&format!("two segments have the name {}; ", place.label("shop"))));
}

#[test]
fn errors_of_output_are_noticed_and_closed_pipes_are_none() {
    let place = Place::new();
    drop(place.create("shop"));
    for options in [&[][..], &["--help"]] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = once(&place.path("shop"), options).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{options:?}");
        let stderr = text(&output.stderr);
        assert!(stderr.contains("thiscpu-export: cannot write to standard output: "), "{stderr}");
        let mut unread = once(&place.path("shop"), options);
        let mut unread = unread.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(unread.stdout.take());
        let output = unread.wait_with_output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
    }
}

#[test]
fn completions_and_manual_name_the_options() {
    let (status, stdout, _) = run(Command::new(PROGRAM).args(["--completions", "bash"]));
    assert!(status == Some(0) && stdout.contains("--listen") && !stdout.contains("--man"));
    let directory = tempfile::tempdir().unwrap();
    let status = run(Command::new(PROGRAM).arg("--man").arg(directory.path())).0;
    let page = fs::read_to_string(directory.path().join("thiscpu-export.1")).unwrap();
    assert!(status == Some(0) && page.contains(".SH NAME") && page.contains("Exit status"));
}
