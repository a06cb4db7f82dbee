//! Both formats, as the parsers of Prometheus read them, and which one a client gets.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
};

use flate2::read::GzDecoder;
use thiscpu_metrics::{Error, Format, Registry};
use thiscpu_test_support::prometheus::{check_text, parse_openmetrics};

/// Returns a registry with series of all kinds, and with all that OpenMetrics adds.
fn full_registry() -> Registry {
    let registry = Registry::builder()
        .buckets_for("time_seconds", &[1e-5, 0.5, 1.0, 1e7])
        .buckets_for("delta", &[-1.0, 1.0])
        .build()
        .unwrap();
    let hits = registry.counter("hits", "Hits\n\"all\" \\ of them.", &[("path", "C:\\\n\"x\"")]);
    let hits = hits.unwrap();
    hits.increment((1 << 53) - 1);
    hits.increment_with_exemplar(1, &[("trace_id", "a\"b")]).unwrap();
    registry.counter("read_bytes_total", "", &[]).unwrap().increment(7);
    registry.gauge("temperature_celsius", "", &[]).unwrap().set(-2.75);
    registry.gauge("odd", "", &[]).unwrap().set(f64::NAN);
    registry.gauge("large", "", &[]).unwrap().set(9_007_199_254_740_992.0);
    let time = registry.histogram("time_seconds", "Time.", &[("of", "all")]).unwrap();
    [0.25, 0.75, 3.0].iter().for_each(|&value| time.record(value));
    time.record_with_exemplar(0.5, &[("trace_id", "c"), ("span_id", "d")]).unwrap();
    time.record_with_exemplar(f64::INFINITY, &[]).unwrap();
    registry.histogram("delta", "", &[]).unwrap().record(-3.0);
    let negative = registry.histogram("negative", "", &[]).unwrap();
    negative.record(-3.0);
    registry
}

#[test]
fn openmetrics_is_read_by_the_python_parser() {
    let text = full_registry().render_as(Format::OpenMetrics);
    assert!(text.ends_with("\n# EOF\n"), "{text}");
    let Some(read) = parse_openmetrics(&text) else { return };
    let wanted = r#"family hits counter  Hits
"all" \ of them.
hits_total {'path': 'C:\\\n"x"'} 9007199254740992.0 ({'trace_id': 'a"b'}, 1.0, True)
family read_bytes counter bytes 
read_bytes_total {} 7.0 
family temperature_celsius gauge celsius 
temperature_celsius {} -2.75 
family odd gauge  
odd {} nan 
family large gauge  
large {} 9007199254740992.0 
family time_seconds histogram seconds Time.
time_seconds_bucket {'of': 'all', 'le': '1e-05'} 0.0 
time_seconds_bucket {'of': 'all', 'le': '0.5'} 2.0 ({'trace_id': 'c', 'span_id': 'd'}, 0.5, True)
time_seconds_bucket {'of': 'all', 'le': '1.0'} 3.0 
time_seconds_bucket {'of': 'all', 'le': '1e+07'} 4.0 
time_seconds_bucket {'of': 'all', 'le': '+Inf'} 5.0 ({}, inf, True)
time_seconds_sum {'of': 'all'} 4.5 
time_seconds_count {'of': 'all'} 5.0 
family delta histogram  
delta_bucket {'le': '-1.0'} 1.0 
delta_bucket {'le': '1.0'} 1.0 
delta_bucket {'le': '+Inf'} 1.0 
family negative histogram  
"#;
    assert!(read.starts_with(wanted), "{read}\n{text}");
    assert!(!read.contains("negative_sum") && !text.contains("_created"), "{text}");
}

#[test]
fn created_lines_are_written_if_they_are_wanted() {
    let registry = Registry::builder().created_lines(true).build().unwrap();
    registry.counter("hits", "", &[("a", "b")]).unwrap();
    registry.histogram("time", "", &[]).unwrap();
    registry.gauge("level", "", &[]).unwrap();
    let text = registry.render_as(Format::OpenMetrics);
    let created = |line: &&str| line.contains("_created");
    let names = text.lines().filter(created).map(|line| line.split(' ').next().unwrap());
    assert!(names.eq(["hits_created{a=\"b\"}", "time_created"]), "{text}");
    assert!(!registry.render().contains("_created"));
    parse_openmetrics(&text);
}

