//! Values on the command line.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context as _, Result, ensure};

/// One of several parts of equal size, such as the second of three: `2/3`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    number: usize,
    of: usize,
}

impl Part {
    /// Keeps the items of this part.
    pub(crate) fn select<T>(self, items: impl IntoIterator<Item = T>) -> impl Iterator<Item = T> {
        items.into_iter().skip(self.number - 1).step_by(self.of)
    }
}

impl Default for Part {
    fn default() -> Part {
        Part { number: 1, of: 1 }
    }
}

impl FromStr for Part {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Part> {
        let (number, of) = text.split_once('/').context("not of the form K/N, such as 2/3")?;
        let (number, of) = (number.parse()?, of.parse()?);
        ensure!((1..=of).contains(&number), "the parts are 1 to {of}");
        Ok(Part { number, of })
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

/// Displays values of a `clap::ValueEnum` by their names on the command line.
macro_rules! display_as_argument {
    ($($type:ty),*) => {$(
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let value = clap::ValueEnum::to_possible_value(self);
                f.pad(value.as_ref().map_or("skipped", clap::builder::PossibleValue::get_name))
            }
        }
    )*};
}

pub(crate) use display_as_argument;
