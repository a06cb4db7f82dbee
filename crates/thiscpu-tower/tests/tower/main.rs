//! Tests of the layers, alone and in servers over loopback.

mod body;
mod common;
mod concurrency_limit;
mod in_flight;
mod keyed_limit;
mod load_shed;
mod metrics;
mod server;
