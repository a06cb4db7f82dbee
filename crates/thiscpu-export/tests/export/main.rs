//! `thiscpu-export` as users and Prometheus see it: texts, exit status, and the endpoint.

mod exact;
mod fixture;
mod formats;
mod once;
mod prometheus;
mod service;
