//! The argument of a child that measures an allocator.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::contenders::Name;

/// The measurement that a child makes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChildSpec {
    pub(super) case: String,
    /// [`Name::Nothing`] for the memory that is resident without any objects.
    pub(super) contender: Name,
    pub(super) threads: usize,
    pub(super) length: Duration,
}

impl ChildSpec {
    /// Reads the argument of a child.
    ///
    /// `can_run` returns whether the contender can run the case, or `None` for an unknown case.
    pub(super) fn parse(
        text: &str,
        can_run: impl FnOnce(&Self) -> Option<bool>,
    ) -> Result<Self, String> {
        let spec: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let Self { case, contender, threads, .. } = &spec;
        if !can_run(&spec).ok_or_else(|| format!("no case is named {case:?}"))? {
            return Err(format!("{contender} cannot run {case}"));
        }
        contender.available().map_err(|why| format!("{why:#}"))?;
        if *threads == 0 {
            return Err("expected a thread".to_owned());
        }
        Ok(spec)
    }
}
