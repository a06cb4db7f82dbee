//! What this crate promises to its users.

mod errors;
mod facade;
mod http;
mod instants;
mod observed;
mod places;
mod text;
mod threads;
