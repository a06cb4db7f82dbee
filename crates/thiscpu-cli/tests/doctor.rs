//! `thiscpu doctor` as users see it: text, JSON, and exit status.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;
use thiscpu_test_support::seccomp;

fn doctor(args: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thiscpu"));
    command.arg("doctor").args(args).envs(environment.iter().copied());
    command.output().unwrap()
}

/// Returns the JSON of a run that ends as its tier says.
fn json(environment: &[(&str, &str)]) -> Value {
    let output = doctor(&["--json"], environment);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let value: Value = serde_json::from_str(&text).unwrap();
    let status = if value["tier"] == "atomic" { 3 } else { 0 };
    assert_eq!(output.status.code(), Some(status), "{text}{output:?}");
    value
}

#[test]
fn doctor_reports_tier_and_reason() {
    let best = json(&[]);
    for key in ["cpus_possible", "cpus_allowed", "numa_nodes"] {
        assert!(best[key]["count"].as_u64().unwrap() >= 1, "{key}: {best}");
    }
    assert_eq!(best["forced"], false);
    assert!(best["tiers"].as_array().unwrap().contains(&best["tier"]));
    let forced = json(&[("THISCPU_TIER", "atomic")]);
    assert_eq!(forced["tier"], "atomic");
    assert_eq!(forced["forced"], true);
    assert!(!forced["hints"].as_array().unwrap().is_empty());
    let text = doctor(&[], &[("THISCPU_TIER", "atomic")]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.starts_with("tier           atomic (requested by THISCPU_TIER)"), "{text}");
}

#[test]
fn doctor_lists_degradations() {
    let seconds = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    let (before, report) = (seconds(), json(&[("THISCPU_TIER", "atomic")]));
    let [degradation] = &report["degradations"].as_array().unwrap()[..] else { panic!("{report}") };
    assert_eq!(degradation["kind"], "atomic-tier");
    assert_eq!((&degradation["errno"], &degradation["occurrences"]), (&Value::Null, &1.into()));
    let since = degradation["since_unix_seconds"].as_f64().unwrap();
    assert!(before <= since && since <= seconds(), "{report}");
    assert_eq!(report["shared_lane_calls"], 0);
    let text = String::from_utf8(doctor(&[], &[("THISCPU_TIER", "atomic")]).stdout).unwrap();
    let line = text.lines().find(|line| line.starts_with("degraded")).unwrap();
    for part in ["atomic-tier: calls use atomics", "; since ", " GMT, 1 times"] {
        assert!(line.contains(part), "{line}");
    }
    let best = json(&[]);
    let is_healthy = best["degradations"].as_array().unwrap().is_empty();
    assert_eq!(is_healthy, best["tier"] != "atomic", "{best}");
}

// The status is that of the atomic tier, although this tier may have sections.
#[test]
fn doctor_ends_with_3_when_something_is_degraded() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thiscpu"));
    command.args(["doctor", "--json"]);
    let deny = || {
        let refusal = libc::SECCOMP_RET_ERRNO | libc::EINVAL as u32;
        seccomp::install([(libc::SYS_madvise, refusal)], libc::SECCOMP_RET_ALLOW)
    };
    // SAFETY: the child has one thread, and the C library lets it allocate.
    unsafe { command.pre_exec(deny) };
    let Ok(output) = command.output() else { return eprintln!("skipped: no seccomp filters") };
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let listed = report["degradations"].as_array().unwrap().iter();
    let fork_detection = listed.filter(|degradation| degradation["kind"] == "fork-detection");
    let errors =
        fork_detection.map(|degradation| degradation["errno"].as_i64()).collect::<Vec<_>>();
    assert_eq!(errors, [Some(libc::EINVAL.into())], "{report}");
    assert_eq!(output.status.code(), Some(3), "{report}");
}

#[test]
fn doctor_self_test_passes_when_tier_has_sections() {
    for environment in [&[][..], &[("GLIBC_TUNABLES", "glibc.pthread.rseq=0")]] {
        let report = json(environment);
        let has_sections = report["tier"] != "atomic";
        let has_two_cpus = report["cpus_allowed"]["count"].as_u64().unwrap() >= 2;
        for test in report["self_tests"].as_array().unwrap() {
            let testable = has_sections && (has_two_cpus || test["aborted_by"] != "a fence");
            assert_eq!(test["result"], if testable { "passed" } else { "skipped" }, "{report}");
        }
    }
}

#[test]
fn doctor_shows_malloc_settings() {
    let environment = [("THISCPU_MALLOC", "harden=off,bogus,harden,stats=xml")];
    let malloc = json(&environment)["malloc"].clone();
    let harden = malloc["settings"].as_array().unwrap().iter();
    let harden = harden.filter(|setting| setting["name"] == "harden").collect::<Vec<_>>();
    assert_eq!(harden.len(), 1, "{malloc}");
    assert_eq!((&harden[0]["value"], &harden[0]["is_set"]), (&"on".into(), &true.into()));
    let ignored = malloc["ignored"].as_array().unwrap().iter();
    let ignored = ignored.map(|word| word["word"].as_str().unwrap()).collect::<Vec<_>>();
    assert_eq!(ignored, ["bogus", "stats=xml"]);
    let text = String::from_utf8(doctor(&[], &environment).stdout).unwrap();
    for line in [
        "malloc         stats=off (default)",
        "malloc         harden=on (from THISCPU_MALLOC)",
        "malloc         THISCPU_MALLOC: stats=xml is ignored: its values are: table, json",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
}

#[test]
fn doctor_refuses_unknown_tier() {
    let output = doctor(&["--json"], &[("THISCPU_TIER", "fast")]);
    assert_eq!(output.status.code(), Some(2));
    let object: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    for part in ["THISCPU_TIER=fast", "rseq-cid", "rseq-cpu", "atomic"] {
        assert!(text.contains(part), "{text}");
        assert!(object["error"].as_str().unwrap().contains(part), "{object}");
    }
    assert!(doctor(&[], &[("THISCPU_TIER", "fast")]).stdout.is_empty());
}
