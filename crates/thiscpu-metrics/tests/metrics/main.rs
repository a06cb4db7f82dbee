//! The guarantees of this crate.

mod errors;
mod facade;
mod http;
mod instants;
mod malloc;
mod opentelemetry;
mod signals_and_forks;
mod text;
mod threads;
