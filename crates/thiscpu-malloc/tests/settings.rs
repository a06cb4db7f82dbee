//! Settings: what `set` changes and refuses, and the document's table.

use thiscpu_malloc::__test_support::sample_every;
use thiscpu_malloc::export::Assignment;
use thiscpu_malloc::{SettingError, is_counting, set, settings, stats};

#[test]
fn document_lists_all_settings() {
    let document = include_str!("../docs/malloc.md");
    let begin = "| setting | values, the first for a bare name | default | cost |";
    let table = document.split(begin).nth(1).expect("the document has the table");
    let rows = table.trim_start().lines().skip(1).take_while(|line| line.starts_with('|'));
    let expected: Vec<String> = settings()
        .map(|setting| {
            let values = setting.values().join("`, `");
            let (name, default) = (setting.name(), setting.default_value());
            format!("| `{name}` | `{values}` | `{default}` | {} |", setting.cost())
        })
        .collect();
    assert_eq!(rows.collect::<Vec<_>>(), expected);
}

#[test]
fn defaults_are_values() {
    for setting in settings() {
        let (name, value) = (setting.name(), setting.default_value());
        Assignment::new(name.as_bytes(), Some(value.as_bytes())).unwrap();
    }
}

#[test]
fn set_takes_effect_or_is_refused() {
    for (name, value, why) in [
        ("no such setting", "on", "there are: stats, harden, thp, profile"),
        ("", "", "there are: stats, harden, thp, profile"),
        ("stats", "", "its values are: table, json, json:FILE, off (default: off)"),
        ("stats", "Table", "its values are: table, json, json:FILE, off (default: off)"),
        ("harden", "table", "its values are: on, off (default: off)"),
        ("thp", "off", "its values are: always, dense, never (default: dense)"),
    ] {
        let refused = set(name, value).expect_err(value);
        assert!(refused.to_string().contains(why), "{refused}");
        assert_eq!(
            matches!(refused, SettingError::InvalidValue(_)),
            why.starts_with("its"),
            "{refused:?}"
        );
    }
    assert!(!is_counting());
    set("stats", "table").unwrap();
    assert!(is_counting());

    sample_every(2);
    let guarded = || {
        let before = stats().guarded_blocks_total;
        for _ in 0..20_000 {
            std::hint::black_box(thiscpu_malloc::allocate(1000)).expect("there is memory");
        }
        stats().guarded_blocks_total - before
    };
    assert_eq!(guarded(), 0);
    set("harden", "on").unwrap();
    assert_ne!(guarded(), 0);
    set("harden", "off").unwrap();
    assert_eq!(guarded(), 0);
}
