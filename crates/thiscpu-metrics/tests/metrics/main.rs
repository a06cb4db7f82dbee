//! The guarantees of this crate.

mod edges;
mod errors;
mod facade;
mod families;
mod http;
mod instants;
mod malloc;
mod openmetrics;
mod opentelemetry;
mod prometheus;
mod removal;
mod signals_and_forks;
mod structures;
mod text;
mod threads;