#[test]
fn text_is_accepted_by_promtool() {
    let registry = Registry::builder().buckets_for("delta_meters", &[-1.0]).build().unwrap();
    registry.counter("hits", "Hits\n\"all\".", &[("path", "C:\\\n\"x\"")]).unwrap();
    registry.gauge("temperature_celsius", "Now.", &[]).unwrap().set(f64::NAN);
    registry.histogram("delta_meters", "Difference.", &[]).unwrap().record(-3.0);
    if let Some(notes) = check_text(&registry.render()) {
        assert_eq!(notes, "");
    }
}

/// Compares the lines of samples, which both formats have.
#[test]
fn series_have_equal_names_and_values_in_both_formats() {
    let registry = full_registry();
    let samples = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| line.split(" # ").next().unwrap().to_owned()).collect()
    };
    let text = samples(&registry.render());
    let openmetrics = samples(&registry.render_as(Format::OpenMetrics));
    // OpenMetrics allows no sum that may decrease, and no count without a sum.
    let sums = ["delta_sum", "delta_count", "negative_sum", "negative_count"];
    let is_common = |line: &&String| !sums.iter().any(|sum| line.starts_with(sum));
    assert!(text.iter().filter(is_common).eq(&openmetrics), "{text:?} {openmetrics:?}");
    assert_eq!(text.len(), openmetrics.len() + sums.len());
}

#[test]
fn names_of_openmetrics_lines_are_reserved() {
    let registry = Registry::new();
    registry.counter("hits", "", &[]).unwrap();
    let error = registry.gauge("hits_created", "", &[]).unwrap_err();
    let (name, metric) = ("hits_created".to_owned(), "hits_total".to_owned());
    assert_eq!(error, Error::NameConflict { name, metric });
    assert!(matches!(registry.gauge("hits", "", &[]), Err(Error::KindMismatch { .. })));
    assert!(matches!(registry.gauge("hits_total", "", &[]), Err(Error::KindMismatch { .. })));
    let again = registry.counter("hits_total", "", &[]).unwrap_err();
    assert!(matches!(again, Error::NameCollision { .. }), "{again}");
    registry.gauge("load", "", &[]).unwrap();
    let error = registry.counter("load_total", "", &[]).unwrap_err();
    assert!(matches!(error, Error::NameConflict { .. }), "{error}");
}

#[test]
fn invalid_exemplars_count_nothing() {
    let registry = Registry::new();
    let hits = registry.counter("hits", "", &[]).unwrap();
    let time = registry.histogram("time", "", &[]).unwrap();
    let before = registry.render();
    let long = "x".repeat(129);
    let message = hits.increment_with_exemplar(1, &[("", &long)]).unwrap_err().to_string();
    assert!(message.contains("129 characters") && message.contains("128"), "{message}");
    time.record_with_exemplar(1.0, &[("a.b", "")]).unwrap_err();
    assert_eq!(registry.render(), before);
}

/// Sends a request with these headers, and returns the head and the body of the answer.
fn ask(address: SocketAddr, headers: &str) -> (String, Vec<u8>) {
    let mut client = TcpStream::connect(address).unwrap();
    write!(client, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n").unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    let at = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    (String::from_utf8(answer[..at].to_ascii_lowercase()).unwrap(), answer[at + 4..].to_vec())
}

#[test]
fn endpoint_answers_in_the_format_that_is_asked_for() {
    let registry = full_registry();
    let endpoint = registry.serve("127.0.0.1:0").unwrap();
    const OPENMETRICS: &str = "application/openmetrics-text;version=1.0.0";
    for (headers, format, is_gzip) in [
        ("".to_owned(), Format::Text, false),
        (format!("Accept: {OPENMETRICS};q=0.5,*/*;q=0.1\r\n"), Format::OpenMetrics, false),
        (format!("Accept: text/plain\r\nAccept: {OPENMETRICS};q=0.5\r\n"), Format::Text, false),
        ("Accept-Encoding: deflate, gzip\r\n".to_owned(), Format::Text, true),
        (format!("accept: {OPENMETRICS}\r\nACCEPT-ENCODING: gzip\r\n"), Format::OpenMetrics, true),
    ] {
        let (head, body) = ask(endpoint.address(), &headers);
        assert!(head.contains(&format!("content-type: {}", format.content_type())), "{head}");
        assert!(head.contains(&format!("content-length: {}", body.len())), "{head}");
        assert!(head.contains("vary: accept, accept-encoding"), "{head}");
        assert_eq!(head.contains("content-encoding: gzip"), is_gzip, "{head}");
        let mut text = String::new();
        match is_gzip {
            true => GzDecoder::new(&body[..]).read_to_string(&mut text).unwrap(),
            false => (&body[..]).read_to_string(&mut text).unwrap(),
        };
        assert_eq!(text, registry.render_as(format));
    }
}
