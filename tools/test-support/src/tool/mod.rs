//! Helpers of the programs in `tools/`.

pub mod output;
pub mod progress;
pub mod stop;
