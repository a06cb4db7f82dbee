//! Settings of the allocator: as arguments of `run`, and in the environment of `doctor`.

use clap::builder::PossibleValuesParser;
use serde_json::{Value, json};
use thiscpu_malloc::export::Assignment;
use thiscpu_malloc::{Setting, SettingError, settings};

/// The variable that the preloaded library reads.
pub(crate) const VARIABLE: &str = "THISCPU_MALLOC";

/// Checks an argument of `run --set`.
pub(crate) fn parse(argument: &str) -> Result<String, String> {
    if argument.contains(',') {
        return Err("it has a comma, which separates settings; repeat --set".to_owned());
    }
    match Assignment::parse(argument.as_bytes()) {
        Ok(Some(_)) => Ok(argument.trim().to_owned()),
        Ok(None) => Err("it is empty; write NAME=VALUE".to_owned()),
        Err(why) => Err(why.to_string()),
    }
}

/// Returns the signals that `run --heap-profile-signal` may name.
pub(crate) fn signals() -> PossibleValuesParser {
    let setting = settings().find(|setting| setting.name() == "profile_signal");
    let values = setting.map_or(&[][..], Setting::values).iter().copied();
    PossibleValuesParser::new(values.filter(|&value| value != "off"))
}

/// What the environment sets.
pub(crate) struct FromEnvironment {
    assignments: Vec<(&'static Setting, String)>,
    /// Words that a program would ignore, and why.
    ignored: Vec<(String, SettingError)>,
}

impl FromEnvironment {
    /// Reads the variable.
    pub(crate) fn read() -> FromEnvironment {
        let list = std::env::var_os(VARIABLE).unwrap_or_default();
        let (mut assignments, mut ignored) = (Vec::new(), Vec::new());
        for word in list.as_encoded_bytes().split(|&byte| byte == b',') {
            match Assignment::parse(word) {
                Ok(assignment) => {
                    assignments.extend(assignment.map(|Assignment { setting, value }| {
                        (setting, String::from_utf8_lossy(value).into_owned())
                    }))
                }
                Err(why) => ignored.push((word.trim_ascii().escape_ascii().to_string(), why)),
            }
        }
        FromEnvironment { assignments, ignored }
    }

    /// Returns the value that the environment gives a setting.
    fn value(&self, setting: &Setting) -> Option<&str> {
        let mut values = self.assignments.iter();
        let last = values.rfind(|(assigned, _)| std::ptr::eq(*assigned, setting));
        last.map(|(_, value)| value.as_str())
    }

    /// Returns the lines of the report.
    pub(crate) fn lines(&self) -> Vec<String> {
        let known = settings().map(|setting| match self.value(setting) {
            Some(value) => format!("{}={value} (from {VARIABLE})", setting.name()),
            None => format!("{}={} (default)", setting.name(), setting.default_value()),
        });
        let ignored = self.ignored.iter();
        let ignored = ignored.map(|(word, why)| format!("{VARIABLE}: {word} is ignored: {why}"));
        known.chain(ignored).collect()
    }

    pub(crate) fn to_json(&self) -> Value {
        let settings: Vec<_> = settings()
            .map(|setting| {
                json!({
                    "name": setting.name(),
                    "value": self.value(setting).unwrap_or(setting.default_value()),
                    "is_set": self.value(setting).is_some(),
                    "values": setting.values(),
                    "default": setting.default_value(),
                    "cost": setting.cost(),
                })
            })
            .collect();
        let ignored = self.ignored.iter();
        let ignored: Vec<_> =
            ignored.map(|(word, why)| json!({ "word": word, "why": why.to_string() })).collect();
        json!({ "settings": settings, "ignored": ignored })
    }
}
