//! Names of values on the command line.

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
