//! The endpoint: formats, clients that stay, segments that come and go, and its end.

use std::fs;
use std::io::{Read as _, Seek as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use thiscpu_metrics::Format;
use thiscpu_test_support::is_quick;

use crate::fixture::{Exporter, PROGRAM, Place, Worker, requests, run, value};

fn series(name: &str, place: &Place) -> String {
    format!("{name}{{segment=\"{}\"}}", place.label("shop"))
}

/// Returns whether the segment is up, and how often another one has replaced it.
fn health(text: &str, place: &Place) -> [f64; 2] {
    ["thiscpu_segment_up", "thiscpu_segment_replacements_total"]
        .map(|name| value(text, &series(name, place)).unwrap_or_else(|| panic!("{text}")))
}

#[test]
fn endpoint_answers_in_the_format_that_is_asked_for() {
    let place = Place::new();
    requests(&place.create("shop"), "/").add(7);
    let exporter = Exporter::start(&[&place.path("shop")], &[]);
    let (head, text) = exporter.ask("");
    assert!(head.contains(Format::Text.content_type()), "{head}");
    assert!(text.contains("\n# TYPE requests_total counter\n"), "{text}");
    let (head, text) = exporter.ask("Accept: application/openmetrics-text;version=1.0.0\r\n");
    assert!(head.contains(Format::OpenMetrics.content_type()), "{head}");
    assert!(text.starts_with("# TYPE requests counter\n") && text.ends_with("\n# EOF\n"), "{text}");
}

#[test]
fn segments_that_come_go_and_are_replaced_are_followed() {
    let place = Place::new();
    let path = place.path("shop");
    let exporter = Exporter::start(&[&path], &[]);
    assert_eq!(health(&exporter.scrape(), &place), [0.0, 0.0]);
    let first = place.create("shop");
    requests(&first, "/").add(7);
    let text = exporter.scrape();
    assert_eq!(health(&text, &place), [1.0, 0.0]);
    assert!(text.contains(",path=\"/\"} 7\n"), "{text}");
    // A restarted service replaces the file before anybody looks.
    fs::remove_file(&path).unwrap();
    requests(&place.create("shop"), "/").add(2);
    requests(&first, "/").add(1);
    let text = exporter.scrape();
    assert_eq!(health(&text, &place), [1.0, 1.0]);
    assert!(text.contains(",path=\"/\"} 2\n"), "{text}");
    fs::remove_file(&path).unwrap();
    let text = exporter.scrape();
    assert_eq!(health(&text, &place), [0.0, 1.0]);
    assert!(!text.contains("requests_total"), "{text}");
    // A file that is copied there, and was not complete at first.
    let copied = place.path("copied");
    requests(&place.create("copied"), "/").add(3);
    let bytes = fs::read(&copied).unwrap();
    fs::write(&path, &bytes[..1000]).unwrap();
    assert_eq!(health(&exporter.scrape(), &place), [0.0, 1.0]);
    fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(&bytes[1000..]).unwrap();
    let text = exporter.scrape();
    assert_eq!(health(&text, &place), [1.0, 2.0]);
    assert!(text.contains(",path=\"/\"} 3\n"), "{text}");
    fs::File::options().write(true).open(&path).unwrap().set_len(4096).unwrap();
    assert_eq!(health(&exporter.scrape(), &place), [0.0, 2.0]);
    // The file itself is complete again.
    fs::write(&path, &bytes).unwrap();
    assert_eq!(health(&exporter.scrape(), &place), [1.0, 2.0]);
    let (status, stderr) = exporter.end(libc::SIGTERM);
    assert!(status.success(), "{status}");
    // Each change is told once.
    let lines: Vec<_> = stderr.lines().collect();
    let begin = format!("thiscpu-export: segment {}: ", place.label("shop"));
    let said: Vec<_> = lines.iter().map(|line| line.strip_prefix(&*begin).unwrap()).collect();
    assert_eq!(said.len(), 6, "{stderr}");
    assert!(said[0] == "it is read now" && said[3] == "it is read again", "{stderr}");
    assert!(said[1].starts_with("the segment was removed; "), "{stderr}");
    assert!(said[2].starts_with("cannot open "), "{stderr}");
    assert!(said[4].starts_with("the segment's file was shortened; "), "{stderr}");
}

#[test]
fn segment_of_a_process_is_read_again_after_an_error() {
    let place = Place::new();
    let path = place.path("shop");
    let segment = place.create("shop");
    let worker = Worker::start("hold", &path);
    let mut file = fs::File::options().read(true).write(true).open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let exporter = Exporter::start(&[Path::new(&worker.id())], &[]);
    let is_up = |up: u8| {
        let (text, end) = (exporter.scrape(), format!("}} {up}"));
        let is_it = |line: &str| line.starts_with("thiscpu_segment_up{") && line.ends_with(&end);
        assert!(text.lines().any(is_it), "{text}");
    };
    is_up(1);
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    file.set_len(4096).unwrap();
    is_up(0);
    is_up(0);
    file.rewind().unwrap();
    file.write_all(&bytes).unwrap();
    is_up(1);
    drop((segment, file, worker));
    is_up(0);
    let (_, stderr) = exporter.end(libc::SIGTERM);
    assert!(stderr.contains(": it is read again\n") && stderr.contains("has ended; "), "{stderr}");
}

#[test]
fn segment_is_mapped_for_writing_only_if_values_are_to_be_exact() {
    let place = Place::new();
    let path = place.path("shop");
    drop(place.create("shop"));
    for (options, modes) in [(&[][..], &["r--s"][..]), (&["--exact"], &["r--s", "rw-s"])] {
        let exporter = Exporter::start(&[&path], options);
        exporter.scrape();
        let maps = fs::read_to_string(format!("/proc/{}/maps", exporter.id())).unwrap();
        let of_segment = maps.lines().filter(|line| line.ends_with(path.to_str().unwrap()));
        let mut found: Vec<_> = of_segment.map(|line| line.split(' ').nth(1).unwrap()).collect();
        found.sort_unstable();
        found.dedup();
        assert_eq!(found, modes, "{maps}");
    }
}

#[test]
fn one_segment_that_is_down_leaves_others_up() {
    let place = Place::new();
    requests(&place.create("shop"), "/").add(7);
    let exporter = Exporter::start(&[&place.path("none"), &place.path("shop")], &[]);
    let text = exporter.scrape();
    assert_eq!(health(&text, &place), [1.0, 0.0]);
    let none = format!("thiscpu_segment_up{{segment=\"{}\"}}", place.label("none"));
    assert_eq!(value(&text, &none), Some(0.0), "{text}");
    assert!(text.contains(",path=\"/\"} 7\n"), "{text}");
}

#[test]
fn silent_clients_delay_no_scrape_and_no_end() {
    let place = Place::new();
    requests(&place.create("shop"), "/").add(7);
    let exporter = Exporter::start(&[&place.path("shop")], &[]);
    // The program keeps 256 connections at most, and this process must have their descriptors.
    let clients = if is_quick() { 300 } else { 700 };
    let connect = |sent: &str| {
        let mut client = TcpStream::connect(exporter.address).unwrap();
        // The program may have closed the connection already.
        let _ = client.write_all(sent.as_bytes());
        client
    };
    let silent: Vec<_> =
        (0..clients).map(|n| connect(if n % 2 == 0 { "" } else { "GET /metrics HT" })).collect();
    for _ in 0..3 {
        assert!(exporter.scrape().contains(",path=\"/\"} 7\n"));
    }
    let (status, stderr) = exporter.end(libc::SIGTERM);
    assert!(status.success() && stderr.is_empty(), "{status} {stderr}");
    drop(silent);
}

#[test]
fn signals_end_the_program_cleanly_and_free_its_port() {
    let place = Place::new();
    drop(place.create("shop"));
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let exporter = Exporter::start(&[&place.path("shop")], &[]);
        exporter.scrape();
        let address = exporter.address;
        let (status, stderr) = exporter.end(signal);
        assert_eq!((status.code(), &*stderr), (Some(0), ""));
        TcpStream::connect(address).unwrap_err();
    }
}

#[test]
fn address_that_cannot_be_used_ends_with_1() {
    let place = Place::new();
    drop(place.create("shop"));
    let exporter = Exporter::start(&[&place.path("shop")], &[]);
    for (address, wanted) in [
        (exporter.address.to_string(), exporter.address.to_string()),
        ("localhost".to_owned(), "such as 127.0.0.1:9090".to_owned()),
    ] {
        let mut second = Command::new(PROGRAM);
        let (status, stdout, stderr) =
            run(second.args(["--listen", &address]).arg(place.path("shop")));
        assert_eq!((status, &*stdout), (Some(1), ""), "{stderr}");
        assert!(stderr.starts_with("thiscpu-export: ") && stderr.contains(&wanted), "{stderr}");
    }
}
